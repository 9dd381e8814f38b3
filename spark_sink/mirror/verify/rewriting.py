"""Computes the lines that give a mirrored table the rows that it has to have for some keys. Pure.

A key whose rows are equal gets no line. So each line is a change, which a change data feed shows once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_sink.mirror.verify.hashed_rows import HashedRows


def rewriting_lines(
    expected: pa.Table, present: pa.Table, key: Sequence[int], *, marks: bool
) -> pa.Table:
    """Returns lines for `MirroredTable.rewrite`. `expected`: the rows that the mirrored table has to have for some
    keys; `present`: the rows that the table has for these keys now. `expected` and `present` have the same columns.
    `key`: indices of the key columns; `marks`: True if a row that is not expected is marked as deleted."""
    ours, theirs = _hashed(expected, key), _hashed(present, key)
    differing = ours.differing(theirs)
    kept, counts = np.unique(theirs.keys, return_counts=True)
    doubled = kept[counts > 1]
    writes = np.isin(ours.keys, differing)
    inserts = writes & np.isin(ours.keys, doubled)
    removed = np.isin(theirs.keys, differing)
    removed &= ~np.isin(theirs.keys, ours.keys) | np.isin(theirs.keys, doubled)
    _, first = np.unique(theirs.keys, return_index=True)
    removed &= np.isin(np.arange(len(theirs)), first)
    is_foreign = ~np.isin(theirs.keys, ours.keys)[removed]
    ways = np.where(inserts, "insert", "write")[writes]
    gone = np.where(is_foreign & marks, "mark", "delete")
    written = expected.filter(pa.array(writes))
    deleted = present.filter(pa.array(removed))
    return pa.concat_tables(
        [_lines(written, key, ways, has_rows=True), _lines(deleted, key, gone, has_rows=False)]
    )


def rewritten_keys(lines: pa.Table) -> int:
    """Returns the number of keys that lines rewrite. A key with several rows has two lines."""
    return sum(way != "insert" for way in lines.column("way").to_pylist())


def has_no_null(lines: pa.Table) -> bool:
    """True if no key of the lines has a NULL."""
    keys = lines.column("key")
    columns = (pc.struct_field(keys, i) for i in range(keys.type.num_fields))
    return all(column.null_count == 0 for column in columns)


def _hashed(rows: pa.Table, key: Sequence[int]) -> HashedRows:
    batches = rows.combine_chunks().to_batches()
    return HashedRows.joined(HashedRows.of_batch(batch, key) for batch in batches)


def _lines(rows: pa.Table, key: Sequence[int], ways: np.ndarray, *, has_rows: bool) -> pa.Table:
    rows = rows.combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in rows.columns
    ]
    fields = [pa.field(each.name, each.type) for each in rows.schema]
    whole = pa.StructArray.from_arrays(columns, fields=fields)
    keys = pa.StructArray.from_arrays([columns[i] for i in key], fields=[fields[i] for i in key])
    content = whole if has_rows else pa.nulls(len(rows), whole.type)
    return pa.table({"key": keys, "row": content, "way": pa.array(ways.astype(str), pa.string())})
