"""Compiles the kernels that Python workers need, and stores them in numba's cache, so that no worker has to compile
them. A kernel is a function that numba compiles to machine code.

    python -m spark_sink.kernels   compiles missing kernels, prints the cache folder of the kernels that decode rows

numba keeps its cache beside the source files, or in NUMBA_CACHE_DIR, and identifies a source file by its modification
time. So a cache is valid only for the source files that numba has compiled, and only on the same kind of processor.
Without a cache, each worker process compiles the kernels for itself.

Which kernels run depends on the types of columns. So this module decodes a delivered binlog that has one column of each
type (`dispatcher.binlog.kernel.sample`). Kernels of rarer character sets are compiled when they are first needed.
"""

from __future__ import annotations

import sys

import numpy as np

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.json_render import json_text
from dispatcher.binlog.decode.delivered import TableSlice
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.kernel.sample import SAMPLE
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.verify.row_checksums import Buckets
from spark_sink.source.table_rows import text_kernels
from spark_sink.source.table_rows.text_rows import TextDecoder


def load_kernels() -> int:
    """Load or compile the kernels by decoding the sample in each kind of memory. Returns the number of decoded changes;
    a change that is decoded several times is counted each time."""
    data, decoded = SAMPLE.read_bytes(), 0
    # numba compiles one version of a kernel for writable memory and another version for bytes.
    for buffer in (data, memoryview(bytearray(data))):
        for part in delivered.split_by_table(buffer):
            if isinstance(part, TableSlice):
                for payload in (part.payload, bytes(part.payload)):
                    decoded += _decode(payload)
                _load_copy_kernels(TableMap.parse(part.table_map))
    return decoded


def _decode(payload: bytes | memoryview) -> int:
    decoded = 0
    for batch in delivered.decode_table(payload):
        json_text(batch)
        for image in ("before", "after"):
            rows = batch.column(image)
            buckets = Buckets.empty(2)
            buckets.add(batch.from_struct_array(rows.drop_null()), (0,))
        decoded += batch.num_rows
    return decoded


def _load_copy_kernels(table_map: TableMap) -> None:
    decoder = TextDecoder(table_map.columns, table_map.label)
    nothing = np.empty(0, dtype=np.uint8)
    cells = np.empty((len(table_map.columns), 0), dtype=np.int32)
    text_kernels.find_cells(nothing, np.zeros(3, dtype=np.int64), cells, cells)
    decoder.decode(nothing, cells, cells)


def cache_folder() -> str:
    """Returns the folder in which numba stores the kernels that decode rows; "" if numba can write to no folder."""
    cache = row_walk.walk._cache  # type: ignore[attr-defined]  # noqa: SLF001 - numba has no public way
    return str(getattr(cache, "cache_path", "") or "")


def main() -> int:
    load_kernels()
    folder = cache_folder()
    if not folder:
        print("numba can write into no cache folder; set NUMBA_CACHE_DIR", file=sys.stderr)
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
