"""Facts and findings of real servers."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.mysql import server_facts as server_module
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.grants import parse_grants
from dispatcher.mysql.login import connect
from dispatcher.mysql.server_facts import BinlogFile, ServerFacts, read_facts, read_grants
from dispatcher.mysql.server_settings import examine, findings
from tests.servers.plugin import ServerFactory
from tests.servers.server import Server
from tests.support.accounts import REPLICATION, account


def test_facts(any_server: Server) -> None:
    any_server.execute("CREATE DATABASE IF NOT EXISTS facts_test", "DROP DATABASE facts_test")
    with account(any_server, "facts") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
        assert examine(connection, ["shop"]) == []
        assert findings(seen, read_grants(connection), ["shop"]) == []
    assert seen.flavour == ("mariadb" if any_server.mariadb else "mysql")
    assert seen.version == any_server.version
    assert seen.log_bin and seen.binlog_format == "ROW" and seen.row_image == "FULL"
    assert seen.checksum == "CRC32"
    assert seen.files and seen.files[-1].name == seen.file
    assert [(file.name, file.size) for file in seen.files][:-1] == any_server.binlogs()[:-1]
    assert 4 < seen.offset <= seen.files[-1].size
    assert seen.server_id > 0
    assert seen.lower_case_table_names == 0
    if any_server.mariadb:
        assert seen.server_uuid == f"mariadb-{seen.server_id}"
        assert seen.gtid_mode == "" and seen.gtid_purged == ""
        assert seen.gtid_executed.count("-") == 2
    else:
        assert seen.gtid_mode == "ON"
        assert seen.server_uuid in seen.gtid_executed
        executed = GtidSet.parse(seen.gtid_executed)
        assert executed and executed.contains(GtidSet.parse(seen.gtid_purged))
    assert seen.row_metadata == ("" if any_server.kind == "mysql56" else "FULL")


def test_facts_hold_gtid_sets_of_any_length(server_factory: ServerFactory) -> None:
    """SHOW VARIABLES cuts a value at 1024 characters; gaps make the set longer."""
    server = server_factory("mysql97")
    uuid = "11111111-2222-3333-4444-555555555555"
    purged = f"{uuid}:" + ":".join(str(2 * n) for n in range(1, 1001))
    server.execute(f"SET GLOBAL gtid_purged = '+{purged}'")
    with account(server, "long_set") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
    assert GtidSet.parse(seen.gtid_purged).contains(GtidSet.parse(purged))
    assert "\n" not in seen.gtid_purged


def test_gtids_purged_while_the_server_is_asked_are_in_gtid_purged(
    server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the history check would see that a file is purged but not its GTIDs, and report another history."""
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE purged_then", "FLUSH BINARY LOGS")
    asked = server_module._log_status

    def purge_first(
        connection: Connection, version: str
    ) -> tuple[str, int, tuple[BinlogFile, ...]]:
        server.execute(f"PURGE BINARY LOGS TO '{server.binlog_position()[0]}'")
        return asked(connection, version)

    monkeypatch.setattr(server_module, "_log_status", purge_first)
    with account(server, "purging") as endpoint, closing(connect(endpoint)) as connection:
        before = GtidSet.parse(read_facts(connection).gtid_executed)
        server.execute("CREATE DATABASE purged_later", "FLUSH BINARY LOGS")
        seen = read_facts(connection)
    assert before and len(seen.files) == 1
    assert GtidSet.parse(seen.gtid_purged).contains(before)
    assert seen.gtid_purged == seen.gtid_executed


def test_gtids_of_transactions_that_are_not_executed_yet(mysql97: Server) -> None:
    mine, other = "aaaaaaaa-0000-0000-0000-000000000001", "1bbbbbbb-0000-0000-0000-000000000002"
    with ExitStack() as stack, account(mysql97, "owner") as endpoint:
        for gtid in (f"{mine}:5", f"{mine}:7", f"{other}:1"):
            session = stack.enter_context(closing(mysql97.connect()))
            session.cursor().execute(f"SET gtid_next = '{gtid}'")
        with closing(connect(endpoint)) as connection:
            seen = read_facts(connection)
    assert GtidSet.parse(seen.gtid_owned) == GtidSet.parse(f"{mine}:5:7,{other}:1")
    assert not GtidSet.parse(seen.gtid_executed).has(mine, 5)


def test_facts_without_the_grant(any_server: Server) -> None:
    with (
        account(any_server, "no_grant", "SELECT ON *.*") as endpoint,
        closing(connect(endpoint)) as connection,
    ):
        with pytest.raises(BinlogError) as caught:
            read_facts(connection)
        found = examine(connection)
    assert caught.value.kind is ErrorKind.GRANT_MISSING
    assert [error.kind for error in found] == [ErrorKind.GRANT_MISSING] * 2
    assert "REPLICATION SLAVE" in found[0].what and "REPLICATION CLIENT" in found[1].what
    assert "GRANT REPLICATION CLIENT ON *.* TO " in found[1].remedy
    assert "no_grant" in found[1].remedy


def test_select_is_required_on_the_consumers_databases(any_server: Server) -> None:
    privileges = ("REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT ON `seen_1`.*")
    with (
        account(any_server, "some_select", *privileges) as endpoint,
        closing(connect(endpoint)) as connection,
    ):
        found = examine(connection, ["seen_1", "other`db", "other`db"])
    assert [error.what for error in found] == [
        "the account lacks SELECT on `other``db`.*, or the server has no such database"
    ]


