"""Selects the changes that a stream delivers before its snapshot is over. Runs on the executors.

Changes of tables that the snapshot has not begun are not decoded. For the table that is being read, the module decodes
the keys first: they determine which changes concern rows that were already read. A RENAME makes the snapshot fail,
because the snapshot may have missed rows of the renamed table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.delivered import Ddl
from dispatcher.binlog.decode.selected import (
    LayoutEvents,
    LayoutPlan,
    SelectedDdl,
    SelectedRows,
    Selection,
    selected_changes,
)
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.snapshot.key_order import KeyLimit
from spark_sink.source.snapshot.rules import (
    DeliveredPart,
    Delivers,
    KeyPart,
    SnapshotState,
    TableName,
    delivered,
    delivered_part,
    snapshot_failure,
)
from spark_sink.source.snapshot.selected_tables import selected_tables

Key = tuple[Any, ...]


class BegunTables:
    """A selection that omits each table of which no change is delivered."""

    def __init__(self, selection: Selection, options: SourceOptions, state: SnapshotState) -> None:
        self._selection, self._state = selection, state
        self._filter = TableFilter(selected_tables(options))

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        return self._selection.chosen_events(events)

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        if delivered(self._state, (table_map.database, table_map.table)) is Delivers.NONE:
            return None
        return self._selection.layout_plan(table_map)

    def selects_statement(self, ddl: Ddl) -> bool:
        parsed = parse_statement(ddl.query, ddl.database, ddl.sql_mode, ROUTING_BOUNDS)
        for name in (name for pair in parsed.renamed for name in pair):
            if self._filter.selects_table(*name):
                raise snapshot_failure(
                    name, f"a RENAME of it was committed before all rows were read (seq {ddl.seq})"
                )
        return self._selection.selects_statement(ddl)


class KeysOfTable:
    """Selects the columns of a key, by name, of one table."""

    def __init__(self, table: TableName, key: Sequence[KeyPart]) -> None:
        self._table, self._names = table, [part.name.casefold() for part in key]

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        return np.ones(len(events.lines), dtype=np.bool_)

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        if (table_map.database, table_map.table) != self._table:
            return None
        table_map.require_names()
        at = {column.name.casefold(): i for i, column in enumerate(table_map.columns)}
        if any(name not in at for name in self._names):
            raise snapshot_failure(self._table, "its key was changed while its rows were read")
        return LayoutPlan(tuple(at[name] for name in self._names))

    def selects_statement(self, ddl: Ddl) -> bool:  # noqa: ARG002
        return False


def decoded_keys(
    data: memoryview | bytes, table: TableName, key: Sequence[KeyPart], dates: InvalidDates
) -> Iterator[tuple[pa.RecordBatch, list[Key | None], list[Key | None]]]:
    """Yields the changes of a table in batches, with the keys of their `before` and `after` images. A key is None if
    the change has no such image. `dates`: how invalid dates are converted."""
    selection = KeysOfTable(table, key)
    if not data:
        return
    for item in selected_changes(data, selection, invalid_dates=dates):
        assert isinstance(item, SelectedRows)
        yield item.batch, _keys(item.batch.column("before")), _keys(item.batch.column("after"))


def _keys(images: pa.StructArray) -> list[Key | None]:
    columns = [images.field(i).to_pylist() for i in range(images.type.num_fields)]
    valid = images.is_valid().to_pylist()
    rows = zip(*columns, strict=True)
    return [row if present else None for present, row in zip(valid, rows, strict=True)]


@dataclass(frozen=True, slots=True)
class _PartialChange:
    """A change of which the stream delivers a part or nothing. `key`: the key in the `after` image; None without such
    an image."""

    part: DeliveredPart
    key: Key | None


def changes_of_read_rows(
    changes: Iterator[SelectedRows | SelectedDdl],
    data: memoryview | bytes,
    state: SnapshotState,
) -> Iterator[SelectedRows | SelectedDdl]:
    """Yields the changes that a batch delivers. `state`: the state at the end of the batch; `data`: the bytes of
    `changes`."""
    partial = _partial_changes(data, state)
    for item in changes:
        if not isinstance(item, SelectedRows) or not partial or _name(item) != state.table:
            yield item
            continue
        rows = _delivered_rows(item, partial, [part.name for part in state.key])
        if rows.batch.num_rows:
            yield rows


def _name(rows: SelectedRows) -> TableName:
    return rows.table_map.database, rows.table_map.table


def _partial_changes(
    data: memoryview | bytes, state: SnapshotState
) -> Mapping[tuple[int, int, int], _PartialChange]:
    """Returns the changes that are not delivered as a whole, by epoch, seq and ordinal."""
    if state.table is None:
        return {}
    bound = delivered(state, state.table)
    if isinstance(bound, Delivers):
        return {}
    limit = KeyLimit(state.key, bound)
    partial = {}
    for batch, before, after in decoded_keys(data, state.table, state.key, InvalidDates.TEXT):
        places = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
        for place, *keys in zip(places, before, after, strict=True):
            sides = [None if key is None else limit.includes(key) for key in keys]
            part = delivered_part(*sides)
            if part is not DeliveredPart.WHOLE:
                partial[place] = _PartialChange(part, keys[1])
    return partial


_PLACE = ("epoch", "seq", "ordinal")


def _delivered_rows(
    item: SelectedRows,
    partial: Mapping[tuple[int, int, int], _PartialChange],
    key_names: Sequence[str],
) -> SelectedRows:
    places = zip(*(item.batch.column(name).to_pylist() for name in _PLACE), strict=True)
    found = [partial.get(place) for place in places]
    keep = [change is None or change.part is not DeliveredPart.NOTHING for change in found]
    kept = [change for change, is_kept in zip(found, keep, strict=True) if is_kept]
    mask = pa.array(keep, pa.bool_())
    batch = item.batch.filter(mask)
    metadata = {name: values.filter(mask) for name, values in item.metadata.items()}
    for part, op, lost in (
        (DeliveredPart.DELETE, "delete", "after"),
        (DeliveredPart.INSERT, "insert", "before"),
    ):
        chosen = pa.array([c is not None and c.part is part for c in kept], pa.bool_())
        if not pc.any(chosen).as_py():
            continue
        batch = _replaced(batch, "op", chosen, pa.scalar(op, pa.string()))
        for name in (lost, f"{lost}_absent"):
            batch = _replaced(batch, name, chosen, pa.scalar(None, batch.schema.field(name).type))
        if Metadata.CHANGED in metadata:
            names = metadata[Metadata.CHANGED]
            metadata[Metadata.CHANGED] = pc.if_else(chosen, pa.scalar(None, names.type), names)
    if Metadata.KEY in metadata:
        metadata[Metadata.KEY] = _inserted_keys(metadata[Metadata.KEY], kept, key_names)
    return replace(item, batch=batch, metadata=metadata)


def _replaced(
    batch: pa.RecordBatch, name: str, chosen: pa.Array, value: pa.Scalar
) -> pa.RecordBatch:
    i = batch.schema.get_field_index(name)
    values = pc.if_else(chosen, value, batch.column(i))
    return batch.set_column(i, batch.schema.field(i), values)


def _inserted_keys(
    keys: pa.StructArray, changes: Sequence[_PartialChange | None], names: Sequence[str]
) -> pa.StructArray:
    """Returns the keys of changes. An UPDATE that is delivered as an INSERT has the key of its `after` image."""
    if not any(change and change.part is DeliveredPart.INSERT for change in changes):
        return keys
    by_name = [name.casefold() for name in names]
    values = keys.to_pylist()
    for i, change in enumerate(changes):
        if change is not None and change.part is DeliveredPart.INSERT and change.key is not None:
            new = dict(zip(by_name, change.key, strict=True))
            values[i] = {field.name: new[field.name.casefold()] for field in keys.type}
    return pa.array(values, keys.type)
