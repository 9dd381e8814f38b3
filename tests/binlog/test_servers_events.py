"""Events of real servers pass through the daemon's splitter and consumer log; the tests check what a consumer
receives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.event.gtid import parse_previous_gtids
from dispatcher.binlog.event.query import AlterPhase, parse_query
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.query_event import logged_statement
from dispatcher.binlog.sql.statement import parse_statement
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.servers import Server
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.support.dumps import account, dump, printed, shared
from tests.support.server_log import fresh_log, read_log

Rows = dict[int, dict[str, Any]]


def events(log: bytes) -> list[tuple[int, bytes]]:
    """Returns (type, body) of each event of a log with checksums."""
    out, at = [], 4
    while at < len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        out.append((log[at + 4], log[at + 19 : at + size - 4]))
        at += size
    return out


def replayed(data: bytes, database: str) -> dict[str, Rows]:
    """Applies the changes to empty tables. Returns the tables' rows, by the value of the column `a`."""
    tables: dict[str, Rows] = {}
    for part in delivered.changes(data, all_versions=True):
        if isinstance(part, delivered.Ddl):
            continue
        for row in part.batch.to_pylist():
            assert row["database"] == database
            table = tables.setdefault(row["table"], {})
            if row["table"] == "s":  # a sequence has one row and no key
                continue
            for side in ("before", "after"):
                cells = row[side]
                if cells and side == "before":
                    del table[cells["a"]]
                elif cells:
                    table[cells["a"]] = cells
    return tables


def inserted(text: str, table: str) -> list[int]:
    """Returns the first cell of each row inserted into a table, parsed from the output of a tool."""
    found = re.findall(rf"### INSERT INTO `\w+`\.`{table}`\n### SET\n###   @1=(\d+)", text)
    return [int(value) for value in found]


# -- MySQL 9.7 ------------------------------------------------------------------------------------------------


def test_compressed_and_tagged_transactions(
    mysql97: Server, new_database: Callable[[Server], str], tmp_path: Path
) -> None:
    one, two = new_database(mysql97), new_database(mysql97)
    mysql97.execute(
        *(f"CREATE TABLE {d}.t (a INT PRIMARY KEY, j JSON, c VARCHAR(200))" for d in (one, two))
    )
    file = fresh_log(mysql97)
    many = ", ".join(f"({n}, '{{\"n\": {n}}}', '{'x' * 150}')" for n in range(100, 3000))
    mysql97.execute(
        "SET gtid_next = 'AUTOMATIC:tag_1', SESSION binlog_row_value_options = PARTIAL_JSON",
        f"INSERT INTO {one}.t VALUES (1, '{{\"k\": [1, 2]}}', 'plain')",
        f"UPDATE {one}.t SET j = JSON_SET(j, '$.k[1]', 'new') WHERE a = 1",
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        f"INSERT INTO {one}.t VALUES {many}",
        f"INSERT INTO {two}.t VALUES {many}",
        f"UPDATE {one}.t SET j = JSON_SET(j, '$.n', -1) WHERE a < 105",
        f"DELETE FROM {one}.t WHERE a > 2990",
        "COMMIT",
        "SET gtid_next = AUTOMATIC",
        f"INSERT INTO {two}.t VALUES (2, '[]', 'b')",
    )
    log = read_log(mysql97, file)
    kinds = [kind for kind, _ in events(log)]
    assert kinds.count(EventType.TRANSACTION_PAYLOAD) == 2
    assert kinds.count(EventType.GTID_TAGGED) == 3
    want = {
        row[0]: {"a": row[0], "j": json.loads(row[1]), "c": row[2]}
        for row in mysql97.execute(f"SELECT * FROM {one}.t")
    }
    share = shared(log, one)
    assert shared(log, one, chunk=5000).data == share.data
    assert share.seq == 4
    assert not share.faults
    assert max(len(segment) for _, segment, _ in share.log._segments) <= 1 << 20
    text = printed(mysql97, share.data, tmp_path)
    assert inserted(text, "t") == [1, *range(100, 3000)]
    assert f"`{two}`" not in text
    assert text.count("### DELETE FROM") == 9
    rows = [
        row
        for part in delivered.changes(share.data)
        if not isinstance(part, delivered.Ddl)
        for row in part.batch.to_pylist()
    ]
    assert {row["gtid"].split(":")[1] for row in rows} == {"tag_1"}
    found = replayed(share.data, one)["t"]
    assert {a: row | {"j": json.loads(row["j"])} for a, row in found.items()} == want