def test_the_remedies_correct_the_findings(any_server: Server) -> None:
    with account(any_server, "helped", "USAGE ON *.*") as endpoint:
        with closing(connect(endpoint)) as connection:
            for error in examine(connection, ["shop"]):
                any_server.execute(error.remedy)
        with closing(connect(endpoint)) as connection:
            assert examine(connection, ["shop"]) == []


def test_grants_through_a_role(mysql97: Server) -> None:
    mysql97.execute("CREATE ROLE replicator", f"GRANT {REPLICATION[0]} TO replicator")
    with account(mysql97, "role_user", "USAGE ON *.*") as endpoint:
        mysql97.execute(
            "GRANT replicator TO 'role_user'@'%'", "SET DEFAULT ROLE ALL TO 'role_user'@'%'"
        )
        with closing(connect(endpoint)) as connection:
            assert examine(connection, ["shop"]) == []
    mysql97.execute("DROP ROLE replicator")


WHOLE = ServerFacts(
    version="9.7.4",
    flavour="mysql",
    server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562",
    server_id=1,
    log_bin=True,
    binlog_format="ROW",
    row_image="FULL",
    row_metadata="FULL",
    checksum="CRC32",
    gtid_mode="ON",
    gtid_executed="",
    gtid_owned="",
    gtid_purged="",
    files=(),
    file="",
    offset=0,
    expire_seconds=None,
    lower_case_table_names=0,
)
ALL_GRANTS = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"])


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"log_bin": False}, "log_bin=OFF", "--log-bin"),
        ({"log_engine": "innodb"}, "binlog_storage_engine=innodb", "without binlog_storage_engine"),
        ({"server_id": 0}, "server_id=0", "SET PERSIST server_id = 1"),
        ({"binlog_format": "MIXED"}, "binlog_format=MIXED", "SET PERSIST binlog_format = ROW"),
        ({"row_image": "NOBLOB"}, "binlog_row_image=NOBLOB", "binlog_row_image = FULL"),
        ({"row_metadata": "MINIMAL"}, "binlog_row_metadata=MINIMAL", "row_metadata = FULL"),
        (
            {"binlog_format": "STATEMENT", "version": "5.6.24-log"},
            "binlog_format=STATEMENT",
            "SET GLOBAL binlog_format = ROW, and the same in the server's option file",
        ),
    ],
)
def test_one_finding(changes: dict[str, object], what: str, remedy: str) -> None:
    (error,) = findings(replace(WHOLE, **changes), ALL_GRANTS, ["shop"])  # type: ignore[arg-type]
    assert error.kind is ErrorKind.SERVER_SETTING
    assert what in error.what and remedy in error.remedy


def test_a_well_configured_server_has_no_findings() -> None:
    assert findings(WHOLE, ALL_GRANTS, ["shop"]) == []
    assert findings(replace(WHOLE, row_metadata=""), ALL_GRANTS) == []


def test_all_findings_at_once() -> None:
    broken = replace(WHOLE, log_bin=False, binlog_format="STATEMENT", row_image="MINIMAL")
    found = findings(broken, parse_grants(["GRANT USAGE ON *.* TO `u`@`%`"]), ["a", "b"])
    assert [error.kind for error in found] == [ErrorKind.SERVER_SETTING] * 3 + [
        ErrorKind.GRANT_MISSING
    ] * 4


def test_findings_of_a_misconfigured_server(server_factory: ServerFactory) -> None:
    server = server_factory(
        "mysql97",
        "--binlog-format=STATEMENT",
        "--binlog-row-image=MINIMAL",
        "--binlog-row-metadata=MINIMAL",
        "--binlog-row-value-options=PARTIAL_JSON",
        "--binlog-transaction-compression=ON",
    )
    with account(server, "wrong_settings") as endpoint:
        with closing(connect(endpoint)) as connection:
            found = examine(connection)
        assert [error.what.partition(":")[0] for error in found] == [
            "binlog_format=STATEMENT",
            "binlog_row_image=MINIMAL",
            "binlog_row_metadata=MINIMAL",
        ]
        server.execute(*(error.remedy.partition(";")[0] for error in found))
        with closing(connect(endpoint)) as connection:
            assert examine(connection) == []


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_findings_of_a_server_without_a_binlog(kind: str, server_factory: ServerFactory) -> None:
    server = server_factory(kind, "--skip-log-bin")  # type: ignore[arg-type]
    with account(server, "no_binlog") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
        found = examine(connection)
    assert (seen.log_bin, seen.files, seen.file, seen.offset) == (False, (), "", 0)
    assert found[0].what.startswith("log_bin=OFF")


def test_the_age_at_which_logs_are_purged(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97", "--binlog-expire-logs-seconds=7200")
    with account(server, "expiry") as endpoint, closing(connect(endpoint)) as connection:
        assert read_facts(connection).expire_seconds == 7200
        server.execute("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
        assert read_facts(connection).expire_seconds is None


def test_the_age_in_days(mysql56: Server) -> None:
    with account(mysql56, "expiry56") as endpoint, closing(connect(endpoint)) as connection:
        assert read_facts(connection).expire_seconds is None
        mysql56.execute("SET GLOBAL expire_logs_days = 3")
        try:
            assert read_facts(connection).expire_seconds == 3 * 86400
        finally:
            mysql56.execute("SET GLOBAL expire_logs_days = 0")
