"""Lists the columns that an update changed, by the bytes of its two images.

A column that only the after-image contains counts as changed: with binlog_row_image=MINIMAL the after-image contains
the columns that the statement set. A column that the after-image lacks counts as unchanged: with NOBLOB the after-image
lacks the BLOBs that did not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import NAMES
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.kernel.bytes import I32, U8, Int, little
from dispatcher.binlog.kernel.jit import njit

_ABSENT, _PREFIX = row_walk.ABSENT, 15


@njit
def differ(buf: U8, before: Int, after: Int, width: Int) -> bool:
    """True if two cells have different bytes."""
    if after == _ABSENT or before == after:
        return False
    if before < 0 or after < 0:  # one of the cells is NULL, ABSENT or a change of JSON
        return True
    if width < 0:
        prefix = -width & _PREFIX
        width = prefix + little(buf, before, prefix)
        if width != prefix + little(buf, after, prefix):
            return True
    for i in range(width):  # noqa: SIM110 - a kernel has no generators
        if buf[before + i] != buf[after + i]:
            return True
    return False


@njit
def mark_changed(buf: U8, widths: I32, cells: Any, n: Int, marks: U8) -> None:
    """Set marks[row, column] for the changed columns of updates."""
    for row in range(n):
        if cells.op[row] == row_walk.UPDATE:
            for c in range(len(widths)):
                before, after = np.int64(cells.before[c, row]), np.int64(cells.after[c, row])
                marks[row, c] = differ(buf, before, after, np.int64(widths[c]))


def changed_names(
    buf: U8, widths: I32, cells: row_walk.RowCells, n: int, names: Sequence[str]
) -> pa.Array:
    """Returns the names of the changed columns of each row, null for inserts and deletes. `buf`: the bytes to which the
    cells' offsets refer. `names`: the names of all columns."""
    marks: U8 = np.zeros((n, len(widths)), dtype=np.uint8)
    mark_changed(buf, widths, cells, n, marks)
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(marks.sum(axis=1), out=offsets[1:])
    columns = np.ascontiguousarray(np.nonzero(marks)[1])
    values = arrow_buffers.string_array(names).take(arrow_buffers.fixed(pa.int64(), columns))
    valid = arrow_buffers.bitmap(cells.op[:n] == row_walk.UPDATE)
    return pa.Array.from_buffers(NAMES, n, [valid, pa.py_buffer(offsets)], children=[values])
