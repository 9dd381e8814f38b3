"""The databases in which a statement runs, and snapshots of what is in all tables.

Each case finds the same tables with the same rows. After a case, only the tables that it changed are made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from dispatcher.binlog.sql.generated import GeneratedColumn, generated_in
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.statement import parse_statement
from tests.servers import Server

Name = tuple[str, str]

DATABASES = ("shop", "other")
_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
_TABLES: tuple[tuple[Name, tuple[str, ...]], ...] = (
    (("shop", "t"), (
        "CREATE TABLE shop.t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c VARCHAR(20) NOT NULL DEFAULT 'x', KEY k (a))",
        "INSERT INTO shop.t VALUES (1, 1, 'one', 'x'), (2, 2, 'two', 'Y'), (3, 2, NULL, 'y')",
    )),
    (("shop", "u"), (
        "CREATE TABLE shop.u (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(30) CHARACTER SET latin1)",
        "INSERT INTO shop.u VALUES (1, 'a'), (2, 'é')",
    )),
    (("shop", "p"), (
        "CREATE TABLE shop.p (id INT NOT NULL, a INT, PRIMARY KEY (id)) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20),"
        " PARTITION p2 VALUES LESS THAN MAXVALUE)",
        "INSERT INTO shop.p VALUES (1, 10), (11, 110), (21, 210)",
    )),
    (("shop", "x"), (
        "CREATE TABLE shop.x (id INT NOT NULL, a INT, PRIMARY KEY (id))",
        "INSERT INTO shop.x VALUES (5, 50)",
    )),
    (("shop", "h"), (
        "CREATE TABLE shop.h (id INT PRIMARY KEY, a INT) PARTITION BY HASH (id) PARTITIONS 4",
        "INSERT INTO shop.h VALUES (1, 1), (2, 2), (6, 3)",
    )),
    (("shop", "parent"), (
        "CREATE TABLE shop.parent (id INT PRIMARY KEY, a INT)",
        "INSERT INTO shop.parent VALUES (1, 1), (2, 2)",
    )),
    (("shop", "child"), (
        "CREATE TABLE shop.child (id INT PRIMARY KEY, parent_id INT, CONSTRAINT fk FOREIGN KEY (parent_id)"
        " REFERENCES shop.parent (id) ON DELETE CASCADE)",
        "INSERT INTO shop.child VALUES (1, 1), (2, NULL)",
    )),
    (("shop", "n"), (
        "CREATE TABLE shop.n (a INT, b INT)",
        "INSERT INTO shop.n VALUES (1, 1), (1, 1), (2, NULL), (0, 0)",
    )),
    (("shop", "m"), (
        "CREATE TABLE shop.m (id INT PRIMARY KEY, a INT, b VARCHAR(20)) ENGINE=MyISAM",
        "INSERT INTO shop.m VALUES (1, 1, 'x'), (2, 1, 'X')",
    )),
    (("shop", "y"), (
        "CREATE TABLE shop.y (id BIGINT UNSIGNED PRIMARY KEY, i TINYINT, d DECIMAL(10,2), f DOUBLE, bi BIT(8),"
        " y YEAR, da DATE, dt DATETIME(3), ts TIMESTAMP NULL, tm TIME(2), ch CHAR(5), tx TEXT, bl BLOB,"
        " vb VARBINARY(9), e ENUM('a','b','c'), s SET('x','y','z'))",
        "INSERT INTO shop.y VALUES (1, -5, 12.34, 0.5, b'101', 2024, '2024-02-29', '2024-02-29 10:11:12.125',"
        " '2024-02-29 10:11:12', '10:11:12.25', 'ab', 'text', 'blob', x'00ff', 'b', 'x,z'),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )),
    (("other", "t"), (
        "CREATE TABLE other.t (id INT PRIMARY KEY, z INT)",
        "INSERT INTO other.t VALUES (7, 7)",
    )),
    (("other", "o"), (
        "CREATE TABLE other.o (id INT PRIMARY KEY)",
        "INSERT INTO other.o VALUES (8)",
    )),
    (("shop", "v"), ("CREATE VIEW shop.v AS SELECT id, v FROM shop.u",)),
)  # fmt: skip
_MARIADB_TABLES: tuple[tuple[Name, tuple[str, ...]], ...] = (
    (("shop", "sq"), ("CREATE SEQUENCE shop.sq START WITH 5",)),
    (("shop", "sv"), (
        "CREATE TABLE shop.sv (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
        "INSERT INTO shop.sv VALUES (1, 1), (2, 2)",
        "UPDATE shop.sv SET a = 3 WHERE id = 2",
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """`type`, `charset`: as in information_schema; `charset` is "" for a column without one."""

    name: str
    type: str
    charset: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Table:
    """`kind`: BASE TABLE, VIEW, SEQUENCE or SYSTEM VERSIONED; `rows`: each value as the server prints it in UTC,
    sorted; None if the rows cannot be read. `generated`: the generated columns, which the mirror knows from the
    server's definition when it copies the table. `definition`: what SHOW CREATE TABLE prints; it is not recorded."""

    kind: str
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    rows: tuple[Row, ...] | None = ()
    generated: tuple[GeneratedColumn, ...] | None = field(default=(), compare=False)
    definition: str = field(default="", compare=False)