def test_a_set_with_tags_equals_the_servers(
    mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    """The code reads the binary form of a set at the beginning of a file, and writes it into the request for a dump."""
    database = new_database(mysql97)
    mysql97.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    mysql97.execute(
        "SET gtid_next = 'AUTOMATIC:b_2'",
        *(f"INSERT INTO {database}.t VALUES ({n})" for n in range(3)),
    )
    held = GtidSet.parse(str(mysql97.execute("SELECT @@gtid_executed")[0][0]))
    assert any(":b_2" in source for source in held.sources())
    file = fresh_log(mysql97)
    previous = next(b for k, b in events(read_log(mysql97, file)) if k == EventType.PREVIOUS_GTIDS)
    assert parse_previous_gtids(previous) == held
    assert held.encode() == previous
    mysql97.execute(
        "SET gtid_next = 'AUTOMATIC:b_2'", f"INSERT INTO {database}.t VALUES (10), (11)"
    )
    endpoint = account(mysql97, f"{database}_r")
    with dump(endpoint, database, file="", held=held) as stream:
        stream.until(lambda share: share.seq > 0)
        assert list(replayed(stream.share.data, database)["t"]) == [10, 11]
    mysql97.execute(f"DROP USER {database}_r")


STATEMENTS = (
    "CREATE TABLE {0}.a (a INT PRIMARY KEY, b INT)",
    "CREATE TABLE `b``c` LIKE {0}.a",
    "/* {1}.x */ CREATE TABLE /* , */ IF NOT EXISTS {1}.`a.b` (a INT /* ) */ PRIMARY KEY)",
    "CREATE TABLE c SELECT * FROM {0}.a",
    "ALTER TABLE {0}.a ADD c INT, RENAME TO {1}.a2",
    "RENAME TABLE {1}.a2 TO {0}.a3, c TO {1}.c",
    "-- a comment\nTRUNCATE {0}.a3 # another",
    "/*!50000 CREATE */ INDEX i ON {0}.a3 (b)",
    "SET sql_mode = 'ANSI_QUOTES'",
    'CREATE TABLE "{1}"."q\\" (a INT DEFAULT 1 COMMENT \'it\\\'s\')',
    "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "ALTER TABLE {0}.a3 COMMENT = 'a\\', ADD INDEX j (b)",
    "SET sql_mode = DEFAULT",
    "DROP TABLE {0}.a3, {1}.c",
    "CREATE VIEW {1}.v AS SELECT 1 FROM {0}.`b``c`",
    "CREATE TRIGGER {0}.g BEFORE INSERT ON `b``c` FOR EACH ROW SET @x = 1",
    "CREATE PROCEDURE {1}.p() SELECT 1",
    "DROP PROCEDURE {1}.p",
)


def test_every_database_that_a_server_names_is_found(
    mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    one, two = new_database(mysql97), new_database(mysql97)
    file = fresh_log(mysql97)
    mysql97.execute(*(text.format(one, two) for text in STATEMENTS), database=one)
    seen = 0
    for kind, body in events(read_log(mysql97, file)):
        if kind == EventType.QUERY and (query := parse_query(body)).query != "BEGIN":
            parsed = parse_statement(logged_statement(query, 0, ServerVersion(), 0))
            assert parsed.parsed, query.query
            found = {database for database, _ in parsed.tables} | set(parsed.databases)
            # For CREATE TABLE ... LIKE the event lists no databases.
            assert found == set(query.updated_databases or found), query.query
            seen += 1
    assert seen == len(STATEMENTS) - 3


def test_names_in_the_sessions_character_set(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    """In gbk the second byte of a character may be a backslash or a backtick."""
    database = new_database(any_server)
    name = "\u8a98\u8b5c"  # in gbk, its middle bytes are 0xD55C
    text = f"CREATE TABLE {database}.`t\u4e57{name}` (a INT COMMENT '\u8a98\\'`', b INT)"
    assert b"\\" in text.encode("gbk").replace(b"\\'", b"")
    file = fresh_log(any_server)
    connection = any_server.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES gbk")
        connection.query(text.encode("gbk"))
    query = next(
        parse_query(body) for kind, body in events(read_log(any_server, file)) if kind == 2
    )
    assert query.query == text
    parsed = parse_statement(logged_statement(query, 0, ServerVersion(), 0))
    assert parsed.tables == ((database, f"t\u4e57{name}"),)


# -- MariaDB --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mariadb118"])
def test_compressed_events_and_sequences(
    server_factory: ServerFactory, kind: Kind, tmp_path: Path
) -> None:
    server = server_factory(kind, "--log-bin-compress=ON", "--log-bin-compress-min-len=10")
    server.execute("CREATE DATABASE d")
    file = fresh_log(server)
    server.execute(
        "CREATE TABLE t (a INT PRIMARY KEY, c VARCHAR(1000))",
        "INSERT INTO t VALUES " + ", ".join(f"({n}, '{'x' * 200}')" for n in range(500)),
        "UPDATE t SET c = CONCAT('longer than ten bytes ', a) WHERE a < 10",
        "DELETE FROM t WHERE a > 400",
        "CREATE TABLE u SELECT * FROM t WHERE a < 3",
        "CREATE SEQUENCE s CACHE 2",
        "SELECT NEXTVAL(s)",
        "SELECT NEXTVAL(s), NEXTVAL(s)",
        database="d",
    )
    log = read_log(server, file)
    kinds = {kind for kind, _ in events(log)}
    assert kinds >= {165, 166, 167, 168}
    share = shared(log, "d", chunk=5000)
    assert not share.faults
    assert inserted(printed(server, share.data, tmp_path), "t") == list(range(500))
    # No daemon has asked the server whether `s` is a sequence.
    with pytest.raises(BinlogError, match=r"does not show whether d\.s is a table"):
        list(delivered.changes(share.data))
    parts = list(delivered.changes(share.data, all_versions=True))
    queries = [
        part.statement.text.split("(")[0] for part in parts if isinstance(part, delivered.Ddl)
    ]
    assert queries == ["CREATE TABLE t ", "CREATE TABLE `u` ", "CREATE SEQUENCE s CACHE 2"]
    rows = [row for p in parts if not isinstance(p, delivered.Ddl) for row in p.batch.to_pylist()]
    drawn = [row["after"]["next_not_cached_value"] for row in rows if row["table"] == "s"]
    assert drawn == [3, 5]
    for table, cells in replayed(share.data, "d").items():
        if table != "s":
            want = server.execute(f"SELECT a, c FROM d.{table}")
            assert cells == {row[0]: {"a": row[0], "c": row[1]} for row in want}


# -- groups ---------------------------------------------------------------------------------------------------

TABLES = (
    "CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB",
    "CREATE TABLE m (a INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE TABLE w (a INT PRIMARY KEY) ENGINE=InnoDB",
    "CREATE TRIGGER g BEFORE INSERT ON w FOR EACH ROW INSERT INTO m VALUES (NEW.a)",
)
GROUPS = (
    # Changes that InnoDB rolls back and MyISAM does not, in one transaction and in one statement.
    ("BEGIN", "INSERT INTO i VALUES (1)", "INSERT INTO m VALUES (1)", "ROLLBACK"),
    ("BEGIN", "INSERT INTO w VALUES (2)", "ROLLBACK"),
    ("BEGIN", "INSERT INTO i VALUES (3)", "SAVEPOINT x", "INSERT INTO i VALUES (4)", "INSERT INTO m VALUES (4)",
     "ROLLBACK TO x", "INSERT INTO i VALUES (5)", "COMMIT"),
    ("BEGIN", "SAVEPOINT x", "INSERT INTO w VALUES (6)", "SAVEPOINT y", "INSERT INTO i VALUES (6)",
     "ROLLBACK TO SAVEPOINT x", "RELEASE SAVEPOINT x", "INSERT INTO i VALUES (7)", "COMMIT"),
    ("CREATE TEMPORARY TABLE z (a INT) ENGINE=MyISAM", "BEGIN", "INSERT INTO z VALUES (1)",
     "INSERT INTO i VALUES (8)", "DROP TEMPORARY TABLE z", "ROLLBACK"),
    ("BEGIN", "INSERT INTO i VALUES (9)", "CREATE TEMPORARY TABLE z (a INT)", "ROLLBACK"),
    ("BEGIN", "COMMIT"),
    ("/* c */ BEGIN", "INSERT INTO i VALUES (10)", "-- x\nCOMMIT /* c */"),
    ("ANALYZE TABLE i", "OPTIMIZE TABLE m", "FLUSH TABLES"),
    ("CREATE TABLE c SELECT a FROM i",),
    ("CREATE TABLE cm ENGINE=MyISAM SELECT a FROM i",),
    ("INSERT INTO i SELECT a + 100 FROM i", "UPDATE i, m SET i.a = 51, m.a = 52 WHERE i.a = 3 AND m.a = 1"),
    ("XA START 'q'", "INSERT INTO i VALUES (60)", "XA END 'q'", "XA COMMIT 'q' ONE PHASE"),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["mariadb118", "mariadb1011"])
def test_the_remedy_for_transaction_precise_versions(
    kind: Kind, request: pytest.FixtureRequest, new_database: Callable[[Server], str]
) -> None:
    """MariaDB logs changes of such a table as statements, also with binlog_format=ROW."""
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    times = ", ".join(
        f"{n} BIGINT UNSIGNED GENERATED ALWAYS AS ROW {w}"
        for n, w in (("b", "START"), ("e", "END"))
    )
    server.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, {times}, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING",
        database=database,
    )
    file = fresh_log(server)
    server.execute(
        "INSERT INTO t (id) VALUES (1), (2)", "DELETE FROM t WHERE id = 2", database=database
    )
    splitter = Splitter(Routes(), packets=False, checksum=True, buffer_bytes=1 << 14)
    batches = splitter.feed(read_log(server, file)[4:])
    faults = [b.fault.error for b in batches if isinstance(b, Batch) and b.fault is not None]
    assert [fault.what.split(" as ")[0] for fault in faults] == ["INSERT", "DELETE"]
    assert "transaction-precise system versioning" in str(faults[0])
    server.execute(
        "SET SESSION system_versioning_alter_history = KEEP",
        "ALTER TABLE t DROP SYSTEM VERSIONING, DROP COLUMN b, DROP COLUMN e",
        "ALTER TABLE t ADD SYSTEM VERSIONING",
        database=database,
    )
    file = fresh_log(server)
    server.execute("INSERT INTO t (id) VALUES (3)", "DELETE FROM t WHERE id = 1", database=database)
    assert not shared(read_log(server, file), database).faults
    assert server.execute(f"SELECT id FROM {database}.t") == ((3,),)


@pytest.mark.parametrize("kind", ["mariadb118", "mariadb1011"])
def test_a_ddl_in_two_transactions_counts_once_and_only_if_it_succeeds(
    server_factory: ServerFactory, kind: Kind, tmp_path: Path
) -> None:
    """MariaDB with binlog_alter_two_phase=ON logs START ALTER, and then COMMIT ALTER or ROLLBACK ALTER."""
    server = server_factory(kind, "--binlog-alter-two-phase=ON")
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT, e INT)"
    )
    file = fresh_log(server)
    server.execute("INSERT INTO t VALUES (1, 10, 20, 5), (2, 11, 21, 5)", database="d")
    with pytest.raises(pymysql.err.IntegrityError):
        server.execute("ALTER TABLE t RENAME TO z, ADD UNIQUE (e)", database="d")
    server.execute(
        "ALTER TABLE t CHANGE a b INT, CHANGE b a INT AFTER id",
        "CREATE INDEX i ON t (b)",
        "DROP INDEX i ON t",
        "INSERT INTO t VALUES (3, 1, 2, 3)",
        database="d",
    )
    log = read_log(server, file)
    share = shared(log, "d")
    phases = [parse_query(body).status.alter_phase for kind, body in events(log) if kind == 2]
    begun, ended = AlterPhase.START, AlterPhase.COMMIT
    assert [p for p in phases if p] == [begun, AlterPhase.ROLLBACK, *(begun, ended) * 3]
    parts = list(delivered.changes(share.data))
    assert [
        p.statement.text if isinstance(p, delivered.Ddl) else p.batch.num_rows for p in parts
    ] == [
        2,
        "ALTER TABLE t CHANGE a b INT, CHANGE b a INT AFTER id",
        "CREATE INDEX i ON t (b)",
        "DROP INDEX i ON t",
        1,
    ]
    # The consumer's log still holds the statements: a replica of it needs both.
    statements = [body for kind, body in events(share.data) if kind == 2]
    assert sum(b"CHANGE a b INT" in body for body in statements) == 2
    assert printed(server, share.data, tmp_path).count("CHANGE a b INT") == 2


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mysql97", ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")),
        ("mysql56", ("--gtid-mode=OFF", "--skip-enforce-gtid-consistency")),
        ("mariadb118", ()),
    ],
)
def test_rolled_back_changes_are_not_delivered(
    server_factory: ServerFactory, kind: Kind, options: tuple[str, ...], tmp_path: Path
) -> None:
    server = server_factory(kind, *options)
    server.execute("CREATE DATABASE d")
    server.execute(*TABLES, database="d")
    file = fresh_log(server)
    for group in GROUPS:
        server.execute(*group, database="d")
    log = read_log(server, file)
    written = [parse_query(body).query for kind, body in events(log) if kind == EventType.QUERY]
    if kind != "mysql97":
        assert "ROLLBACK" in written
    if server.mariadb:
        assert "ROLLBACK TO `x`" in written
    share = shared(log, "d")
    assert shared(log, "d", chunk=150).data == share.data
    assert not share.faults
    text = printed(server, share.data, tmp_path)
    for table in ("i", "m", "w", "c", "cm"):
        want = sorted(row[0] for row in server.execute(f"SELECT a FROM d.{table}"))
        found = inserted(text, table)
        moved = re.findall(
            rf"### UPDATE `d`\.`{table}`\n### WHERE\n###   @1=(\d+).*\n### SET\n###   @1=(\d+)",
            text,
        )
        for before, after in moved:
            found.remove(int(before))
            found.append(int(after))
        assert sorted(found) == want, table


