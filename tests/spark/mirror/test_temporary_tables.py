"""Statements on temporary tables in the logs of four servers: none of them changes a mirrored table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.plan import UnclearItem, route
from spark_sink.mirror.schema.statements import (
    AlterTable,
    DropTable,
    TableEffect,
    TruncateTable,
    UnclearTablesError,
    effects_of,
)
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.selection.touched import TouchedObjects
from tests.mirror_rules.test_plan import entry
from tests.servers import Server
from tests.support.dumps import Share, shared
from tests.support.server_log import fresh_log, read_log
from tests.support.statements import as_logged

NewDatabase = Callable[[Server], str]
FORMATS = ["STATEMENT", "MIXED", "ROW"]
# When the session ends, it still has temporary tables, and the server drops these tables.
ON_TEMPORARY = [
    "CREATE TEMPORARY TABLE t (a INT)",
    "TRUNCATE TABLE t",
    "ALTER TABLE t ADD b INT",
    "CREATE INDEX i ON t (a)",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE u RENAME TO t",
    "CREATE TEMPORARY TABLE u LIKE t",
    "DROP TABLE u",
    "CREATE TEMPORARY TABLE u (a INT)",
    "DROP TEMPORARY TABLE t",
    "CREATE TEMPORARY TABLE t (a INT)",
]
ON_TABLES = [
    "TRUNCATE TABLE t",
    "ALTER TABLE t ADD b INT",
    "CREATE TEMPORARY TABLE t (a INT)",
    "ALTER TABLE u ADD b INT",
    "DROP TABLE t, u",
]


def logged(server: Server, database: str, binlog_format: str, statements: Sequence[str]) -> Share:
    """Executes the statements in one session that has tables t and u. Returns what a consumer gets."""
    tables = "CREATE TABLE t (x INT PRIMARY KEY)", "CREATE TABLE u (x INT PRIMARY KEY)"
    server.execute(*tables, database=database)
    file = fresh_log(server)
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_format = {binlog_format}")
        for statement in statements:
            cursor.execute(statement)
    server.execute(f"CREATE DATABASE {database}_end", f"DROP DATABASE {database}_end")
    return shared(read_log(server, file), database)


def statements_of(share: Share) -> list[Ddl]:
    return [part for part in delivered.changes(share.data) if isinstance(part, Ddl)]


def read(ddl: Ddl) -> list[TableEffect]:
    return effects_of(ddl.statement)


@pytest.mark.parametrize("binlog_format", FORMATS)
def test_no_statement_on_a_temporary_table_has_an_effect(
    any_server: Server, new_database: NewDatabase, binlog_format: str
) -> None:
    share = logged(any_server, new_database(any_server), binlog_format, ON_TEMPORARY)
    assert not share.faults
    effects: list[TableEffect] = []
    for ddl in statements_of(share):
        try:
            effects += read(ddl)
        except UnclearTablesError:
            assert TouchedObjects.of(ddl.statement) == TouchedObjects(None, None)
            assert ddl.maybe_temporary
    assert effects == []


@pytest.mark.parametrize("binlog_format", FORMATS)
def test_statements_on_tables_have_their_effects_beside_temporary_ones(
    any_server: Server, new_database: NewDatabase, binlog_format: str
) -> None:
    database = new_database(any_server)
    share = logged(any_server, database, binlog_format, ON_TABLES)
    effects = [effect for ddl in statements_of(share) for effect in read(ddl)]
    assert [(type(effect), effect.tables) for effect in effects] == [
        (TruncateTable, ((database, "t"),)),
        (AlterTable, ((database, "t"),)),
        (AlterTable, ((database, "u"),)),
        (DropTable, ((database, "u"),)),
    ]


CREATE_SELECT = ["CREATE TABLE c AS SELECT 1 AS a"]


@pytest.fixture(params=["mysql97", "mariadb1011", "mariadb118"])
def creating_server(request: pytest.FixtureRequest) -> Server:
    """Parameter: the servers with CREATE TABLE ... SELECT. MySQL 5.6 does not support this statement with GTIDs."""
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.mark.parametrize("binlog_format", ["STATEMENT", "MIXED"])
def test_create_table_select_as_a_statement_stops_the_consumer(
    creating_server: Server, new_database: NewDatabase, binlog_format: str
) -> None:
    """The consumer stops because the log does not contain the table's rows."""
    database = new_database(creating_server)
    share = logged(creating_server, database, binlog_format, CREATE_SELECT)
    fault = f"CREATE TABLE ... SELECT as a statement, on table '{database}.c'"
    assert share.faults == [fault]


def test_create_table_select_is_logged_as_rows_in_row_format(
    creating_server: Server, new_database: NewDatabase
) -> None:
    database = new_database(creating_server)
    share = logged(creating_server, database, "ROW", CREATE_SELECT)
    assert share.faults == []
    parts = list(delivered.changes(share.data))
    (rows,) = (part for part in parts if isinstance(part, TableChanges))
    assert [row["after"] for row in rows.batch.to_pylist()] == [{"a": 1}]
    assert [effect.tables for ddl in statements_of(share) for effect in read(ddl)] == [
        ((database, "c"),)
    ]


T, U = ("db", "t"), ("db", "u")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("TRUNCATE t", [T]),
        ("ALTER TABLE T ADD a INT", [T]),
        ("ALTER TABLE x RENAME TO u", [U]),
        ("ALTER TABLE x ADD a INT", []),
    ],
)
def test_an_undecided_statement_stops_the_tables_of_its_names_alone(
    query: str, names: list[tuple[str, str]]
) -> None:
    item = entry(
        1, kind=EntryKind.STATEMENT, statement=as_logged(query, "db", thread_specific=True)
    )
    items = route(item, effects_of, lambda: [T, U], lambda _: False)
    assert [name for name, _ in items] == names
    assert all(isinstance(work, UnclearItem) for _, work in items)


def test_an_undecided_statement_is_an_error() -> None:
    with pytest.raises(
        BinlogError, match=r"TRUNCATE T \.\.\. was executed on this table or on a temp"
    ):
        effects_of(as_logged("TRUNCATE t", "db", STRICT_TRANS_TABLES, thread_specific=True))
