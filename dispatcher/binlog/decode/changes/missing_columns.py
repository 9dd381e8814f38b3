"""Lists the columns that row images lack.

If binlog_row_image is not FULL, the server omits columns from row images. An omitted column may have any value, so it
must not be mistaken for NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import NAMES
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.binlog.table_map.column_types import Column


class MissingColumns(NamedTuple):
    """Lists of column names. `before`, `after`: for each event, the index of its list in `lists`; -1 if the image of
    the event contains all columns, or if the event has no such image."""

    lists: pa.Array
    before: I64
    after: I64

    @classmethod
    def of(cls, buf: U8, events: I64, columns: Sequence[Column]) -> MissingColumns | None:
        """Find the missing columns of rows events of one layout. Returns None if the images of all events contain all
        columns."""
        n = len(events)
        offsets = np.empty(2 * n, dtype=np.int64)
        if not row_walk.bitmaps(buf, events, len(columns), offsets[:n], offsets[n:]):
            return None
        lines = np.full(2 * n, -1, dtype=np.int64)
        present = np.flatnonzero(offsets >= 0)
        size = (len(columns) + 7) // 8
        distinct, index = np.unique(
            buf[offsets[present][:, None] + np.arange(size)], axis=0, return_inverse=True
        )
        lines[present] = index.ravel()
        lists = [_names(bits.tobytes(), columns) for bits in distinct]
        # In the bitmap of a partial update, the bits of all columns may be set. Then no column is missing.
        lines[np.isin(lines, [i for i, names in enumerate(lists) if not names])] = -1
        return cls(_array(lists), lines[:n], lines[n:])

    def column(self, lines: I64, event: I32) -> pa.Array:
        """Returns the list of each row. `lines`: `before` or `after`; `event`: the event of each row."""
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
    """Returns one list per row, null for None."""
    valid = np.array([names is not None for names in lists], dtype=np.bool_)
    lines = np.cumsum(valid) - 1
    known = _array([names for names in lists if names is not None])
    return known.take(arrow_buffers.fixed(pa.int64(), lines.astype(np.int64), valid))
