"""`WalkedRows`: the rows of a batch before their cells are decoded. `current_rows` reduces the changes of a
system-versioned table of MariaDB to those of its current rows: the rows that SELECT returns.

The log contains the changes of all versions. ROW END of a current row is the greatest TIMESTAMP(6). An UPDATE is logged
as an update of the current row and an insertion of the old version; a DELETE is logged as an update of ROW END; DELETE
HISTORY is logged as deletions of old versions. Tested on two servers (tests/mirror/test_mariadb_forms.py).

Source: MariaDB source, sql/sql_class.h and sql/table.cc (TABLE::vers_update_fields, TABLE::delete_row).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import FILE, POSITION
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind

_SIZE = 7  # of a TIMESTAMP(6): seconds (4) and microseconds (3), big-endian
_MICROSECONDS = (999_999).to_bytes(3, "big")
# Until 11.4, and on 32-bit systems, the greatest TIMESTAMP is 2038-01-19 03:14:07.999999. Since 11.5 it is 2106-02-07
# 06:28:15.999999. Both are written as UTC.
_GREATEST = np.frombuffer(
    b"".join(seconds + _MICROSECONDS for seconds in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")),
    dtype=np.uint8,
).reshape(2, _SIZE)


class WalkedRows(NamedTuple):
    """The `n` rows of a batch. `cells`: offsets of the cells in `log.buf[base:]`. `cells.event`: the index in `events`
    of each row's event. `sparse`: True if the images of some events lack columns."""

    log: Index
    events: NDArray[np.int64]
    cells: row_walk.RowCells
    n: int
    base: int
    sparse: bool


def current_rows(walked: WalkedRows, table_map: TableMap) -> WalkedRows:
    """Returns the changes of current rows. An update that ends a current row without a successor becomes a deletion.
    The arrays of `walked` are changed. `table_map`: of a table of the kind VERSIONED.

    Raises `BinlogError` UNSUPPORTED_TYPE for MariaDB's old format of temporal columns, and ROW_IMAGE for an image
    without ROW END.
    """
    if table_map.columns[table_map.row_end].type != Type.TIMESTAMP2:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_TYPE,
            f"table {table_map.label}: the column ROW END of a system-versioned table has MariaDB's old format",
            remedy="SET GLOBAL mysql56_temporal_format = ON, and ALTER TABLE ... FORCE",
        )
    n, cells = walked.n, walked.cells
    op = cells.op[:n]
    before = _is_current(walked, table_map, cells.before, op != row_walk.INSERT)
    after = _is_current(walked, table_map, cells.after, op != row_walk.DELETE)
    op[before & ~after] = row_walk.DELETE
    op[after & ~before] = row_walk.INSERT
    kept = np.flatnonzero(before | after)
    if len(kept) == n:
        return walked
    m = len(kept)
    for array in (cells.before, cells.after):
        array[:, :m] = array[:, kept]
    for line in (cells.event, cells.ordinal, cells.op):
        line[:m] = line[kept]
    return walked._replace(n=m)


def _is_current(
    walked: WalkedRows, table_map: TableMap, at: NDArray[np.int32], present: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Returns for each row whether its image is a current row. `present`: True for rows that have this image."""
    offsets = at[table_map.row_end, : walked.n]
    if (offsets[present] < 0).any():
        raise _without_row_end(walked, table_map, int(np.flatnonzero(present & (offsets < 0))[0]))
    found = np.zeros(walked.n, dtype=np.bool_)
    starts = walked.base + offsets[present].astype(np.int64)
    values = walked.log.buf[starts[:, None] + np.arange(_SIZE)]
    found[present] = (values[:, None, :] == _GREATEST).all(axis=2).any(axis=1)
    return found


def _without_row_end(walked: WalkedRows, table_map: TableMap, row: int) -> BinlogError:
    log = walked.log
    txn = log.txns[walked.events[walked.cells.event[row], row_walk.TXN]]
    return BinlogError(
        ErrorKind.ROW_IMAGE,
        f"a row of the system-versioned table {table_map.label} lacks its column"
        f" {table_map.columns[table_map.row_end].name!r}, so the log does not show whether it is current",
        where=f"before {log.files[int(txn[FILE])]}:{int(txn[POSITION])}",
        remedy="SET GLOBAL binlog_row_image=FULL, and copy the table afresh",
    )
