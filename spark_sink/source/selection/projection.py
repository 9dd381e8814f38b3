"""Converts rows of a table's layouts to the columns of a typed stream: the option `schemaChanges`.

Runs on the executors.

A stream has the columns that its table had when the query was started. The log contains rows from before and after an
ALTER TABLE; each row has the layout that the table had when the row was changed. A TABLE_MAP contains no ids of
columns, so this module matches columns by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from dispatcher.binlog.decode.arrow.arrow_types import arrow_type
from dispatcher.binlog.table_map.column_types import Column, InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind

_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT_IN = {  # for each floating-point type: the types whose values it represents exactly
    pa.float32(): (pa.int8(), pa.int16()),
    pa.float64(): (pa.int8(), pa.int16(), pa.int32(), pa.float32()),
}


def is_lossless(source: pa.DataType, target: pa.DataType) -> bool:
    """True if the type `target` represents each value of the type `source` exactly, so that the conversion only widens
    the type."""
    if source == target:
        return True
    if pa.types.is_decimal128(target):
        whole = int(target.precision - target.scale)
        if source in _INTEGER_DIGITS:
            return whole >= _INTEGER_DIGITS[source]
        if pa.types.is_decimal128(source):
            return bool(source.scale <= target.scale and source.precision - source.scale <= whole)
    if source in _INTEGER_DIGITS and target in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[source] < _INTEGER_DIGITS[target]
    if pa.types.is_date32(source):
        return bool(target == pa.timestamp("us"))
    return source in _EXACT_IN.get(target, ())


@dataclass(frozen=True, slots=True)
class LayoutProjection:
    """Converts rows of one layout. `columns`: for the columns that the layout and the stream have in common, their
    indices in the layout, in the stream's order; `fields`: the stream's columns."""

    columns: tuple[int, ...]
    fields: tuple[pa.Field, ...]

    @classmethod
    def of(cls, table_map: TableMap, fields: Sequence[pa.Field]) -> LayoutProjection:
        at = {column.name.casefold(): i for i, column in enumerate(table_map.columns)}
        found = (at.get(field.name.casefold()) for field in fields)
        return cls(tuple(i for i in found if i is not None), tuple(fields))

    def image(self, rows: pa.StructArray) -> pa.StructArray:
        """Returns decoded rows with the stream's columns. A column that the layout does not have is null."""
        kind = pa.struct(self.fields)
        if rows.type == kind:
            return rows
        at = {field.name.casefold(): i for i, field in enumerate(rows.type)}
        children = []
        for field in self.fields:
            i = at.get(field.name.casefold())
            child = pa.nulls(len(rows), field.type) if i is None else rows.field(i)
            children.append(child if child.type == field.type else child.cast(field.type))
        return pa.Array.from_buffers(kind, len(rows), [rows.buffers()[0]], children=children)


def impossible(table_map: TableMap, fields: Sequence[pa.Field], dates: InvalidDates) -> list[str]:
    """Returns a text for each column of the stream whose type cannot hold all values of the column's type in this
    layout."""
    by_name = {column.name.casefold(): column for column in table_map.columns}
    return [
        f"column {field.name!r} is {_type_text(column, dates)}, which does not fit"
        f" {spark_text(field.type)} in all cases"
        for field in fields
        if (column := by_name.get(field.name.casefold())) is not None
        and not is_lossless(arrow_type(column, table_map.label, dates), field.type)
    ]


def lost_columns(fields: Sequence[pa.Field], chosen: Sequence[str]) -> list[str]:
    """Returns a text for each column whose values would be missing in the stream. `chosen`: the columns of the layout
    that the options select."""
    named = {field.name.casefold() for field in fields}
    return [
        f"column {name!r} is not in the stream" for name in chosen if name.casefold() not in named
    ]


def other_layout(table: str, lost: Sequence[str], unfit: Sequence[str]) -> BinlogError:
    """Returns the error for rows of another layout. `lost`, `unfit`: the texts of `lost_columns` and of
    `impossible`."""
    as_json = "read these rows as JSON, with the option tables in place of table and schemaChanges"
    projected = "set the option schemaChanges to project, which leaves out such columns"
    return BinlogError(
        ErrorKind.OTHER_LAYOUT,
        f"rows of {table} do not fit the stream: {'; '.join((*lost, *unfit))}",
        remedy="if the table has these columns in these types now, start the query again: it then has the table's"
        f" present columns; else {as_json if unfit else projected}",
    )


def spark_text(kind: pa.DataType) -> str:
    """Returns a type in Spark's notation."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()


def _type_text(column: Column, dates: InvalidDates) -> str:
    return spark_text(arrow_type(column, "", dates))
