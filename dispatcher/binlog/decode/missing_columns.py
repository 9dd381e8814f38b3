"""Which columns row images do not hold, as lists of names.

Where the server writes less than all (binlog_row_image other than FULL), a column that is not there may have any value,
and is not to be mistaken for NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode import arrow_buffers, row_walk
from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.binlog.table_map.column_types import Column

NAMES = pa.list_(pa.field("element", pa.string()))


class MissingColumns(NamedTuple):
    """`before`, `after`: per event, the line in `lists` or -1 where every column is in the image, or there is none."""

    lists: pa.Array
    before: I64
    after: I64

    @classmethod
    def of(cls, buf: U8, events: I64, columns: Sequence[Column]) -> MissingColumns | None:
        """For rows events of one layout; None where all of them hold all columns."""
        n = len(events)
        places = np.empty(2 * n, dtype=np.int64)
        if not row_walk.bitmaps(buf, events, len(columns), places[:n], places[n:]):
            return None
        lines = np.full(2 * n, -1, dtype=np.int64)
        there = np.flatnonzero(places >= 0)
        size = (len(columns) + 7) // 8
        distinct, index = np.unique(
            buf[places[there][:, None] + np.arange(size)], axis=0, return_inverse=True
        )
        lines[there] = index.ravel()
        lists = [_names(bits.tobytes(), columns) for bits in distinct]
        # A partial update may hold all columns all the same.
        lines[np.isin(lines, [i for i, names in enumerate(lists) if not names])] = -1
        return cls(_array(lists), lines[:n], lines[n:])

    def column(self, lines: I64, event: I32) -> pa.Array:
        """`lines`: `before` or `after`; `event`: of each row."""
        indices = lines[event]
        return self.lists.take(arrow_buffers.fixed(pa.int64(), indices, indices >= 0))


def _names(bits: bytes, columns: Sequence[Column]) -> list[str]:
    return [column.name for i, column in enumerate(columns) if not bits[i >> 3] >> (i & 7) & 1]


def _array(lists: Sequence[Sequence[str]]) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum([len(names) for names in lists], out=offsets[1:])
    names = arrow_buffers.string_array([name for names in lists for name in names])
    return pa.Array.from_buffers(NAMES, len(lists), [None, pa.py_buffer(offsets)], children=[names])


def list_of_names(lists: Sequence[Sequence[str] | None]) -> pa.Array:
    """One list a row, null where it is None."""
    valid = np.array([names is not None for names in lists], dtype=np.bool_)
    lines = np.cumsum(valid) - 1
    known = _array([names for names in lists if names is not None])
    return known.take(arrow_buffers.fixed(pa.int64(), lines.astype(np.int64), valid))
