"""Answers from a picture, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.front.questions.answer import LookUp, Ok, ResultSet
from dispatcher.front.questions.answers import answer_to, check_database
from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.variables import Variables
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.result_set import ColumnKind
from dispatcher.model.server_picture import Picture, Variable
from tests.front.questions.made_picture import UUID, mariadb, picture, who


def ask(sql: str, of: Picture | None = None, variables: Variables | None = None) -> Any:
    variables = variables or Variables(database="shop")
    return answer_to(parse_question(sql, variables), of or picture(), variables, who())


def number(sql: str, of: Picture | None = None) -> int:
    with pytest.raises(WireError) as caught:
        ask(sql, of)
    return caught.value.number


def test_the_log_is_shown_without_databases_of_others() -> None:
    answer = ask("SHOW BINARY LOG STATUS")
    assert answer.rows == (("binlog.000002", "540", "shop", "", f"{UUID}:1-9"),)
    assert [column.kind for column in answer.columns[:2]] == [ColumnKind.TEXT, ColumnKind.INTEGER]
    assert ask("SHOW MASTER STATUS") == ask("SHOW BINLOG STATUS") == answer
    assert ask("SHOW MASTER LOGS") == ask("SHOW BINARY LOGS")
    assert ask("SHOW BINARY LOGS").rows == (("binlog.000001", "2825"), ("binlog.000002", "540"))


def test_replicas_of_the_server_are_not_shown() -> None:
    names = [column.name for column in ask("SHOW REPLICAS").columns]
    assert names == ["Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"]
    assert len(ask("SHOW SLAVE HOSTS").columns) == 5
    assert len(ask("SHOW SLAVE HOSTS", mariadb()).columns) == 4
    assert ask("SHOW REPLICAS").rows == ask("SHOW SLAVE HOSTS").rows == ()


def test_functions() -> None:
    answer = ask("SELECT UNIX_TIMESTAMP(), DATABASE(), VERSION()")
    assert answer.rows == ((1_795_000_000, "shop", "9.7.4"),)
    assert ask("SELECT DATABASE()", variables=Variables()).rows == ((None,),)
    assert number("SELECT VERSION(1)") == 1582
    assert number("SELECT SLEEP(1)") == 1305


def test_gtid_functions() -> None:
    assert ask(f"SELECT GTID_SUBTRACT('{UUID}:1-9', '{UUID}:4')").rows == ((f"{UUID}:1-3:5-9",),)
    assert ask("SELECT GTID_SUBTRACT(@nothing, '')").rows == ((None,),)
    assert number("SELECT GTID_SUBTRACT('x', '')") == 1772
    assert number("SELECT GTID_SUBTRACT('', '')", mariadb()) == 1305
    large = ",".join(f"{UUID}:{n}" for n in range(1, 1_000, 2))
    variables = Variables()
    ask(f"SET @a = '{large}'", variables=variables)
    with pytest.raises(WireError) as caught:
        ask("SELECT " + ", ".join(["GTID_SUBTRACT(@a, @a)"] * 100), variables=variables)
    assert caught.value.number == 1235


def test_an_answer_is_limited() -> None:
    gtids = Variable("x" * (30 << 20), "")
    assert len(ask("SELECT @@gtid_executed", picture(gtid_executed=gtids)).rows[0][0]) == 30 << 20
    many = "SELECT " + ", ".join(["@@gtid_executed"] * 100)
    assert number(many, picture(gtid_executed=gtids)) == 1235
    variables = Variables()
    ask(f"SET @a = '{'x' * 60_000}'", variables=variables)
    assert len(ask("SELECT " + ", ".join(["@a"] * 17), variables=variables).rows[0]) == 17
    for items in (["@a"] * 18, [f"CONCAT(@a, {n})" for n in range(18)]):
        with pytest.raises(WireError) as caught:
            ask("SELECT " + ", ".join(items), variables=variables)
        assert caught.value.number == 1235


def test_the_sets_of_a_picture() -> None:
    seen = picture()
    assert seen.executed == f"{UUID}:1-9,{UUID[:-1]}2:5"
    assert seen.purged == f"{UUID}:1-3"
    assert (seen.server_id, seen.server_uuid) == (5, UUID)
    assert (mariadb().executed, mariadb().mariadb) == ("0-1-9", True)


def test_gtids_of_a_place() -> None:
    look_up = ask("SELECT binlog_gtid_pos('binlog.000001', 4) AS p", mariadb())
    assert look_up.statement == f"SELECT binlog_gtid_pos(_utf8mb4 x'{b'binlog.000001'.hex()}', 4)"
    for arguments in (
        "'/etc/passwd', 4",
        "'binlog.000009', 4",
        "'binlog.000001', '4'",
        "NULL, 1",
        "1",
    ):
        assert ask(f"SELECT binlog_gtid_pos({arguments})", mariadb()).rows == ((None,),)
    assert number("SELECT binlog_gtid_pos('binlog.000001', 4)") == 1305


def test_use() -> None:
    variables = Variables()
    assert ask("USE shop", variables=variables) == Ok()
    assert variables.database == "shop"
    assert number("USE vault") == 1049
    check_database("", picture(), who())
    check_database("information_schema", picture(), who())
    with pytest.raises(WireError):
        check_database("vault", picture(), who())


def test_a_server_that_folds_names() -> None:
    folding = picture(lower_case_table_names=Variable("1", "1", integer=True))
    assert isinstance(ask("SHOW CREATE TABLE Shop.Items", folding), LookUp)
    assert number("SHOW CREATE TABLE Shop.Items") == 1146


def test_globals_are_not_set() -> None:
    for sql in ("SET GLOBAL net_write_timeout = 1", "SET @@global.net_write_timeout = 1"):
        assert number(sql) == 1227
    assert number("SET PASSWORD = 'x'") == 1193
    assert number("SET version = 'x'") == 1238
    assert number("SET net_write_timeout = 'x'") == 1231


def test_a_refused_look_up() -> None:
    look_up = ask("SHOW CREATE TABLE items")
    assert isinstance(look_up, LookUp)
    numbers = {n: look_up.refusal(n).number for n in (0, 1049, 1054, 1142, 1146, 1227, 2013)}
    assert numbers == {
        0: 1105,
        1049: 1049,
        1054: 1054,
        1142: 1142,
        1146: 1146,
        1227: 1142,
        2013: 1105,
    }
    assert "'app'@'127.0.0.1'" in look_up.refusal(1142).message
    tables = ask("SHOW TABLES")
    assert tables.refusal(1146).number == 1049


def test_kinds_of_columns() -> None:
    answer = ask("SELECT @@server_id, @@version, 18446744073709551615, NULL, 1")
    assert isinstance(answer, ResultSet)
    assert [column.kind for column in answer.columns] == [
        ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.UNSIGNED, ColumnKind.TEXT, ColumnKind.INTEGER,
    ]  # fmt: skip
