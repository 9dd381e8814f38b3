"""Compares every value of every table in MySQL and Delta: an outer join on the primary key.

MySQL's rows come from SELECT, Delta's rows from its log and files (`delta`); neither uses the code under test. Values
are compared as Python values, which are exact for all types of the demo: integers, Decimal, float (MySQL prints a
DOUBLE with enough digits to identify it), str, bytes, date, and datetime in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from deploy.demo import delta

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the server: its columns in order, and the columns of its primary key."""

    database: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(slots=True)
class Result:
    """Numbers of rows. `missing`: only in MySQL; `extra`: only in Delta, or a second row with the same key."""

    table: Table
    mysql: int = 0
    delta: int = 0
    equal: int = 0
    different: int = 0
    missing: int = 0
    extra: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def fine(self) -> bool:
        return self.equal == self.mysql == self.delta and not self.examples


EXAMPLES_MAX = 3


def compare(table: Table, mysql: Iterable[Row], mirrored: Iterable[Row]) -> Result:
    """Compare the rows of MySQL and Delta. The values of a row are in the order of the table's columns."""
    at = [table.columns.index(name) for name in table.key]
    result = Result(table)
    expected_rows: dict[Row, Row] = {tuple(row[i] for i in at): row for row in mysql}
    result.mysql = len(expected_rows)
    for row in mirrored:
        result.delta += 1
        key = tuple(row[i] for i in at)
        expected = expected_rows.pop(key, None)
        if expected is None:
            result.extra += 1
            _note(result, f"{_shown(table.key, key)} is only in Delta, or twice in Delta")
        elif expected == row:
            result.equal += 1
        else:
            result.different += 1
            _note(result, f"{_shown(table.key, key)}: {_difference(table, expected, row)}")
    result.missing = len(expected_rows)
    for key in list(expected_rows)[:EXAMPLES_MAX]:
        _note(result, f"{_shown(table.key, key)} is only in MySQL")
    return result


def _note(result: Result, text: str) -> None:
    if len(result.examples) < EXAMPLES_MAX:
        result.examples.append(text)


def _shown(names: Sequence[str], values: Row) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, values, strict=True))


def _difference(table: Table, mysql: Row, mirrored: Row) -> str:
    pairs = zip(table.columns, mysql, mirrored, strict=True)
    return "; ".join(
        f"{name} is {_short(left)} in MySQL and {_short(right)} in Delta"
        for name, left, right in pairs
        if left != right
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- MySQL's side --------------------------------------------------------------------------------------------


def tables_of(connection: Connection[Cursor], databases: Sequence[str]) -> list[Table]:
    """All tables of the databases, from the server's information_schema."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_schema, table_name, column_name, column_key = 'PRI' FROM information_schema.columns"
            f" WHERE table_schema IN ({', '.join(['%s'] * len(databases))})"
            " ORDER BY table_schema, table_name, ordinal_position",
            tuple(databases),
        )
        columns: dict[tuple[str, str], list[tuple[str, bool]]] = {}
        for database, name, column, is_key in cursor.fetchall():
            columns.setdefault((str(database), str(name)), []).append((str(column), bool(is_key)))
    return [
        Table(
            *name,
            tuple(column for column, _ in table_columns),
            tuple(column for column, is_key in table_columns if is_key),
        )
        for name, table_columns in columns.items()
    ]


def rows_of_mysql(connection: Connection[Cursor], table: Table) -> list[Row]:
    """Returns all rows of the table. The time zone of the connection must be UTC."""
    columns = ", ".join(f"`{name}`" for name in table.columns)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM `{table.database}`.`{table.name}`")
        return list(cursor.fetchall())


# -- Delta's side --------------------------------------------------------------------------------------------


def rows_of_delta(folder: Path, table: Table) -> list[Row]:
    """The rows of the Delta table. A table that never had a row in MySQL has no Delta table; for this case the list is
    empty.

    A column that is missing in Delta is a difference in each row; an additional column raises UnreadableDelta.
    """
    return rows_of_arrow(delta.read(folder), table) if delta.exists(folder) else []


def rows_of_arrow(data: pa.Table, table: Table) -> list[Row]:
    """The rows of a mirrored table, with the columns in the order of MySQL's table. Raises as `rows_of_delta`."""
    names = [name.lower() for name in data.column_names]
    if unknown := [name for name in data.column_names if name.lower() not in _lower(table.columns)]:
        raise delta.UnreadableDelta(
            f"{table.label} has columns that do not exist in MySQL: {unknown}"
        )
    absent = ["(no such column)"] * data.num_rows
    columns = [
        _python(data.column(names.index(name.lower()))) if name.lower() in names else absent
        for name in table.columns
    ]
    return list(zip(*columns, strict=True))


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def _python(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # MySQL returns timestamps as naive values in UTC.
        return [_utc(value) for value in values]
    return values


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC).replace(tzinfo=None)
