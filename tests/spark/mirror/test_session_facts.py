"""Added columns whose values depend on the session: the mirror computes the value that each server has, or finds that
it is not known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from tests.servers import Server
from tests.spark.mirror.fill_forms import table_definitions
from tests.support.server_log import delivered_log, fresh_log

NewDatabase = Callable[[Server], str]

# Settings of a session, and columns that it adds. The servers refuse some of both.
SESSIONS: dict[str, list[str]] = {
    "sql_mode = 'EMPTY_STRING_IS_NULL'": [
        "VARCHAR(9) DEFAULT ''", "VARCHAR(9) DEFAULT '' ''", 'CHAR(9) DEFAULT ""', "VARBINARY(9) DEFAULT ''",
        "VARBINARY(9) DEFAULT x''", "SET('a') DEFAULT ''", "ENUM('','a') DEFAULT ''", "TEXT DEFAULT ''",
        "INT DEFAULT ''", "CHAR(3) DEFAULT ' '", "VARCHAR(9) NOT NULL", "VARCHAR(9) DEFAULT 'a'",
    ],
    "sql_mode = 'TIME_TRUNCATE_FRACTIONAL'": ["VARCHAR(9) DEFAULT ''", "DATETIME(2) DEFAULT '2024-01-01 00:00:00.999'"],
    "sql_mode = 'TIME_ROUND_FRACTIONAL'": ["VARCHAR(9) DEFAULT ''", "DATETIME(2) DEFAULT '2024-01-01 00:00:00.999'"],
    "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'": ["CHAR(9) DEFAULT 'a'", "CHAR(9) NOT NULL", "BINARY(3) DEFAULT 'a'"],
    "sql_mode = 'NO_BACKSLASH_ESCAPES'": [r"VARCHAR(9) DEFAULT 'a\n'", r"SET('\a','b') DEFAULT '\a'"],
    "sql_mode = 'NO_ZERO_DATE'": ["DATE NOT NULL", "DATETIME NOT NULL", "DATE DEFAULT '0000-00-00'"],
    **{
        f"NAMES utf8mb4 COLLATE utf8mb4_general_ci, collation_connection = {collation}": [
            "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '中é'", "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'é'",
            "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '😀'", "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'a{}[]|~@'",
            "VARBINARY(9) DEFAULT 'a'", "VARBINARY(9) DEFAULT 'é'", "BINARY(4) DEFAULT 'a'", "BLOB DEFAULT 'a'",
            "TEXT DEFAULT 'é'", "ENUM('{','é') DEFAULT '{'", "ENUM('{','b') NOT NULL", "SET('中','b') DEFAULT '中'",
            "INT DEFAULT '12'", "DATE DEFAULT '2024-01-02'", "DECIMAL(5,2) DEFAULT '1.5'", "VARCHAR(9) DEFAULT 5",
        ]
        for collation in (
            "latin1_swedish_ci", "swe7_swedish_ci", "cp1251_general_ci", "utf16_general_ci", "ucs2_general_ci",
            "utf8_general_ci", "utf8mb4_bin", "utf32_general_ci", "binary", "ascii_general_ci",
        )
    },
    "NAMES latin1": ["VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'é'", "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'a'"],
    "character_set_client = binary": ["VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'é'", "VARCHAR(9) DEFAULT 'a'"],
    **{
        f"time_zone = '{zone}'": [
            "TIMESTAMP NULL DEFAULT '2024-07-01 12:00:00'", "TIMESTAMP(3) NULL DEFAULT '2024-01-01 12:00:00.25'",
            "TIMESTAMP NOT NULL DEFAULT '1970-01-01 00:00:01'", "TIMESTAMP NOT NULL DEFAULT '2038-01-01 00:00:00'",
            "TIMESTAMP NOT NULL DEFAULT '2024-01-01'", "TIMESTAMP NOT NULL DEFAULT 0",
        ]
        for zone in ("+00:00", "+05:45", "-11:30", "SYSTEM", "+13:00")
    },
    "explicit_defaults_for_timestamp = ON": ["TIMESTAMP", "TIMESTAMP(3) DEFAULT NULL", "TIMESTAMP DEFAULT 0"],
    "explicit_defaults_for_timestamp = OFF": ["TIMESTAMP", "TIMESTAMP(3) DEFAULT 0"],
}  # fmt: skip


def added(
    server: Server, database: str
) -> tuple[dict[str, tuple[str, str]], dict[str, AlterTable], dict[str, Any]]:
    """Adds each column in its session. Returns, by table: the session and the definition; the statement; the value in
    the row from before the statement."""
    tables: dict[str, tuple[str, str]] = {}
    for session, definitions in SESSIONS.items():
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            for definition in definitions:
                table = f"t{len(tables)}"
                cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY) CHARACTER SET utf8mb4")
                cursor.execute(f"INSERT INTO {table} VALUES (1)")
                tables[table] = session, definition
    log = fresh_log(server)
    for table, (session, definition) in list(tables.items()):
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute("SET sql_mode = ''")
                cursor.execute(f"SET {session}")
                cursor.execute(f"ALTER TABLE {table} ADD c {definition}")
            except pymysql.MySQLError:
                del tables[table]
    server.execute(*(f"DELETE FROM {table}" for table in tables), database=database)
    statements: dict[str, AlterTable] = {}
    values: dict[str, Any] = {}
    definitions_of = table_definitions(server, database)
    data = delivered_log(server, log)
    for part in delivered.changes(data, definitions_of, invalid_dates=InvalidDates.NULL):
        if isinstance(part, Ddl):
            for effect in effects_of(part.statement):
                if isinstance(effect, AlterTable):
                    statements[effect.name[1]] = effect
        elif isinstance(part, TableChanges):
            for row in part.batch.to_pylist():
                if row["op"] == "delete":
                    values[part.table_map.table] = row["before"]["c"]
    return tables, statements, values


def test_the_value_is_the_servers_or_in_doubt(
    any_server: Server, new_database: NewDatabase
) -> None:
    tables, statements, values = added(any_server, new_database(any_server))
    wrong, followed = [], set()
    for table, (session, definition) in tables.items():
        change = change_of(Signature(()), statements[table], InvalidDates.NULL, ())
        if isinstance(change, Recopy):
            continue
        (column,) = change.columns
        followed.add((session, definition))
        if column.fill != values[table]:
            wrong.append(
                f"{session}: {definition}: {values[table]!r} at the server, {column.fill!r} in the mirror"
            )
    assert wrong == []
    wanted = {
        ("time_zone = '+05:45'", "TIMESTAMP(3) NULL DEFAULT '2024-01-01 12:00:00.25'"),
        ("time_zone = '-11:30'", "TIMESTAMP NOT NULL DEFAULT 0"),
        ("sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'", "CHAR(9) DEFAULT 'a'"),
        ("NAMES latin1", "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT 'a'"),
    }
    if any_server.mariadb:
        wanted.add(("sql_mode = 'EMPTY_STRING_IS_NULL'", "VARCHAR(9) DEFAULT ''"))
    assert wanted <= followed
    assert len(followed) > 80
