"""Definitions of columns to add, each type with each default; and the values that a server gives them in existing
rows."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pymysql

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log
from tests.support.statements import UTF8, as_logged

TYPES = [
    *("TINYINT", "TINYINT UNSIGNED", "BOOL", "SMALLINT", "MEDIUMINT", "INT", "INT(3) ZEROFILL", "INT UNSIGNED"),
    *("BIGINT", "BIGINT UNSIGNED", "DECIMAL", "DECIMAL(5,2)", "DECIMAL(5,2) UNSIGNED", "DECIMAL(10,0)"),
    *("DECIMAL(38,5)", "DECIMAL(40,3)", "DECIMAL(50,10)", "FLOAT", "FLOAT(20)", "FLOAT(7,2)", "DOUBLE", "DOUBLE(7,2)"),
    *("DOUBLE UNSIGNED", "REAL", "BIT", "BIT(3)", "BIT(12)", "BIT(64)", "YEAR", "YEAR(4)", "DATE", "DATETIME"),
    *("DATETIME(3)", "DATETIME(6)", "TIME", "TIME(2)", "TIMESTAMP", "CHAR(1)", "CHAR(5)", "CHAR(20)"),
    *("CHAR(9) CHARACTER SET latin1", "CHAR(9) COLLATE utf8mb4_bin", "CHAR(9) CHARACTER SET binary", "VARCHAR(1)"),
    *("VARCHAR(3)", "VARCHAR(5)", "VARCHAR(20)", "VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb3"),
    *("VARCHAR(9) CHARACTER SET ucs2", "VARCHAR(9) CHARACTER SET utf8mb4", "NCHAR(5)", "VARCHAR(5) BINARY"),
    *("BINARY(1)", "BINARY(5)", "BINARY(20)", "VARBINARY(3)", "VARBINARY(20)", "TINYTEXT", "TEXT", "LONGTEXT"),
    *("TINYBLOB", "BLOB", "JSON", "ENUM('a','B','5','')", "ENUM('ab ','-0','x')", "SET('a','B','5')"),
    *("ENUM('é','日')", "SET('x','Y') CHARACTER SET latin1"),
]  # fmt: skip
NUMBERS = [
    *("0", "1", "-1", "5", "12", "+7", "007", "127", "128", "255", "300", "32768", "2147483647", "1999"),
    *("2155", "2156", "24", "70", "9223372036854775807", "18446744073709551615", "123456789012345678"),
    *("99999999999999999999",),
    *("-0", "+0", "- 1", "--1", "-+1", "0.0", "-0.0", "1.5", "-2.5", "0.5", "-0.5", "-0.4", "2.50", "1.005", "1.126"),
    *("0.1", ".5", "-.5", "5.", "0.10", "1.0", "123.456", "999.999", "999.994", "-999.995", "0.000001", "1e3", "1E-3"),
    *("1.5e2", "-0e0", "1e40", "16777217", "9007199254740993", "0.1234567890123456789", "3.4028235", "20240101"),
    *("101112", "20240101101112", "TRUE", "FALSE", "0x41", "0x", "0x00", "0x4142", "0xFF", "0xffffffffffffffff"),
    *("x'41'", "X'00ff'", "x''", "b'101'", "B'1'", "0b11", "b''", "x'E9'"),
]  # fmt: skip
TEXTS = [
    *("", " ", "  ", "a", "A", "b", "B", "a ", " a", "ab", "ab ", "ab   ", "abc", "abcdef", "abc  ", "a,B", "B,a"),
    *("a,a", "a,", ",a", "x", "X", "x,Y", "Y,x", "y,x", "5", "-0", "-0.0", "+5", " 5", "5 ", "05", "0", "00", "1.5"),
    *("-1.5", "1.50", "-2.5", "1e3", "12abc", "24", "0024", "0000", "1999", "70", "2155", "2156", "99", "2024"),
    *("2024-01-02", "2024-1-2", "24-01-02", "20240102", "2024-02-31", "2024-00-00", "0000-00-00", "0000-01-01"),
    *("2024-01-02 10:11:12", "2024-01-02T10:11:12", "2024-01-02 10:11:12.5", "2024-01-02 10:11:12.123456"),
    *("2024-01-02 10:11:12.1234567", "2024-01-02 24:00:00", "2024-01-02 10:11", "2024-01-02 10:11:12+00:00"),
    *("0000-00-00 00:00:00", "1000-01-01", "9999-12-31 23:59:59.999999", "2024/01/02", "2024-01-02 "),
    *("10:11:12", "-10:11:12", "-00:00:00", "838:59:59", "839:00:00", "10:60:00", "10:11:12.5", "10:11:12.567"),
    *("101112", "10:11", "1 10:11:12", "é", "éé", "日本", "\U0001f600", "ab é", "ß", "it''s", "\\'q", "\\\\", "\\n"),
    *("\\%", "\\_", "\\0", "a\\0", "\\Z", '"', "{}", "[1]", "null", "1", "true", "'' ''", "x" * 20),
    *("x" * 21, "x" * 256),
]  # fmt: skip
OTHERS = [
    *("NULL", "'a' 'b'", '"ab"', "N'ab'", "n'ab '", "_utf8mb4'ab'", "_latin1'ab'", "_latin1 x'E9'", "_binary'a'"),
    *("_binary'ab '", "_utf8mb4'日'", "DATE'2024-01-02'", "TIME'10:11:12'", "TIMESTAMP'2024-01-02 10:11:12'"),
    *("(1)", "(-0)", "('ab ')", "('2024-01-02')", "(x'41')", "(NULL)", "(1.5)", "('')", "(_binary'a')", "(1 + 1)"),
    *("(UUID())", "CURRENT_TIMESTAMP", "NOW()", "(TRUE)", "((5))", "('5')", "(0x41)"),
]  # fmt: skip
DEFAULTS = [None, *NUMBERS, *(f"'{text}'" for text in TEXTS), *OTHERS]
NULLS = ["", " NOT NULL", " NULL"]


@dataclass(frozen=True, slots=True)
class Form:
    """A definition of a column to add, with the session's sql_mode and the table's character set."""

    definition: str
    sql_mode: str = "STRICT_TRANS_TABLES"
    charset: str = "utf8mb4"


def all_forms() -> list[Form]:
    """Each type with each default and NULL clause. Each form gets the next of five pairs of sql_mode and charset."""
    settings = itertools.cycle(
        (
            ("STRICT_TRANS_TABLES", "utf8mb4"),
            ("", "latin1"),
            ("", "utf8mb4"),
            ("STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "latin1"),
            ("ALLOW_INVALID_DATES,NO_ZERO_DATE,NO_ZERO_IN_DATE", "utf8mb4"),
        )
    )
    combined = itertools.product(DEFAULTS, TYPES, NULLS)
    return [Form(_definition(*form), *next(settings)) for form in combined]


def _definition(default: str | None, kind: str, null: str) -> str:
    return kind + null + ("" if default is None else f" DEFAULT {default}")


@dataclass(frozen=True, slots=True)
class Predicted:
    """A form that the mirror accepts, and the value that it computes."""

    form: Form
    value: Any
    spark_type: str


# Bits of sql_mode in the log.
_BITS = {
    "STRICT_TRANS_TABLES": STRICT_TRANS_TABLES,
    "NO_BACKSLASH_ESCAPES": 1 << 20,
    "ANSI_QUOTES": 1 << 2,
    "ALLOW_INVALID_DATES": 1 << 25,
}  # fmt: skip


def predicted(form: Form) -> Predicted | None:
    """Returns the value that the mirror computes; None if it needs a copy of the table."""
    sql_mode = sum(_BITS.get(mode, 0) for mode in form.sql_mode.split(","))
    try:
        (effect,) = effects_of(
            as_logged(f"ALTER TABLE t ADD COLUMN c {form.definition}", "db", sql_mode, **UTF8)
        )
    except BinlogError:
        return None
    assert isinstance(effect, AlterTable)
    change = change_of(Signature(()), effect, InvalidDates.TEXT, ())
    if isinstance(change, Recopy):
        return None
    (column,) = change.columns
    return Predicted(form, column.fill, column.spark_type)


def differences(
    server: Server, database: str, accepted: Sequence[Predicted]
) -> tuple[int, list[str]]:
    """Adds columns to a table that has one row. Returns the number of forms that the server accepts, and the forms for
    which the mirror computes another value than the row has."""
    added: dict[tuple[str, str], Predicted] = {}
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        tables = (f"t{i}" for i in itertools.count())
        by_settings = sorted(accepted, key=lambda one: (one.form.sql_mode, one.form.charset))
        for key, group in itertools.groupby(
            by_settings, key=lambda one: (one.form.sql_mode, one.form.charset)
        ):
            cursor.execute(f"SET sql_mode = '{key[0]}'")
            for some in _batched(group):
                _add_columns(cursor, tables, some, added)
    # The image of a deleted row has all values. The server checks no constraints for a DELETE, unlike for an UPDATE.
    log = fresh_log(server)
    server.execute(
        *(f"DELETE FROM {table}" for table in {table for table, _ in added}), database=database
    )
    wrong, seen = [], 0
    definitions = table_definitions(server, database)
    data = delivered_log(server, log)
    for part in delivered.changes(data, definitions, invalid_dates=InvalidDates.TEXT):
        if not isinstance(part, TableChanges):
            continue
        for row in part.batch.to_pylist():
            if row["op"] != "delete":
                continue
            for name, value in row["before"].items():
                if (one := added.pop((part.table_map.table, name), None)) is None:
                    continue
                seen += 1
                if not same(one, value):
                    wrong.append(
                        f"{one.form}: {value!r} at the server, {one.value!r} in the mirror"
                    )
    assert not added
    return seen, wrong


def _batched(group: Iterator[Predicted]) -> Iterator[list[Predicted]]:
    while some := list(itertools.islice(group, 25)):
        yield some


def _add_columns(
    cursor: pymysql.cursors.Cursor,
    tables: Iterator[str],
    some: Sequence[Predicted],
    added: dict[tuple[str, str], Predicted],
) -> None:
    table = next(tables)
    cursor.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT) CHARACTER SET {some[0].form.charset}"
    )
    cursor.execute(f"INSERT INTO {table} VALUES (1, 1)")
    for i, one in enumerate(some):
        try:
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN c{i} {one.form.definition}")
        except pymysql.MySQLError:
            continue  # the server refuses this definition, so no log contains it
        added[table, f"c{i}"] = one


def table_definitions(server: Server, database: str) -> dict[str, dict[str, Any]]:
    """Returns the definitions of a database's tables, for a server that logs no column names."""
    found = server.execute(
        "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME"
        f" FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{database}' ORDER BY ORDINAL_POSITION"
    )
    definitions: dict[str, dict[str, Any]] = {}
    for table, name, kind, nullable, charset in found:
        label = f"{database}.{table}"
        empty = {"database": database, "table": table, "columns": [], "key": [], "primary": []}
        definitions.setdefault(label, empty)["columns"].append(
            {"name": name, "mysql_type": kind, "nullable": nullable == "YES", "charset": charset}
        )
    return definitions


def same(one: Predicted, value: Any) -> bool:
    fill = one.value
    if one.spark_type == "float" and isinstance(fill, float):
        fill = struct.unpack("f", struct.pack("f", fill))[0]
    if isinstance(fill, float) and isinstance(value, float):
        return struct.pack("d", fill) == struct.pack("d", value)
    if isinstance(fill, Decimal) and isinstance(value, Decimal):
        return fill.as_tuple() == value.as_tuple()
    if one.spark_type == "decimal(20,0)" and isinstance(fill, int):
        fill = Decimal(fill)
    return type(fill) is type(value) and bool(fill == value)
