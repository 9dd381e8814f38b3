"""Load the decoding kernels in advance, so that compiling them at the first rows does not block the program's loop.

`dispatcher.stream.warmup` does the same for the kernels that read the log, which are the only kernels that the
daemon needs.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.decode.changes.missing_columns import MissingColumns
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.formats.gtid_text import gtid_strings
from dispatcher.binlog.event.header import MAGIC
from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.binlog.table_map.parse import TableMap

_UTF8MB4, _BINARY = 45, 63
# One column for each common way of decoding: (type, meta, unsigned, collation).
_COLUMNS = (
    (Type.LONG, 0, False, 0),
    (Type.LONGLONG, 0, False, 0),
    (Type.LONGLONG, 0, True, 0),
    (Type.DOUBLE, 8, False, 0),
    (Type.NEWDECIMAL, 12 << 8 | 2, False, 0),
    (Type.VARCHAR, 80, False, _UTF8MB4),
    (Type.BLOB, 2, False, _BINARY),
    (Type.JSON, 4, False, 0),
    (Type.DATE, 0, False, 0),
    (Type.DATETIME2, 6, False, 0),
    (Type.TIMESTAMP2, 0, False, 0),
    (Type.TIME2, 0, False, 0),
    (Type.YEAR, 0, True, 0),
)


def load_decoder() -> None:
    """Decode one row of NULLs. This call compiles all decoding kernels, because compilation depends only on the types
    of the arguments."""
    index = Index.of(MAGIC)
    columns = tuple(
        Column(f"c{n}", kind, meta, unsigned, True, charset, (), True)
        for n, (kind, meta, unsigned, charset) in enumerate(_COLUMNS)
    )
    decoder = TableDecoder(TableMap(0, "", "", columns, (), ""))
    cells = row_walk.RowCells.room(len(columns), 1)
    state = np.zeros(row_walk.WALK_FIELDS, dtype=np.int64)
    row_walk.walk(index.buf, index.events, decoder.widths, state, cells, 1)
    row_walk.count(index.buf, index.events, decoder.widths, np.empty(0, np.int64))
    gtid_strings(index.buf, np.zeros(0, np.int64))
    MissingColumns.of(index.buf, index.events, columns)
    nulls = np.full((len(columns), 1), row_walk.NULL, dtype=np.int32)
    decoder.decode(index.buf, nulls, 0, None, nulls)
