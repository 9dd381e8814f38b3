"""The columns of a mirrored table as its rows have them, and what a statement makes of them. Pure.

The mirror follows an ALTER TABLE by its effect on the signature: `change_of` applies the statement's clauses to the
stored signature, and says how each column of the table afterwards comes from the table before. The next TABLE_MAP
must agree (`difference`), which checks the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.statements import AlterTable

# A value of a Spark column: what every existing row has in an added column.
FillValue = bool | int | float | Decimal | str | bytes | date | datetime


@dataclass(frozen=True, slots=True)
class ColumnSignature:
    """A column. `mysql_type`: as MySQL prints it, such as `int unsigned` or `enum('a','b')`; `charset`: of text, ""
    if it is unknown; `spark_type`: the type's text in Spark SQL, such as `decimal(20,0)`."""

    name: str
    mysql_type: str
    charset: str
    nullable: bool
    spark_type: str


@dataclass(frozen=True, slots=True)
class Signature:
    """The columns of a table in order. `key`: names of the primary key's columns, in its order."""

    columns: tuple[ColumnSignature, ...]
    key: tuple[str, ...] = ()

    @classmethod
    def of_table_map(cls, table_map: TableMap, invalid_dates: InvalidDates) -> Signature:
        """Raises `BinlogError` METADATA_MISSING or UNSUPPORTED_TYPE, naming table and column."""
        raise NotImplementedError

    def to_json(self) -> str:
        raise NotImplementedError

    @classmethod
    def from_json(cls, text: str) -> Signature:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """How a column of the mirrored table afterwards comes from the table before. `source`: the column before, None
    for a new one; `fill`: the value of a new column in existing rows."""

    name: str
    spark_type: str
    source: str | None
    fill: FillValue | None = None
    rewrites: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What follows a statement. `signature`: of the table afterwards; `columns`: one per column of `signature`, in
    its order; `dropped`: columns before that are gone. `is_empty`: the Delta table stays as it is."""

    signature: Signature
    columns: tuple[ColumnSource, ...]
    dropped: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Recopy:
    """Existing rows change in a way that the statement does not tell. `reason`: which clause or column, and why."""

    reason: str


def change_of(
    old: Signature, statement: AlterTable, invalid_dates: InvalidDates
) -> SchemaChange | Recopy:
    """How the mirrored table with the signature `old` follows an ALTER TABLE."""
    raise NotImplementedError


def new_columns(
    old: Signature, new: Signature, statement: AlterTable | None, lsn: int
) -> SchemaChange:
    """The policy `new_column`: a column whose values cannot be followed stays as `<name>__<lsn>`, and a new one,
    NULL in existing rows, has its name. `new`: as the next TABLE_MAP has it, or as predicted."""
    raise NotImplementedError


def difference(signature: Signature, table_map: TableMap, invalid_dates: InvalidDates) -> str:
    """In words, how a TABLE_MAP differs from the signature in what the mirror stores; "" if it does not."""
    raise NotImplementedError
