"""Which properties of a dump the variables of its connection set, and the limits of these variables."""

from __future__ import annotations

import pytest

from dispatcher.front.questions.answers import answer_to
from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.variables import VariableMemory, Variables
from dispatcher.front.wire.errors import WireError
from tests.front.questions.made_picture import mariadb, picture, who


def after(*statements: str) -> Variables:
    variables = Variables()
    for sql in statements:
        answer_to(parse_question(sql, variables), picture(), variables, who())
    return variables


@pytest.mark.parametrize(
    ("statements", "checksum"),
    [
        ([], None),
        (["SET @master_binlog_checksum = @@global.binlog_checksum"], "CRC32"),
        (["SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'none'"], "NONE"),
        (["SET @source_binlog_checksum = 'CRC32', @MASTER_BINLOG_CHECKSUM = 'NONE'"], "CRC32"),
        (["SET @master_binlog_checksum = 1"], "CRC32"),
        (["SET @master_binlog_checksum = 0"], "NONE"),
        (["SET @master_binlog_checksum = 'MD5'"], None),
        (["SET @master_binlog_checksum = NULL"], None),
    ],
)
def test_checksum(statements: list[str], checksum: str | None) -> None:
    assert after(*statements).binlog_checksum == checksum


def test_what_a_dump_reads() -> None:
    variables = after(
        "SET @master_heartbeat_period = 48000000000",
        "SET @slave_uuid = 'fb18ad44-e955-11f1-8f12-02fc00000001'",
        "SET @mariadb_slave_capability='4'",
        "SET @slave_connect_state='0-1-3', @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates=0",
        "SET @slave_until_gtid = '0-1-9'",
        "SET net_write_timeout = 600, autocommit = 0",
    )
    assert variables.heartbeat_period_ns == 48_000_000_000
    assert variables.replica_uuid == "fb18ad44-e955-11f1-8f12-02fc00000001"
    assert variables.mariadb_capability == 4
    assert variables.slave_connect_state == "0-1-3"
    assert variables.slave_until_gtid == "0-1-9"
    assert variables.seconds("net_write_timeout") == 600
    assert not variables.autocommit


def test_a_client_that_says_nothing() -> None:
    variables = Variables()
    assert variables.heartbeat_period_ns == variables.mariadb_capability == 0
    assert variables.slave_connect_state is variables.slave_until_gtid is None
    assert variables.replica_uuid == ""
    assert variables.seconds("net_write_timeout") is None
    assert variables.autocommit


@pytest.mark.parametrize(
    "value", ["'x'", "'-1'", "NULL", "''", "'9999999999999999999999'", "'²'", "'1.5'"]
)
def test_values_that_make_no_sense(value: str) -> None:
    variables = after(
        f"SET @master_heartbeat_period = {value}, @mariadb_slave_capability = {value}",
        "SET @slave_connect_state = NULL, @slave_uuid = 5",
    )
    assert variables.heartbeat_period_ns == variables.mariadb_capability == 0
    assert variables.slave_connect_state is None
    assert variables.replica_uuid == ""


def test_the_handshake_names_the_character_set() -> None:
    sql = "SELECT @@character_set_results"
    for collation, charset in ((45, "utf8mb4"), (8, "latin1"), (28, "gbk"), (9999, "utf8mb4")):
        variables = Variables(collation)
        answer = answer_to(parse_question(sql), picture(), variables, who())
        assert answer.rows == ((charset,),)  # type: ignore[union-attr]


def test_the_number_and_size_of_variables_are_limited() -> None:
    variables = Variables()

    def ask(sql: str) -> None:
        answer_to(parse_question(sql, variables), picture(), variables, who())

    for n in range(190):
        ask(f"SET @v{n} = 1")
    with pytest.raises(WireError):
        ask("SET " + ", ".join(f"@w{n} = 1" for n in range(20)))
    assert variables.user("w0") is None
    ask(f"SET @v0 = '{'x' * 30_000}'")
    for value in (f"'{'x' * 40_000}'", "CONCAT(@v0, 'x', 'y', @v0)", f"'{'x' * 9_000}\U0001f600'"):
        with pytest.raises(WireError):
            ask(f"SET @v1 = {value}")
        assert variables.user("v1") == 1
    ask(
        "SET @v2 = CONCAT(@v0, @v0, @v0)"
    )  # as a server answers where max_allowed_packet is exceeded
    assert variables.user("v2") is None


def test_the_variables_of_all_connections_share_their_memory() -> None:
    """A connection that ends gives its memory back."""
    memory = VariableMemory(100_000)
    first, second, third = (Variables(memory=memory) for _ in range(3))

    def set_large(variables: Variables) -> None:
        sql = f"SET @a = '{'x' * 40_000}'"
        answer_to(parse_question(sql, variables), picture(), variables, who())

    set_large(first)
    set_large(second)
    with pytest.raises(WireError) as caught:
        set_large(third)
    assert caught.value.number == 1235
    assert 80_000 < memory.held <= memory.maximum
    set_large(second)  # the same size again
    first.clear()
    set_large(third)
    second.clear()
    third.clear()
    assert memory.held == 0


def test_names_of_older_servers() -> None:
    """MariaDB before 11.1 and MySQL before 5.7.20 have only tx_isolation."""
    old = mariadb()
    variables = Variables(mariadb=True)
    older = old.variables["transaction_isolation"]
    renamed = {
        name: value for name, value in old.variables.items() if name != "transaction_isolation"
    }
    picture_ = type(old)({**renamed, "tx_isolation": older}, old.logs, old.status)
    sql = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    answer_to(parse_question(sql), picture_, variables, who())
    seen = variables.session("tx_isolation", picture_)
    assert seen is not None
    assert seen.selected == "READ-COMMITTED"
