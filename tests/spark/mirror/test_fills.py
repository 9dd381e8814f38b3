"""The values of added columns in existing rows, compared with real servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of, difference
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log
from tests.support.statements import UTF8, as_logged

NewDatabase = Callable[[Server], str]

# Definitions for which the mirror can compute the value in existing rows.
KNOWN = [
    "INT", "INT NULL", "INT DEFAULT NULL", "INT DEFAULT 5", "INT NOT NULL", "INT NOT NULL DEFAULT -7",
    "INT NOT NULL DEFAULT '12'", "INT DEFAULT 1.5", "BOOL DEFAULT b'0' NOT NULL", "INT DEFAULT 0x10",
    "BIGINT UNSIGNED DEFAULT 0x7fffffffffffffff", "DECIMAL(5,2) DEFAULT b'101'", "DOUBLE DEFAULT 0x05",
    "INT DEFAULT -2.5", "INT DEFAULT '1.5'",
    "BOOL DEFAULT TRUE", "TINYINT UNSIGNED NOT NULL", "BIGINT UNSIGNED DEFAULT 18446744073709551615",
    "DECIMAL(10,2) NOT NULL", "DECIMAL(10,2) DEFAULT 1.005", "DECIMAL(10,2) DEFAULT '-1.5'", "DECIMAL(40,3) DEFAULT 5",
    "FLOAT DEFAULT 0.1", "DOUBLE NOT NULL DEFAULT 0.1", "DOUBLE NOT NULL", "BIT(3) NOT NULL", "BIT(12) DEFAULT b'101'",
    "BIT(12) DEFAULT 5", "YEAR NOT NULL", "YEAR DEFAULT 2024", "YEAR DEFAULT '1999'",
    "DATE", "DATE NOT NULL DEFAULT '2024-02-29'", "DATE DEFAULT '2024-01-01'", "DATETIME DEFAULT '2024-01-01'",
    "DATETIME(3) NOT NULL DEFAULT '2024-01-01 10:11:12.5'", "TIMESTAMP NULL", "TIMESTAMP(3) NULL DEFAULT NULL",
    "TIME NOT NULL", "TIME DEFAULT '10:11:12'", "TIME(2) DEFAULT '-838:59:58.25'",
    "CHAR(5) NOT NULL", "CHAR(5) DEFAULT 'ab '", "VARCHAR(9) DEFAULT 'it''s'", "VARCHAR(9) DEFAULT 'ab '",
    "VARCHAR(9) DEFAULT 5", "VARCHAR(9) DEFAULT 1.50", "VARCHAR(9) DEFAULT ''", "VARCHAR(9) NOT NULL",
    "VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'", "TEXT", "TEXT NOT NULL",
    "BINARY(4) NOT NULL", "BINARY(4) DEFAULT 'ab'", "VARBINARY(4) DEFAULT x'00ff'", "VARBINARY(4) DEFAULT 0xff",
    "BLOB NOT NULL", "ENUM('x','y') NOT NULL", "ENUM('x','y')", "ENUM('x','y') DEFAULT 'y'",
    "ENUM('x','y') DEFAULT 'Y'",
    "SET('x','y') NOT NULL", "SET('x','y') DEFAULT 'y,x'", "SET('x','y') DEFAULT ''", "JSON",
]  # fmt: skip
# Definitions after which the mirror needs a new copy of the table.
UNKNOWN = [
    "TIMESTAMP", "TIMESTAMP NOT NULL", "TIMESTAMP NULL DEFAULT '2024-01-01 00:00:00'",
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", "DATETIME DEFAULT CURRENT_TIMESTAMP",
    "INT AUTO_INCREMENT UNIQUE", "INT AS (id + 1) VIRTUAL", "INT GENERATED ALWAYS AS (id + 1) STORED",
    "INT DEFAULT 0x414243444546474849", "DECIMAL(38,5) DEFAULT 0xffffffffffffffff",
    "VARCHAR(9) DEFAULT _utf8mb4'日本'", "VARCHAR(9) DEFAULT N'a'", "DATE DEFAULT DATE'2024-01-01'",
    "DOUBLE(7,2) DEFAULT 1.126", "FLOAT(7,2) DEFAULT 1.126", "YEAR DEFAULT '0024'", "VARCHAR(3) DEFAULT 'ab   '",
    "VARCHAR(5) DEFAULT -0", "DOUBLE DEFAULT -0", "DECIMAL(50,10) DEFAULT -0.0", "BINARY(5) DEFAULT ('2024-01-02')",
    "TINYTEXT DEFAULT ''", "DECIMAL DEFAULT _binary'a'", "BIT(3) DEFAULT -1", "BIGINT DEFAULT 0xffffffffffffffff",
    "INT DEFAULT (1 + 1)", "DOUBLE DEFAULT 1e3", "DATE DEFAULT 20240101", "TIME DEFAULT 101112", "YEAR DEFAULT '5'",
    "DOUBLE UNSIGNED DEFAULT '-1.5'", "FLOAT UNSIGNED DEFAULT -1", "DECIMAL(5,2) UNSIGNED DEFAULT '-1.5'",
    "DECIMAL(5,2) DEFAULT 999.995", "TINYINT DEFAULT 128", "INT UNSIGNED DEFAULT '-1'",
]  # fmt: skip
LENIENT = [
    "DATE NOT NULL",
    "DATETIME(2) NOT NULL",
    "DATE DEFAULT '2024-00-00'",
    "DATETIME DEFAULT 0",
]


def adding(
    server: Server, database: str, definitions: list[str], sql_mode: str
) -> list[tuple[str, Any, AlterTable, TableMap, TableMap]]:
    """Executes an ADD COLUMN for each definition. Returns (definition, the value in an existing row, the statement, the
    table maps before and after) of each."""
    log = fresh_log(server)
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET sql_mode = '{sql_mode}'")
        for i, definition in enumerate(definitions):
            cursor.execute(f"CREATE TABLE t{i} (id INT PRIMARY KEY, v INT) CHARACTER SET utf8mb4")
            cursor.execute(f"INSERT INTO t{i} VALUES (1, 1)")
            cursor.execute(f"ALTER TABLE t{i} ADD COLUMN c {definition}")
            cursor.execute(f"UPDATE t{i} SET v = 2")
    found = []
    before: dict[str, TableMap] = {}
    statements: dict[str, AlterTable] = {}
    for part in delivered.changes(delivered_log(server, log)):
        if isinstance(part, Ddl):
            for effect in effects_of(part.statement):
                if isinstance(effect, AlterTable):
                    statements[effect.name[1]] = effect
        elif isinstance(part, TableChanges):
            name = part.table_map.table
            for row in part.batch.to_pylist():
                if row["op"] == "insert":
                    before[name] = part.table_map
                else:
                    value = row["after"]["c"]
                    definition = definitions[int(name[1:])]
                    found.append(
                        (definition, value, statements[name], before[name], part.table_map)
                    )
    assert len(found) == len(definitions)
    return found


@pytest.mark.rotate(2)
@pytest.mark.parametrize("kind", ["mysql97", "mariadb118", "mariadb1011"])
@pytest.mark.parametrize("sql_mode", ["STRICT_TRANS_TABLES", ""])
def test_the_fill_is_the_servers_value(
    kind: str, sql_mode: str, request: pytest.FixtureRequest, new_database: NewDatabase
) -> None:
    server: Server = request.getfixturevalue(kind)
    definitions = KNOWN if sql_mode else KNOWN + LENIENT
    wrong = []
    for definition, value, statement, before, after in adding(
        server, new_database(server), definitions, sql_mode
    ):
        old = Signature.of_table_map(before, InvalidDates.NULL)
        change = change_of(old, statement, InvalidDates.NULL, ())
        if isinstance(change, Recopy):
            wrong.append(f"{definition}: {change.reason}")
            continue
        (column,) = (column for column in change.columns if column.source is None)
        fill: Any = column.fill
        if definition.startswith("FLOAT"):
            fill = pytest.approx(fill, rel=1e-6)
        if fill != value:
            wrong.append(f"{definition}: {value!r} in the log, {fill!r} in the mirror")
        if differs := difference(change.signature, after, InvalidDates.NULL):
            wrong.append(f"{definition}: {differs}")
    assert wrong == []


@pytest.mark.parametrize("definition", UNKNOWN)
def test_values_that_the_statement_does_not_tell(definition: str) -> None:
    (effect,) = effects_of(
        as_logged(f"ALTER TABLE t ADD c {definition}", "db", STRICT_TRANS_TABLES, **UTF8)
    )
    assert isinstance(effect, AlterTable)
    change = change_of(Signature(()), effect, InvalidDates.NULL, ())
    assert isinstance(change, Recopy)
    assert change.reason.startswith("ADD COLUMN c: ")


@pytest.mark.parametrize(
    ("definition", "invalid_dates", "expected"),
    [
        ("DATE NOT NULL", InvalidDates.TEXT, "0000-00-00"),
        ("DATE DEFAULT '2024-02-29'", InvalidDates.TEXT, "2024-02-29"),
        ("DATETIME(2) NOT NULL", InvalidDates.TEXT, "0000-00-00 00:00:00.00"),
        ("DATETIME(2) DEFAULT '2024-02-29'", InvalidDates.TEXT, "2024-02-29 00:00:00.00"),
        ("DATE DEFAULT '2023-02-29'", InvalidDates.NULL, None),
        ("TIMESTAMP NOT NULL DEFAULT 0", InvalidDates.NULL, None),
        ("DATE DEFAULT '0000-00-00'", InvalidDates.TEXT, "0000-00-00"),
        (
            "DATE DEFAULT '2024-00-00'",
            InvalidDates.TEXT,
            Recopy("ADD COLUMN c: sql_mode decides whether its default becomes 0000-00-00"),
        ),
        (
            "DATE NOT NULL",
            InvalidDates.ERROR,
            Recopy("ADD COLUMN c: its default is an invalid date"),
        ),
    ],
)
def test_invalid_dates(definition: str, invalid_dates: InvalidDates, expected: object) -> None:
    (effect,) = effects_of(as_logged(f"ALTER TABLE t ADD c {definition}", "db", **UTF8))
    assert isinstance(effect, AlterTable)
    change = change_of(Signature(()), effect, invalid_dates, ())
    assert (change if isinstance(change, Recopy) else change.columns[0].fill) == expected
