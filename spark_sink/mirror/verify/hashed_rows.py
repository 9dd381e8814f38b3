"""Represents each row by two hashes, one of its key and one of the whole row. They take 16 bytes per row, so rows in
different places can be compared without moving the rows. Pure.

If two rows of one key differ, their hashes are nevertheless equal with a probability of one in 2^64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_sink.mirror.verify.row_checksums import U64, row_hashes


@dataclass(frozen=True, slots=True)
class HashedRows:
    """`keys`, `rows`: the hashes of each row's key, and of the row."""

    keys: U64
    rows: U64

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch, key: Sequence[int]) -> HashedRows:
        """`key`: indices of the key columns."""
        columns = [batch.column(i) for i in key]
        return cls(key_hashes(columns, batch.num_rows), row_hashes(batch.columns, batch.num_rows))

    @classmethod
    def joined(cls, parts: Iterable[HashedRows]) -> HashedRows:
        every = list(parts)
        if not every:
            return cls(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))
        return cls(np.concatenate([p.keys for p in every]), np.concatenate([p.rows for p in every]))

    def __len__(self) -> int:
        return len(self.keys)

    def without(self, keys: U64) -> HashedRows:
        """Returns the rows whose keys are not among `keys`."""
        kept = ~np.isin(self.keys, keys)
        return HashedRows(self.keys[kept], self.rows[kept])

    def differing(self, other: HashedRows) -> U64:
        """Returns the hashes of the keys whose rows differ. A key may have several rows."""
        keys = np.concatenate([self.keys, other.keys])
        rows = np.concatenate([self.rows, other.rows])
        signs = np.ones(len(keys), dtype=np.int64)
        signs[len(self.keys) :] = -1
        if not len(keys):
            return keys
        order = np.lexsort((rows, keys))
        keys, rows, signs = keys[order], rows[order], signs[order]
        begins = np.flatnonzero(
            np.concatenate(([True], (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])))
        )
        unequal = np.add.reduceat(signs, begins) != 0
        return np.unique(keys[begins[unequal]])


def key_hashes(columns: Sequence[pa.Array], rows: int) -> U64:
    """Returns one hash per key. The keys -0.0 and 0.0 have the same hash."""
    return row_hashes([_without_negative_zero(column) for column in columns], rows)


def _without_negative_zero(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0 (IEEE 754)
