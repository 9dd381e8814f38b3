"""What an executor does with delivered binlog bytes: changes as Arrow, or one table's bytes after another.

"Delivered" is the form in which the daemon hands transactions out: a binlog file (magic, FORMAT_DESCRIPTION event,
transactions) in which a RECORD stands before each transaction and wherever events were left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dispatcher.binlog.table_map import Column, TableMap

BATCH_ROWS = 65_536
MAX_PAYLOAD_BYTES = 32 << 20

# `{"database.table": what GET /v1/consumers/{c}/tables/{database.table} answers}`; needed only for tables whose
# TABLE_MAP has no full metadata.
Definitions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Some rows of one layout of one table, in stream order.

    `batch`: the columns of `change_schema(table_map.columns)`.
    `invalid_dates`: how many cells held a date that is none ('0000-00-00', 2024-02-31 ...) and are NULL in `batch`.
    """

    table_map: TableMap
    batch: pa.RecordBatch
    invalid_dates: int


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that is not a row change and not transaction control: CREATE, ALTER, DROP, TRUNCATE, GRANT ...

    `database`: the session's default database ("" if none), not necessarily the table's; `committed_at`: µs since 1970
    UTC; `sql_mode`: the session's, as MySQL's bit mask (4 = ANSI_QUOTES).
    """

    epoch: int
    seq: int
    ordinal: int
    gtid: str
    file: str
    pos: int
    committed_at: int
    database: str
    query: str
    sql_mode: int


@dataclass(frozen=True, slots=True)
class TableSlice:
    """A run of one table's row changes, all of one layout and one epoch, still as bytes.

    `table_map`: body of the TABLE_MAP event (`TableMap.parse` reads it: the driver needs it for the schema);
    `payload`: a delivered binlog with this table's events alone, for `decode_table`; rows keep their (seq, ordinal).
    """

    database: str
    table: str
    layout: str
    epoch: int
    first_seq: int
    last_seq: int
    rows: int
    table_map: bytes
    payload: bytes


def change_schema(columns: Sequence[Column]) -> pa.Schema:
    """Schema of decoded changes: `epoch`, `seq`, `ordinal` int64 not null; `gtid`, `file` string; `pos` int64;
    `committed_at` timestamp('us', 'UTC'); `database`, `table`, `op` ('insert', 'update', 'delete') string; `before`,
    `after` struct of the table's columns (null where the operation has none), each field nullable.

    Raises `BinlogError` UNSUPPORTED_TYPE or METADATA_MISSING, naming the column.
    """
    raise NotImplementedError


def changes(
    data: bytes, definitions: Definitions | None = None, *, batch_rows: int = BATCH_ROWS
) -> Iterator[TableChanges | Ddl]:
    """Decode delivered bytes. Between two DDL statements, which stand where they stood in the stream, changes come
    per table; a table's changes are in stream order, and (`epoch`, `seq`, `ordinal`) orders all of them.

    Raises `BinlogError` with the offset for bytes that are not a binlog, and for layouts that cannot be decoded.
    """
    raise NotImplementedError


def split(data: bytes, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> list[TableSlice | Ddl]:
    """Take delivered bytes apart by table without decoding rows.

    A DDL statement (and a change of epoch) ends every slice before it. A slice larger than `max_payload_bytes` is cut
    between two of its events, possibly inside a transaction; then `last_seq` of the one is `first_seq` of the next.
    """
    raise NotImplementedError


def decode_table(
    payload: bytes, definitions: Definitions | None = None, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Decode a `TableSlice.payload`: batches of at most `batch_rows` rows of `change_schema`."""
    raise NotImplementedError


def json_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with `before` and `after` as JSON objects in text: `{"id":1,"name":"x"}`."""
    raise NotImplementedError
