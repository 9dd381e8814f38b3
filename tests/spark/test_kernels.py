"""The kernels of Python workers are compiled in advance, by decoding a sample that has rows of every type."""

from __future__ import annotations

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableSlice
from dispatcher.binlog.kernel.sample import SAMPLE
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink import kernels


def test_the_sample_is_decoded_in_every_way() -> None:
    assert kernels.load_kernels() == 3 * 2 * 2  # changes, kinds of memory, kinds of payload
    assert kernels.cache_folder()


def test_the_sample_has_columns_of_all_common_types() -> None:
    parts = delivered.split_by_table(SAMPLE.read_bytes())
    (part,) = (part for part in parts if isinstance(part, TableSlice))
    assert (part.inserts, part.updates, part.deletes) == (1, 1, 1)
    found = {column.type for column in TableMap.parse(part.table_map).columns}
    assert found >= {
        *(Type.LONG, Type.LONGLONG, Type.DOUBLE, Type.FLOAT, Type.NEWDECIMAL, Type.BIT, Type.YEAR),
        *(Type.DATE, Type.DATETIME2, Type.TIMESTAMP2, Type.TIME2, Type.STRING, Type.VARCHAR),
        *(Type.BLOB, Type.ENUM, Type.SET, Type.JSON),
    }
