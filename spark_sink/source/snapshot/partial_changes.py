"""Selects the changes that a stream delivers before its snapshot is over. Runs on the executors.

Changes of tables that the snapshot has not begun are not decoded. For the table that is being read, this module decodes
the keys first, because the keys determine which changes concern rows that were already read. A RENAME makes the
snapshot fail, because the snapshot may have missed rows of the renamed table.

With `binlog_row_image=FULL_NODUP`, the image after an UPDATE lacks the columns that have not changed. A reader of the
stream may not know the values of these columns, because the stream omits a row that has changed while its range was
read. So until the snapshot is over, this module takes the missing columns from the image before the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.changes.json_render import absent_masks
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.missing_columns import list_of_names
from dispatcher.binlog.decode.changes.ops import Op
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
from dispatcher.model.errors import BinlogError
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.snapshot.key_order import KeyLimit, are_comparable, key_parts
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
_FULL_IMAGES = (
    "set binlog_row_image to FULL for the server and for all sessions, then begin the snapshot again: start the query"
    " with a new checkpoint, and empty what it has written; or leave these columns out with the option columns"
)


class BegunTables:
    """A selection that omits each table whose changes are not delivered yet."""

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
        parsed = parse_statement(ddl.statement, ROUTING_BOUNDS)
        for name in (name for pair in parsed.renamed for name in pair):
            if self._filter.selects_table(*name, ddl.statement.facts.lower_case_table_names):
                raise snapshot_failure(
                    name, f"a RENAME of it was committed before all rows were read (seq {ddl.seq})"
                )
        return self._selection.selects_statement(ddl)


class KeysOfTable:
    """Selects one table, and of this table the key columns, by their names."""

    def __init__(self, table: TableName, key: Sequence[KeyPart]) -> None:
        self._table, self._key = table, tuple(key)
        self._names = [part.name.casefold() for part in key]

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        return np.ones(len(events.lines), dtype=np.bool_)

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        if (table_map.database, table_map.table) != self._table:
            return None
        table_map.require_names()
        at = {column.name.casefold(): i for i, column in enumerate(table_map.columns)}
        if any(name not in at for name in self._names):
            raise snapshot_failure(self._table, "its key was changed while its rows were read")
        columns = tuple(at[name] for name in self._names)
        logged = key_parts([table_map.columns[i] for i in columns])
        if not are_comparable(logged, self._key):
            raise snapshot_failure(
                self._table, "the type of its key was changed while its rows were read"
            )
        return LayoutPlan(columns)

    def selects_statement(self, ddl: Ddl) -> bool:  # noqa: ARG002
        return False


def decoded_keys(
    data: memoryview | bytes, table: TableName, key: Sequence[KeyPart], dates: InvalidDates
) -> Iterator[tuple[pa.RecordBatch, list[Key | None], list[Key | None]]]:
    """Yields the changes of a table in batches, with the keys of their `before` and `after` images. A key is None if
    the change has no such image. `dates`: how invalid dates are converted. If the `after` image lacks a column of the
    key, the value is that of the `before` image. Raises `BinlogError` UNSUPPORTED_CHANGE if no image has it."""
    selection = KeysOfTable(table, key)
    if not data:
        return
    for item in selected_changes(data, selection, invalid_dates=dates):
        assert isinstance(item, SelectedRows)
        before, after = (_keys(item.batch.column(name)) for name in ("before", "after"))
        yield item.batch, *_whole_keys(item.batch, table, before, after)


def _keys(images: pa.StructArray) -> list[Key | None]:
    columns = [images.field(i).to_pylist() for i in range(images.type.num_fields)]
    valid = images.is_valid().to_pylist()
    rows = zip(*columns, strict=True)
    return [row if present else None for present, row in zip(valid, rows, strict=True)]


def _whole_keys(
    batch: pa.RecordBatch, table: TableName, before: list[Key | None], after: list[Key | None]
) -> tuple[list[Key | None], list[Key | None]]:
    """Returns the keys of the images. If the `after` image of an UPDATE lacks key columns, takes them from the `before`
    image."""
    absent = [batch.column(name) for name in ("before_absent", "after_absent")]
    if all(map(_none_is_absent, absent)):
        return before, after
    names = [field.name for field in batch.column("after").type]
    lacking_before, lacking_after = (lists.to_pylist() for lists in absent)
    for i in range(len(before)):
        lost = [name for name in names if name in (lacking_before[i] or ())]
        new, old = after[i], before[i]
        if not lost and new is not None and lacking_after[i]:
            lost = [n for n in names if n in lacking_after[i] and old is None]
            if old is not None:
                values = zip(names, old, new, strict=True)
                after[i] = tuple(a if n in lacking_after[i] else b for n, a, b in values)
        if lost:
            raise incomplete_image(table, lost)
    return before, after


def lacking_columns(batch: pa.RecordBatch) -> list[frozenset[str]]:
    """Returns, for each change, the names of the columns whose values after the change are not in the log."""
    lists = [batch.column(name) for name in ("before_absent", "after_absent")]
    if _none_is_absent(lists[1]):
        return [frozenset()] * batch.num_rows
    absent = [each.to_pylist() for each in lists]
    inserted = batch.column("before").is_null().to_pylist()
    return [
        frozenset(after or ()) & frozenset(after or () if is_inserted else before or ())
        for before, after, is_inserted in zip(*absent, inserted, strict=True)
    ]


def _none_is_absent(lists: pa.ListArray) -> bool:
    """True if no image of the batch lacks a column. `lists`: `before_absent` or `after_absent`."""
    return bool(lists.null_count == len(lists))


def incomplete_image(table: TableName, lost: Sequence[str]) -> BinlogError:
    """Returns the error for a change of a row whose columns `lost` would be missing in the stream."""
    names = ", ".join(map(repr, lost))
    error = snapshot_failure(
        table, f"a change does not hold the whole row: column {names} is missing"
    )
    return BinlogError(error.kind, error.what, remedy=_FULL_IMAGES)


@dataclass(frozen=True, slots=True)
class _PartialChange:
    """A change that the stream delivers only in part, or not at all. `key`: the key in the `after` image; None without
    such an image."""

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
    for change in changes:
        if not isinstance(change, SelectedRows):
            yield change
            continue
        item = _with_whole_images(change)
        if not partial or _name(item) != state.table:
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


def _with_whole_images(item: SelectedRows) -> SelectedRows:
    """Returns rows with the columns that the image after an UPDATE lacks and the image before it has."""
    batch = item.batch
    missing = absent_masks(batch.column("after_absent"))
    if not missing:
        return item
    known = {name: ~mask for name, mask in absent_masks(batch.column("before_absent")).items()}
    updated = pc.equal(batch.column("op"), Op.UPDATE.value).to_numpy(zero_copy_only=False)
    before, after = batch.column("before"), batch.column("after")
    children = []
    for i, field in enumerate(after.type):
        child = after.field(i)
        if (absent := missing.get(field.name)) is not None:
            taken = pa.array(absent & updated & known.get(field.name, True))
            child = pc.if_else(taken, before.field(i), child)
        children.append(child)
    columns = {"after_absent": _lacking_lists(batch)}
    if children:
        columns["after"] = pa.StructArray.from_arrays(
            children, fields=list(after.type), mask=after.is_null()
        )
    for name, values in columns.items():
        i = batch.schema.get_field_index(name)
        batch = batch.set_column(i, batch.schema.field(i), values)
    return replace(item, batch=batch)


def _lacking_lists(batch: pa.RecordBatch) -> pa.Array:
    """Returns `after_absent` of rows whose images after an UPDATE are completed."""
    lists: list[list[str] | None] = []
    for names, lost in zip(
        batch.column("after_absent").to_pylist(), lacking_columns(batch), strict=True
    ):
        lists.append([name for name in names if name in lost] or None if names else None)
    return list_of_names(lists)


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
    _require_whole_inserts(item, batch, kept)
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


def _require_whole_inserts(
    item: SelectedRows, batch: pa.RecordBatch, changes: Sequence[_PartialChange | None]
) -> None:
    """Raise `BinlogError` if an UPDATE that is delivered as an INSERT lacks columns: the stream would never deliver the
    values of these columns."""
    absent = batch.column("after_absent")
    if _none_is_absent(absent):
        return
    selected = [field.name for field in batch.column("after").type]
    for names, change in zip(absent.to_pylist(), changes, strict=True):
        is_insert = change is not None and change.part is DeliveredPart.INSERT
        if is_insert and (lost := [name for name in selected if name in (names or ())]):
            raise incomplete_image(_name(item), lost)


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