def test_statements_that_change_data_are_reported(any_server: Server, new_database: Callable[[Server], str],
                                    tmp_path: Path) -> None:  # fmt: skip
    one, two = new_database(any_server), new_database(any_server)
    any_server.execute(*(f"CREATE TABLE {d}.t (a INT PRIMARY KEY)" for d in (one, two)))
    (tmp_path / "rows").write_text("100\n101\n")
    (tmp_path / "rows").chmod(0o644)
    file = fresh_log(any_server)
    any_server.execute(
        f"LOAD DATA INFILE '{tmp_path}/rows' INTO TABLE {two}.t",
        "SET SESSION binlog_format = STATEMENT, @secret = 'not told'",
        f"INSERT INTO {one}.t VALUES (1)",
        f"LOAD DATA INFILE '{tmp_path}/rows' INTO TABLE {one}.t",
        database=two,
    )
    share = shared(read_log(any_server, file), one, two)
    assert share.faults == [
        f"INSERT as a statement, on table '{one}.t'",
        f"LOAD DATA as a statement, on table '{one}.t'",
    ]
    assert inserted(printed(any_server, share.data, tmp_path), "t") == [100, 101]


# -- checksums ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011"])
def test_checksums_change_under_a_stream(server_factory: ServerFactory, kind: Kind) -> None:
    server = server_factory(kind)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
    server.execute("SET GLOBAL binlog_checksum = CRC32")
    endpoint = account(server, "r")
    first = fresh_log(server)
    with dump(endpoint, "d", file=first) as running:
        for n, checksum in enumerate(("CRC32", "NONE", "CRC32", "NONE")):
            server.execute(f"SET GLOBAL binlog_checksum = {checksum}")
            server.execute(f"INSERT INTO d.t VALUES ({n})")
            running.until(lambda share, n=n: share.seq == n + 1)  # type: ignore[misc]
        for number, file in enumerate(("CRC32", "NONE")):
            server.execute(f"SET GLOBAL binlog_checksum = {file}")
            # This dump begins in a file with checksums, whatever the server's present setting is.
            with dump(endpoint, "d", file=first, number=2 + number) as later:
                later.until(lambda share: share.seq == 4)
                assert not later.share.faults
    assert not running.share.faults
