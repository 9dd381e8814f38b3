"""Versions of rows (slowly changing dimension, type 2) from the changes of a table. Pure functions on Arrow columns.

Each change has a point: the number of its entry in the log (an entry is rows of a table), its position within the
entry, and its time of commit. Each after-image is a version of the row with the image's key. The version lasts from the
change's point to the point of the next change of that key, even if one step contains many changes of the key. An update
ends the version that has the key of its before-image, and begins a version with the key of its after-image. So an
update that changes the key is no special case.

If a version begins in a step, the step writes it once, with its end if the version also ends in this step. For each
key, the step ends at most one version that began in an earlier step. This version ends at the point of the key's first
change in the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.tables.keyed import chosen_columns, event_keys, require_columns

_POINT = (
    ("lsn", pa.int64()),
    ("position", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
)


def version_lines(row: pa.StructType, key: Sequence[str]) -> pa.Schema:
    """Returns the schema of the lines by which a step changes a history table, one line per version.

    `closes`: True for a line that ends the current version of `key` at the point `to_lsn`, `to_position`, `to_at`; any
    other line is a new version with the values `row`, from the point `from_...` to the point `to_...` (NULL if the
    version is current).
    """
    return pa.schema(
        [
            pa.field("closes", pa.bool_()),
            pa.field("key", pa.struct([row.field(name) for name in key])),
            pa.field("row", row),
            *(pa.field(f"{end}_{name}", kind) for end in ("from", "to") for name, kind in _POINT),
        ]
    )


def row_versions(
    entries: Iterable[tuple[int, Iterable[pa.RecordBatch]]],
    row: pa.StructType,
    key: Sequence[str],
    *,
    exact: bool,
) -> pa.Table:
    """Returns the lines of one step, with the schema `version_lines`. Lines that end versions come first, at most one
    for each key.

    `entries`: the lsn of each entry and its changes, in the order of the log. `exact`: True if the key of an inserted
    row has no current version before the insert. Raises `BinlogError` ROW_IMAGE if an after-image lacks a column or a
    before-image lacks a column of the key; INVALID_VALUE for a key that is NULL.
    """
    events = _Events(tuple(key))
    for lsn, batches in entries:
        position = 0
        for changes in batches:
            chosen = chosen_columns(changes, row)
            require_columns(chosen, key)
            events.add(chosen, lsn, position)
            position += changes.num_rows
    return events.lines(version_lines(row, key), exact=exact)


@dataclass(slots=True)
class _Events:
    """The effects of changes on keys: an update first removes the row of its before-image, then writes its after-image.

    `images`: the rows that the events write. Each event has `keys`, `order`, a point (columns of `_POINT`), `image`
    (the index of the row that the event writes, -1 if it removes a row), and `inserted` (True for an insert).
    """

    key: tuple[str, ...]
    images: list[pa.Array] = field(default_factory=list)
    keys: list[list[pa.Array]] = field(default_factory=list)
    points: list[list[pa.Array]] = field(default_factory=list)
    order: list[np.ndarray] = field(default_factory=list)
    image: list[np.ndarray] = field(default_factory=list)
    inserted: list[np.ndarray] = field(default_factory=list)
    changes: int = 0
    written: int = 0

    def add(self, changes: pa.RecordBatch, lsn: int, position: int) -> None:
        op, after = changes.column("op"), changes.column("after")
        inserts = pc.equal(op, "insert").to_numpy(zero_copy_only=False)
        deletes = pc.equal(op, "delete").to_numpy(zero_copy_only=False)
        writes, removals = np.flatnonzero(~deletes), np.flatnonzero(~inserts)
        chosen = np.concatenate((writes, removals))
        keys = event_keys(changes, self.key, writes, removals)
        for name, values in zip(self.key, keys, strict=True):
            if values.null_count:
                raise _null_key(name, lsn)
        self.keys.append(keys)
        self.images.append(after.take(pa.array(writes)))
        at = changes.column("committed_at").take(pa.array(chosen))
        lsns = pa.array(np.full(len(chosen), lsn, np.int64))
        self.points.append([lsns, pa.array(chosen + position), at])
        first = 2 * self.changes
        self.order.append(np.concatenate((writes * 2 + 1, removals * 2)) + first)
        numbers = np.arange(self.written, self.written + len(writes))
        self.image.append(np.concatenate((numbers, np.full(len(removals), -1))))
        self.inserted.append(inserts[chosen])
        self.changes += changes.num_rows
        self.written += len(writes)

    def lines(self, schema: pa.Schema, *, exact: bool) -> pa.Table:
        if not self.changes:
            return schema.empty_table()
        keys = [pa.chunked_array(list(arrays)) for arrays in zip(*self.keys, strict=True)]
        points = [pa.chunked_array(list(arrays)) for arrays in zip(*self.points, strict=True)]
        order, image = np.concatenate(self.order), np.concatenate(self.image)
        names = [f"k{i}" for i in range(len(keys))]
        table = pa.table([*keys, pa.array(order)], names=[*names, "order"])
        by_key = pc.sort_indices(table, [(name, "ascending") for name in (*names, "order")])
        table = table.take(by_key)
        again = _same_as_next([table.column(name) for name in names])
        sorted_to = by_key.to_numpy().astype(np.int64)
        # An event's version ends at the point of the next event of its key.
        following = _indices(np.append(sorted_to[1:], 0), np.append(~again, True))
        first = np.append(True, ~again)
        needed = first & ~np.concatenate(self.inserted)[sorted_to] if exact else first
        ends = np.flatnonzero(needed)
        begins = np.flatnonzero(image[sorted_to] >= 0)
        begins = begins[np.argsort(order[sorted_to[begins]])]
        chosen = _indices(np.concatenate((sorted_to[ends], sorted_to[begins])))
        is_end = np.append(np.ones(len(ends), bool), np.zeros(len(begins), bool))
        begin = _indices(chosen.to_numpy(), is_end)
        end = pa.concat_arrays([_indices(sorted_to[ends]), following.take(_indices(begins))])
        images = pa.chunked_array(self.images, schema.field("row").type)
        columns = [
            pa.array(is_end),
            pa.StructArray.from_arrays(
                [values.combine_chunks().take(chosen) for values in keys],
                fields=list(schema.field("key").type),
            ),
            images.take(_indices(image[chosen.to_numpy()], is_end)),
            *(values.take(at) for at in (begin, end) for values in points),
        ]
        return pa.table(columns, schema=schema)


def _indices(values: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    return pa.array(values, pa.int64(), mask=missing)


def _same_as_next(keys: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Returns an array with True for each row whose key equals that of the next row. The array is one element shorter
    than the keys."""
    same = np.ones(len(keys[0]) - 1, bool)
    for values in keys:
        same &= pc.equal(values[:-1], values[1:]).to_numpy()
    return same


def _null_key(name: str, lsn: int) -> BinlogError:
    return BinlogError(
        ErrorKind.INVALID_VALUE,
        f"key column {name!r} has an invalid date (like '0000-00-00'), so its rows cannot be told apart",
        where=f"lsn {lsn}",
    )
