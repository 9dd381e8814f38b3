"""Reduces decoded changes to the last event of each key. A MERGE needs only these events, so workers return only them.

An event writes or removes the row with one key. An insert or update writes a row under the key of its after-image. A
delete removes the row under the key of its before-image. An update that changes the key makes two events: first the
removal, then the write. The last of all events of one key determines the row in the Delta table.

Texts in keys are compared byte by byte, which is stricter than a column's collation. If an update changes only the
spelling of a key, so that both spellings are equal in MySQL, there are still two events: one removes the row with the
old spelling, one writes the row with the new spelling. Both are correct, because the log contains both images of the
change in full. Numbers are compared as the servers and Spark compare them: -0.0 and 0.0 are one key. So the keys of
events contain 0.0 for both, while the rows keep the sign.

For a table without a key, `row_counts_of` counts whole rows: +1 for each after-image, -1 for each before-image. The
step applies the sum for each distinct row. Sums do not depend on the order of changes.

Pure functions on Arrow columns. They run in the driver for small steps, and in `mapInArrow` for large steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies

# The columns of a change that are copied to its events, for the metadata columns of the table.
META = ("seq", "gtid", "committed_at")


@dataclass(frozen=True, slots=True)
class EventForm:
    """The form of a table's events.

    `row`: type of the table's rows; `key`: names of its key columns; `keep_deleted`: True if the `row` of an event that
    removes a row is the row's before-image instead of NULL.
    """

    row: pa.StructType
    key: tuple[str, ...]
    keep_deleted: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns `key`, `row`, `deleted`, `order` (a number that grows from event to event in one `LastEvents`),
        and `META`."""
        return pa.schema(
            [
                pa.field("key", pa.struct([self.row.field(name) for name in self.key])),
                pa.field("row", self.row),
                pa.field("deleted", pa.bool_()),
                pa.field("order", pa.int64()),
                pa.field("seq", pa.int64()),
                pa.field("gtid", pa.string()),
                pa.field("committed_at", pa.timestamp("us", "UTC")),
            ]
        )


def event_form(changes: pa.Schema, key: Sequence[str], *, keep_deleted: bool = False) -> EventForm:
    """Returns the `EventForm` for changes with the Arrow schema `changes`."""
    return EventForm(changes.field("after").type, tuple(key), keep_deleted)


@dataclass(slots=True)
class LastEvents:
    """Keeps the last event of each key of the changes that are added, in stream order.

    The object needs memory for the last event of each key, and for the events of one batch. `changes`: how many changes
    were added.
    """

    form: EventForm
    changes: int = 0
    _kept: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _compacted: int = 0

    def add(self, changes: pa.RecordBatch) -> None:
        """Add changes. Raises `BinlogError` ROW_IMAGE for incomplete images, INVALID_VALUE for a key that is NULL."""
        changes = chosen_columns(changes, self.form.row)
        require_columns(changes, self.form.key, whole_before=self.form.keep_deleted)
        events = _last_of_batch(changes, self.form, self.changes)
        self.changes += changes.num_rows
        if events.num_rows:
            self._kept.append(events)
            self._rows += events.num_rows
        if len(self._kept) > 1 and self._rows > 2 * self._compacted + (1 << 16):
            self._compact()

    def table(self) -> pa.Table:
        """Returns the last event of each key, in stream order."""
        if not self._kept:
            return self.form.schema.empty_table()
        self._compact()
        return self._kept[0]

    def _compact(self) -> None:
        if len(self._kept) > 1:
            joined = pa.concat_tables(self._kept)
            last = _last_of_each(_columns(joined.column("key")), joined.column("order"))
            self._kept = [joined.take(last)]
        self._rows = self._compacted = self._kept[0].num_rows


def last_events(batches: Iterable[pa.RecordBatch], form: EventForm) -> pa.Table:
    """Returns the last event of each key of all batches, which are in stream order."""
    events = LastEvents(form)
    for batch in batches:
        events.add(batch)
    return events.table()


