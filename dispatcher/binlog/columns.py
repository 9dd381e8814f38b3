"""Rows to Arrow."""

from __future__ import annotations

import pyarrow as pa

from dispatcher.binlog.table_map import Column


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of a column's values; raises `BinlogError` UNSUPPORTED_TYPE naming the column."""
    raise NotImplementedError
