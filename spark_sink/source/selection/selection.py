"""Selects the rows and statements that a stream gets from the delivered bytes, by the stream's options and schema. Runs
on the executors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.ops import ROW_OPS, Op
from dispatcher.binlog.decode.delivered import Ddl
from dispatcher.binlog.decode.selected import LayoutEvents, LayoutPlan
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.names import folded_name
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.column_choice import ColumnChoice
from spark_sink.source.selection.flat import selected_names, table_fields
from spark_sink.source.selection.projection import (
    LayoutProjection,
    impossible,
    lost_columns,
    other_layout,
)
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.selection.touched import TouchedObjects


class _OpChoice:
    """Applies the option `ops`."""

    def __init__(self, options: SourceOptions) -> None:
        self._ops = options.ops

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        if self._ops is None:
            return np.ones(len(events.lines), dtype=np.bool_)
        chosen = np.array([op in self._ops for op in ROW_OPS])
        mask: NDArray[np.bool_] = chosen[events.operations]
        return mask

    def has_statements(self) -> bool:
        return self._ops is None or Op.DDL in self._ops


class JsonSelection(_OpChoice):
    """Selects rows of any table as JSON, and statements."""

    def __init__(self, options: SourceOptions, expected: pa.Schema) -> None:
        super().__init__(options)
        self._has_images = _image_type(expected) is not None
        self._filter = None if options.tables is None else TableFilter(options.tables)
        self._choice = ColumnChoice(options.columns)
        self._has_key = Metadata.KEY in options.metadata

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        table = table_map.database, table_map.table
        lower_case = table_map.lower_case_table_names
        if self._filter and not self._filter.selects_table(*table, lower_case):
            return None
        table_map.require_names()
        table_map.require_kind()
        names = [column.name for column in table_map.columns]
        chosen = set(self._choice.choose(*table, names, lower_case))
        columns = tuple(i for i, name in enumerate(names) if name in chosen and self._has_images)
        return LayoutPlan(columns, table_map.key if self._has_key else ())

    def selects_statement(self, ddl: Ddl) -> bool:
        if not self.has_statements():
            return False
        if self._filter is None:
            return True
        touched = TouchedObjects.of(ddl.statement)
        return self._filter.selects_statement(touched, ddl.statement.facts.lower_case_table_names)


class TypedSelection(_OpChoice):
    """Selects rows of one table, converted to the types of a schema. For each layout that has occurred, `projections`
    has the projection of the images, and `keys` the projection of the key."""

    def __init__(self, options: SourceOptions, expected: pa.Schema) -> None:
        super().__init__(options)
        assert options.table is not None
        self._options = options
        self._table = options.table
        self._choice = ColumnChoice(options.columns)
        self._fields = image_fields(options, expected)
        key = options.flat_prefix + Metadata.KEY
        self._key = tuple(expected.field(key).type) if Metadata.KEY in options.metadata else ()
        self.projections: dict[str, LayoutProjection] = {}
        self.keys: dict[str, LayoutProjection] = {}

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        lower_case = table_map.lower_case_table_names
        database, table = (folded_name(name, lower_case) for name in self._table)
        if (table_map.database, table_map.table) != (database, table):
            return None
        table_map.require_names()
        table_map.require_kind()
        lost, unfit = self._left_out(table_map), self._unfit(table_map)
        if lost or unfit:
            raise other_layout(table_map.label, lost, unfit)
        layout = table_map.layout
        self.projections[layout] = LayoutProjection.of(table_map, self._fields or ())
        self.keys[layout] = LayoutProjection.of(table_map, self._key)
        columns = self.projections[layout].columns
        return LayoutPlan(columns, self.keys[layout].columns, newest=self._options.flat)

    def selects_statement(self, ddl: Ddl) -> bool:  # noqa: ARG002
        return False

    def _left_out(self, table_map: TableMap) -> list[str]:
        if self._options.project or self._fields is None:
            return []
        names = [column.name for column in table_map.columns]
        lower_case = table_map.lower_case_table_names
        chosen = self._choice.choose(table_map.database, table_map.table, names, lower_case)
        if self._options.flat:
            chosen = selected_names(self._options, chosen)
        return lost_columns(self._fields, chosen)

    def _unfit(self, table_map: TableMap) -> list[str]:
        unique = {field.name: field for field in (*(self._fields or ()), *self._key)}
        return impossible(table_map, list(unique.values()), self._options.invalid_dates)


def image_fields(options: SourceOptions, expected: pa.Schema) -> tuple[pa.Field, ...] | None:
    """Returns the columns of the table that a typed stream has; None if the stream has no image."""
    if options.flat:
        return table_fields(options, expected)
    kind = _image_type(expected)
    return None if kind is None else tuple(kind)


def _image_type(expected: pa.Schema) -> pa.DataType | None:
    """Returns the type of `after`, else of `before`; None if the stream has neither column."""
    found = (expected.field(name).type for name in ("after", "before") if name in expected.names)
    return next(found, None)