def chosen_columns(changes: pa.RecordBatch, row: pa.StructType) -> pa.RecordBatch:
    """Returns the changes with only the columns of `row`, both in the images and in the lists of missing columns.

    `changes`: the images contain the columns of `row`, and the columns that the mirrored table leaves out.
    """
    if changes.schema.field("after").type.num_fields == row.num_fields:
        return changes
    names = [column.name for column in row]
    for which in ("before", "after"):
        image, absent = changes.column(which), changes.column(f"{which}_absent")
        fields = [pc.struct_field(image, name) for name in names]
        kept = pa.StructArray.from_arrays(fields, fields=list(row), mask=image.is_null())
        changes = _replaced(changes, which, kept)
        if absent.null_count < len(absent):
            lists = [[n for n in each or () if n in names] or None for each in absent.to_pylist()]
            changes = _replaced(changes, f"{which}_absent", pa.array(lists, absent.type))
    return changes


def _replaced(changes: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    i = changes.schema.get_field_index(name)
    return changes.set_column(i, changes.schema.field(i).with_type(column.type), column)


_WHOLE_IMAGES = (
    "if the server leaves these columns out because they are generated, as MariaDB 11.8 does, name them in omit_columns"
    " of the table's policy in the settings of the mirror and restart it; else set binlog_row_image=FULL on the server"
    " and for every session"
)


def require_columns(
    changes: pa.RecordBatch, key: Sequence[str], *, whole_before: bool = False
) -> None:
    """Raises `BinlogError` ROW_IMAGE if the images do not show the row to write, or the row to remove: if an
    after-image lacks a column, or if a before-image lacks a column of the key. With `whole_before`, a before-image must
    not lack any column.
    """
    before, after = changes.column("before_absent"), changes.column("after_absent")
    incomplete = after.is_valid()
    if before.null_count < len(before):
        if whole_before:
            incomplete = pc.or_(incomplete, before.is_valid())
        else:
            absent = [bool(set(names or ()) & set(key)) for names in before.to_pylist()]
            incomplete = pc.or_(incomplete, pa.array(absent, pa.bool_()))
    if not pc.any(incomplete).as_py():
        return
    row = pc.index(incomplete, True).as_py()
    lacking = dict.fromkeys((*(after[row].as_py() or ()), *(before[row].as_py() or ())))
    label = ".".join(changes.column(name)[row].as_py() for name in ("database", "table"))
    raise BinlogError(
        ErrorKind.ROW_IMAGE,
        f"rows of table {label} do not hold the columns {', '.join(lacking)}, so the mirrored row is not known",
        where=f"seq {changes.column('seq')[row].as_py()}",
        remedy=remedies.of_copy_again(label, _WHOLE_IMAGES),
    )


def row_counts_of(changes: pa.RecordBatch, row: pa.StructType) -> pa.Table:
    """Returns (`row`, `count`): each image of a change, with +1 for an after-image and -1 for a before-image. `row`:
    see `chosen_columns`.

    Raises `BinlogError` ROW_IMAGE if an image lacks a column.
    """
    changes = chosen_columns(changes, row)
    require_columns(changes, (), whole_before=True)
    tables = []
    for image, count in (("after", 1), ("before", -1)):
        rows = changes.column(image)
        rows = rows.filter(rows.is_valid())
        counts = pa.array(np.full(len(rows), count, np.int64))
        tables.append(pa.table({"row": rows, "count": counts}))
    return pa.concat_tables(tables).combine_chunks()


def event_keys(
    changes: pa.RecordBatch, key: Sequence[str], writes: np.ndarray, removals: np.ndarray
) -> list[pa.Array]:
    """Returns the key columns of the rows that changes write, followed by the key columns of the rows that changes
    remove, with 0.0 in place of -0.0. `writes`, `removals`: indices of changes with an after-image and with a
    before-image."""
    images = ((changes.column("after"), writes), (changes.column("before"), removals))
    return [
        pa.concat_arrays(
            [
                _without_negative_zero(pc.struct_field(image, name)).take(pa.array(chosen))
                for image, chosen in images
            ]
        )
        for name in key
    ]


def _without_negative_zero(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0 (IEEE 754)


def _last_of_batch(changes: pa.RecordBatch, form: EventForm, base: int) -> pa.Table:
    op, before, after = (changes.column(name) for name in ("op", "before", "after"))
    deletes = pc.equal(op, "delete")
    removes = deletes
    if pc.any(pc.equal(op, "update")).as_py():
        removes = pc.or_(deletes, pc.and_(pc.equal(op, "update"), _differ(before, after, form.key)))
    writes = np.flatnonzero(pc.invert(deletes).to_numpy(zero_copy_only=False))
    removals = np.flatnonzero(removes.to_numpy(zero_copy_only=False))
    # The order of an event is twice the number of its change, plus one if the event writes a row.
    order = np.concatenate((writes * 2 + 1, removals * 2))
    keys = event_keys(changes, form.key, writes, removals)
    for name, values in zip(form.key, keys, strict=True):
        if values.null_count:
            raise _null_key(changes, name)
    last = _last_of_each(keys, pa.array(order)).to_numpy()
    chosen, written = order[last] // 2, order[last] % 2 == 1
    images = pa.chunked_array([after, before])
    if form.keep_deleted:
        at = pa.array(np.where(written, chosen, chosen + len(after)))
    else:
        at = pa.array(chosen, mask=~written)
    schema = form.schema
    key_type = schema.field("key").type
    columns = [
        pa.StructArray.from_arrays(
            [values.take(pa.array(last)) for values in keys], fields=list(key_type)
        )
        if form.key
        else pa.nulls(len(last), key_type),
        images.take(at),
        pa.array(~written),
        pa.array(order[last] + 2 * base),
        *(
            changes.column(name).take(pa.array(chosen)).cast(schema.field(name).type)
            for name in META
        ),
    ]
    return pa.table(columns, schema=schema)


def _null_key(changes: pa.RecordBatch, name: str) -> BinlogError:
    return BinlogError(
        ErrorKind.INVALID_VALUE,
        f"key column {name!r} has an invalid value (like the date '0000-00-00'), so its rows cannot be told apart",
        where=f"seq {changes.column('seq')[0].as_py()} or later",
        remedy="correct the value on the server",
    )


def _last_of_each(keys: Sequence[pa.Array | pa.ChunkedArray], order: pa.Array) -> pa.Array:
    """Returns, for each key, the index of the row with the largest `order`, sorted by order; without a key, the indices
    of all rows."""
    names = [f"k{i}" for i in range(len(keys))]
    count = len(order)
    table = pa.table([*keys, order], names=[*names, "order"])
    # Sort the rows by order, so that the last index of a key belongs to its last event.
    sorted_rows = pc.sort_indices(order)
    if not keys:
        return sorted_rows
    table = table.take(sorted_rows).append_column("at", pa.array(np.arange(count)))
    last = table.group_by(names, use_threads=False).aggregate([("at", "max")]).column("at_max")
    at = np.sort(last.to_numpy())
    return pa.array(sorted_rows.to_numpy()[at])


def _columns(keys: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    return [pc.struct_field(keys, i) for i in range(keys.type.num_fields)]


def _differ(before: pa.Array, after: pa.Array, key: Sequence[str]) -> pa.Array:
    """True where the keys of the two images differ; False where one image is missing."""
    result = pa.array(np.zeros(len(before), bool))
    for name in key:
        differs = pc.not_equal(pc.struct_field(before, name), pc.struct_field(after, name))
        result = pc.or_(result, pc.fill_null(differs, False))
    return result


def key_range(values: pa.ChunkedArray) -> tuple[object, object] | None:
    """Returns the smallest and the largest value of a key column; None if Delta's file statistics have no exact bounds
    for values of its type."""
    kind = values.type
    exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_date(kind)
    if not exact or not len(values):
        return None
    smallest, largest = pc.min_max(values).values()
    return smallest.as_py(), largest.as_py()