Snapshot = dict[Name, Table]
Row = tuple[str | None, ...]
Rows = list[Row]


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def open_admin(server: Server) -> Connection[Cursor]:
    """Returns a connection whose results are the server's bytes."""
    admin = server.connect(conv={}, use_unicode=False, client_flag=CLIENT.MULTI_STATEMENTS)
    with admin.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', foreign_key_checks = 0")
    return admin


def text(raw: bytes | str | None) -> str:
    return (
        ""
        if raw is None
        else raw
        if isinstance(raw, str)
        else raw.decode("utf-8", "backslashreplace")
    )


class World:
    """The databases of one server."""

    def __init__(self, server: Server, admin: Connection[Cursor]) -> None:
        self._server = server
        self.admin = admin
        self._tables = dict((*_TABLES, *(_MARIADB_TABLES if server.mariadb else ())))
        (self._accounts,) = self._results(["SELECT user, host FROM mysql.user"])
        self._others = (
            ""  # databases, accounts, and how many triggers, events and routines there were
        )
        self.rebuild()
        self.base = self.snapshot()
        self._base_others = self._others

    def run(self, statements: Iterable[str]) -> None:
        if all_of := [*statements]:
            self._results(all_of)

    def _results(self, queries: Sequence[str]) -> list[Rows]:
        """Returns the rows of each query. They are sent together, because a busy machine makes each answer wait."""
        found: list[Rows] = []
        with self.admin.cursor() as cursor:
            cursor.execute("; ".join(queries))
            while True:
                found.append(
                    [
                        tuple(None if cell is None else text(cell) for cell in row)
                        for row in cursor.fetchall()
                    ]
                )
                if not cursor.nextset():
                    return found

    # -- making it ---------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        (found,) = self._results(["SHOW DATABASES"])
        self.run(f"DROP DATABASE {quoted(str(row[0]))}" for row in found if row[0] not in _SYSTEM)
        self.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4" for database in DATABASES)
        self.run(statement for statements in self._tables.values() for statement in statements)

    def restore(self, now: Snapshot) -> None:
        """Make the tables that differ from `base` anew. `now`: what is there, by the last `snapshot`."""
        if self._others != self._base_others:
            self._restore_accounts()
            self.rebuild()
            return
        changed = [
            name
            for name in {*self.base, *now}
            if self.base.get(name) != now.get(name)
            or self.base[name].definition != now[name].definition
        ]
        if not changed:
            return
        try:
            self._replace(changed, now)
        except pymysql.MySQLError:
            self.rebuild()
            return
        if self.snapshot() != self.base:
            self.rebuild()

    def _replace(self, changed: Sequence[Name], now: Snapshot) -> None:
        statements = []
        for name in changed:
            if name in now:
                what = now[name].kind if now[name].kind in ("VIEW", "SEQUENCE") else "TABLE"
                statements.append(f"DROP {what} {quoted(*name)}")
        for name, making in self._tables.items():
            if name in changed:
                statements += making
        self.run(statements)

    def _restore_accounts(self) -> None:
        (accounts,) = self._results(["SELECT user, host FROM mysql.user"])
        for user, host in accounts:
            if (user, host) not in self._accounts:
                for statement in (f"DROP USER '{user}'@'{host}'", f"DROP ROLE '{user}'"):
                    with suppress(pymysql.MySQLError):
                        self.run([statement])

    # -- looking at it -----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        system = ", ".join(f"'{name}'" for name in _SYSTEM)
        of = f"WHERE TABLE_SCHEMA NOT IN ({system})"
        routines = (
            "information_schema.ROUTINES WHERE ROUTINE_SCHEMA NOT IN ('sys', 'mysql')"
            if self._server.kind == "mysql97"
            else "mysql.proc WHERE db NOT IN ('sys', 'mysql')"
        )
        tables, all_columns, all_keys, *others = self._results(
            [
                f"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES {of}",
                "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE"
                f" FROM information_schema.COLUMNS {of} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION",
                f"SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS {of}"
                " AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX",
                "SHOW DATABASES",
                "SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA <> 'sys'",
                "SELECT COUNT(*) FROM information_schema.EVENTS",
                f"SELECT COUNT(*) FROM {routines}",
                "SELECT user, host FROM mysql.user ORDER BY 1, 2",
            ]
        )
        self._others = repr(others)
        columns: dict[Name, list[Column]] = {}
        for schema, table, name, kind, charset, nullable in all_columns:
            column = Column(str(name), str(kind), charset or "", nullable == "YES")
            columns.setdefault((str(schema), str(table)), []).append(column)
        keys: dict[Name, list[str]] = {}
        for schema, table, name in all_keys:
            keys.setdefault((str(schema), str(table)), []).append(str(name))
        kinds = {(str(schema), str(table)): str(kind) for schema, table, kind in tables}
        read = self._contents(kinds, columns)
        return {
            name: _table(kind, columns.get(name, ()), keys.get(name, ()), *read[name])
            for name, kind in kinds.items()
        }

    def _contents(
        self, kinds: Mapping[Name, str], columns: Mapping[Name, Sequence[Column]]
    ) -> dict[Name, tuple[tuple[Row, ...] | None, str]]:
        """Returns the rows and the definition of each table."""
        queries = []
        for name, kind in kinds.items():
            queries.append(f"SHOW CREATE TABLE {quoted(*name)}")
            asked = ", ".join(quoted(column.name) for column in columns.get(name, ())) or "1"
            queries.append(f"SELECT {asked} FROM {quoted(*name)}" if kind != "VIEW" else "SELECT 1")
        try:
            results: list[Rows | None] = [*self._results(queries)]
        except pymysql.MySQLError:
            results = [self._if_readable(query) for query in queries]
        found: dict[Name, tuple[tuple[Row, ...] | None, str]] = {}
        for name, shown, rows in zip(kinds, results[::2], results[1::2], strict=True):
            definition = "" if shown is None else str(shown[0][1])
            found[name] = None if rows is None else tuple(sorted(rows, key=repr)), definition
        return found

    def _if_readable(self, query: str) -> Rows | None:
        try:
            return self._results([query])[0]
        except pymysql.MySQLError:
            return None


def _table(
    kind: str,
    columns: Sequence[Column],
    key: Sequence[str],
    rows: tuple[Row, ...] | None,
    definition: str,
) -> Table:
    if kind == "VIEW":
        return Table(kind, definition=definition)
    statement = LoggedStatement(definition)
    create = parse_statement(statement).create
    generated = None if create is None else generated_in(statement, create)
    return Table(kind, tuple(columns), tuple(key), rows, generated, definition)


def changed(before: Mapping[Name, Table], after: Mapping[Name, Table]) -> dict[Name, Table | None]:
    """Returns the tables that differ, as they are afterwards; None for a table that is gone."""
    return {
        name: after.get(name)
        for name in _names(before, after)
        if before.get(name) != after.get(name)
    }


def _names(before: Mapping[Name, Table], after: Mapping[Name, Table]) -> Iterator[Name]:
    yield from sorted({*before, *after})
