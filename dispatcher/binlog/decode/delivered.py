"""Decodes a delivered binlog to changes in Arrow, or splits it by table without decoding.

A delivered binlog is what the daemon sends to the reader of a consumer: the magic bytes of a binlog, a
FORMAT_DESCRIPTION event wherever the format changes, and the consumer's complete transactions. A RECORD, an event of
the daemon's own (`event.record`), precedes each transaction. The other events are the server's bytes, with these
exceptions:

* TABLE_MAPs without full metadata are enriched;
* a TRANSACTION_PAYLOAD is replaced by the events in it;
* an XA COMMIT is replaced by the rows of the prepared transaction and an XID;
* of a statement's rows events that the consumer gets, the last one has STMT_END_F;
* the XA flags in MariaDB's GTID event of an XA transaction are cleared.

A slice (`TableSlice.payload`) is a delivered binlog with the events of one table. It contains a RECORD at each place
where events are left out, and neither BEGIN nor COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dispatcher.binlog.decode.arrow.invalid import InvalidCell
from dispatcher.binlog.decode.changes.row_batches import (
    BATCH_ROWS,
    change_batch,
    decoded_rows,
    row_counts_of,
)
from dispatcher.binlog.decode.changes.walked_rows import WalkedRows
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import COMMIT_US, EPOCH, FILE, GTID, SEQ
from dispatcher.binlog.decode.events.parts import Layouts, Part, log_parts
from dispatcher.binlog.decode.events.slices import build_payload
from dispatcher.binlog.decode.formats.gtid_text import gtid_strings
from dispatcher.binlog.event.header import (
    HEADER_SIZE,
    MAGIC,
    EventHeader,
    parse_format_description,
)
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.query_event import logged_kind, read_statement
from dispatcher.binlog.sql.statement import QueryKind, parse_statement
from dispatcher.binlog.table_map.column_rules import UNCHANGED, RuledTable
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind

# The limit of one `TableSlice`. A reader needs memory for a few slices and for the delivered bytes, which may be 16
# times as large as a slice.
MAX_PAYLOAD_BYTES = 4 << 20

# `{"database.table": the answer of GET /v1/consumers/{c}/tables/{database.table}}`. An entry is needed only for a table
# whose TABLE_MAP lacks metadata.
Definitions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Rows of one layout of one table, in stream order.

    `batch`: the columns of `change_schema(table_map.columns)`. `invalid_dates`: how many cells contain an invalid date
    ('0000-00-00', 2024-02-31 ...) and are therefore NULL in `batch` (with `InvalidDates.NULL`). `invalid`: the other
    invalid cells of the images after the changes (with `ColumnRules.nulls_invalid`). `walked`: the rows' places
    in the log, valid until the next item is decoded.
    """

    table_map: TableMap
    batch: pa.RecordBatch
    invalid_dates: int
    invalid: tuple[InvalidCell, ...]
    walked: WalkedRows


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that is neither a row change nor transaction control: CREATE, ALTER, DROP, TRUNCATE, GRANT ...

    `committed_at`: µs since 1970 UTC. `header`: of the QUERY event. `statement`: its `text` contains the content of
    each comment `/*! ... */` that the server executed; blanks replace a comment that the server skipped. Its
    `database` is the session's default database ("" if none), not necessarily the table's.
    """

    epoch: int
    seq: int
    ordinal: int
    gtid: str
    file: str
    pos: int
    committed_at: int
    header: EventHeader
    statement: LoggedStatement

    @property
    def maybe_temporary(self) -> bool:
        """True if the log does not show whether the statement concerned a table or a temporary table."""
        return parse_statement(self.statement).maybe_temporary


@dataclass(frozen=True, slots=True)
class TableSlice:
    """Adjacent row changes of one table, with one layout and one epoch, as bytes of a delivered binlog.

    `rows`: number of row changes, the sum of `inserts`, `updates` and `deletes`. `committed_at`: the commit time of the
    last transaction, µs since 1970 UTC. `table_map`: the body of the TABLE_MAP event, from which the driver gets the
    schema by `TableMap.parse`. `payload`: a delivered binlog with only this table's events, for `decode_table`; rows
    keep their (seq, ordinal).
    """

    database: str
    table: str
    layout: str
    epoch: int
    first_seq: int
    last_seq: int
    rows: int
    inserts: int
    updates: int
    deletes: int
    committed_at: int
    table_map: bytes
    payload: memoryview


# Statements that change no table by themselves.
_CONTROL = (
    QueryKind.BEGIN,
    QueryKind.COMMIT,
    QueryKind.ROLLBACK,
    QueryKind.SAVEPOINT,
    QueryKind.XA,
    QueryKind.DDL_WITHOUT_EFFECT,
)


def changes(
    data: bytes | memoryview,
    definitions: Definitions | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    invalid_dates: InvalidDates = InvalidDates.NULL,
    all_versions: bool = False,
    ruled: RuledTable = UNCHANGED.table_map,
) -> Iterator[TableChanges | Ddl]:
    """Decode delivered bytes. DDL statements keep their place in the stream. Between two DDL statements, the changes
    are grouped by table, and each table's changes are in stream order. (`epoch`, `seq`, `ordinal`) orders all changes.

    `all_versions`: True to yield the changes of all versions in a system-versioned table of MariaDB, False for those of
    the current rows, which SELECT returns. The rows of sequences are left out. `ruled`: gives columns their rules.

    Raises `BinlogError` with the offset for bytes that are not a binlog, and for layouts that cannot be decoded.
    """
    index = Index.of(data)
    layouts = Layouts(index)
    decoders: dict[int, TableDecoder] = {}
    for part in log_parts(index, layouts, read_ddl):
        if isinstance(part, Ddl):
            yield part
            continue
        if part.layout not in decoders:
            table_map = layouts.table_map(part.layout)
            if definitions and not table_map.named and table_map.label in definitions:
                table_map = table_map.with_columns(definitions[table_map.label])
            table_map = table_map.with_all_versions() if all_versions else table_map
            decoders[part.layout] = TableDecoder(ruled(table_map), invalid_dates)
        decoder = decoders[part.layout]
        for decoded in decoded_rows(index, part.events, decoder, batch_rows):
            batch = change_batch(decoded, decoder)
            yield TableChanges(
                decoder.table_map, batch, decoded.invalid_dates, decoded.invalid, decoded.walked
            )


def split_by_table(
    data: bytes | memoryview, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES
) -> Iterator[TableSlice | Ddl]:
    """Split delivered bytes by table without decoding rows. Only one payload is in memory at a time.

    The rows of sequences are left out. A slice of a system-versioned table has the changes of all versions, also in
    its counts. A DDL statement or a change of the epoch ends all slices, so no slice extends past it. A slice
    larger than `max_payload_bytes` is split between two of its events. If the split is inside a transaction, `last_seq`
    of the first slice is `first_seq` of the second.

    Raises `BinlogError` as `changes` does, but not for faults that only decoding finds.
    """
    index = Index.of(data)
    layouts = Layouts(index)
    for part in log_parts(index, layouts, read_ddl):
        if isinstance(part, Ddl):
            yield part
        else:
            yield from _slices(index, layouts, part, max_payload_bytes)


def decode_table(
    payload: bytes | memoryview,
    definitions: Definitions | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    invalid_dates: InvalidDates = InvalidDates.NULL,
    all_versions: bool = False,
    ruled: RuledTable = UNCHANGED.table_map,
) -> Iterator[pa.RecordBatch]:
    """Decode a `TableSlice.payload` to batches of at most `batch_rows` rows, with the columns of `change_schema`.
    `all_versions`, `ruled`: see `changes`."""
    for item in changes(
        payload,
        definitions,
        batch_rows=batch_rows,
        invalid_dates=invalid_dates,
        all_versions=all_versions,
        ruled=ruled,
    ):
        if isinstance(item, TableChanges):
            yield item.batch


def joined_payloads(payloads: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """Join payloads of one table that follow each other, up to `bytes_max` together: decoding a payload costs
    milliseconds however few rows it has. Each payload keeps its FORMAT_DESCRIPTION."""
    parts: list[bytes] = []
    size = 0
    for payload in payloads:
        if parts and size + len(payload) > bytes_max:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(payload[len(MAGIC) :] if parts else payload)
        size += len(payload)
    if parts:
        yield b"".join(parts)


def read_ddl(index: Index, line: int) -> Ddl | None:
    """Returns the statement at an index of the events array, None for transaction control and for a DDL that did not
    take effect, see `query_event.logged_kind`. Raises `BinlogError`."""
    offset, end, _, number, txn = index.events[line, :5].tolist()
    header = EventHeader.read(index.buf[offset : offset + HEADER_SIZE].tobytes())
    body = index.buf[offset + HEADER_SIZE : end].tobytes()
    try:
        statement = read_statement(
            body, header.flags, _server_at(index, offset), index.lower_case_table_names(txn)
        )
    except BinlogError as error:
        raise error.at(f"offset {offset}") from None
    query, kind = statement.text, logged_kind(statement)
    if kind in _CONTROL or not query.strip():
        return None
    if kind is QueryKind.DML:
        # The statement may contain values of rows, so the message quotes only its first word.
        raise BinlogError(
            ErrorKind.STATEMENT_FORMAT,
            f"{query.split(None, 1)[0][:20]} in database {statement.database!r}",
            where=f"offset {offset}",
        )
    epoch, seq, pos, committed_at, file = index.txns[txn, EPOCH : FILE + 1].tolist()
    ordinal = number << row_walk.ROW_BITS
    return Ddl(
        epoch,
        seq,
        ordinal,
        gtid_strings(index.buf, index.txns[[txn], GTID])[0].as_py(),
        index.files[file],
        pos,
        committed_at,
        header,
        statement,
    )


def _server_at(index: Index, offset: int) -> ServerVersion:
    """Returns the server version in the FORMAT_DESCRIPTION that is in force at an offset. Raises `BinlogError`."""
    at = int(index.formats[np.searchsorted(index.formats, offset) - 1])
    size = EventHeader.read(index.buf[at : at + HEADER_SIZE].tobytes()).size
    return ServerVersion.of(parse_format_description(index.buf[at : at + size].tobytes()))


def _slices(index: Index, layouts: Layouts, part: Part, bytes_max: int) -> Iterator[TableSlice]:
    table_map = layouts.table_map(part.layout)
    counts = row_counts_of(index, part.events, table_map)
    operations = row_walk.operations(part.events[:, row_walk.TYPE])
    done = 0
    while done < len(part.events):
        copied, payload = build_payload(
            index.buf, part.events[done:], index.txns, index.formats, bytes_max
        )
        run = slice(done, done + copied)
        first, last = index.txns[part.events[[done, done + copied - 1], row_walk.TXN]]
        by_operation = np.bincount(operations[run], weights=counts[run], minlength=3).astype(int)
        yield TableSlice(
            database=table_map.database,
            table=table_map.table,
            layout=table_map.layout,
            epoch=int(first[EPOCH]),
            first_seq=int(first[SEQ]),
            last_seq=int(last[SEQ]),
            rows=int(counts[run].sum()),
            inserts=int(by_operation[row_walk.INSERT]),
            updates=int(by_operation[row_walk.UPDATE]),
            deletes=int(by_operation[row_walk.DELETE]),
            committed_at=int(last[COMMIT_US]),
            table_map=layouts.bodies[part.layout],
            payload=payload,
        )
        done += copied
