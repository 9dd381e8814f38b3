"""Decodes a delivered binlog to changes in Arrow, or splits it by table without decoding.

A delivered binlog is what the daemon sends to a consumer: magic, a FORMAT_DESCRIPTION event where the format changes,
and the consumer's complete transactions, each behind a RECORD (`event.record`). Its events are the server's bytes, with
exceptions: TABLE_MAPs without full metadata are enriched; a TRANSACTION_PAYLOAD is replaced by the events in it, and an
XA COMMIT by the rows of the prepared transaction and an XID; the consumer's last rows event of a statement carries
STMT_END_F; MariaDB's GTID event of an XA transaction has its XA flags cleared. A slice (`TableSlice.payload`) has a
RECORD wherever events are left out, and neither BEGIN nor COMMIT.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.decode import arrow_buffers, row_walk
from dispatcher.binlog.decode.gtid_text import gtid_strings
from dispatcher.binlog.decode.index import Index
from dispatcher.binlog.decode.index_kernels import COMMIT_US, EPOCH, FILE, GTID, POSITION, SEQ
from dispatcher.binlog.decode.missing_columns import NAMES, MissingColumns, list_of_names
from dispatcher.binlog.decode.slices import build_payload
from dispatcher.binlog.decode.table_decoder import TableDecoder, arrow_type, cell_widths
from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.query import read_statement
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import QueryKind, classify
from dispatcher.binlog.table_map.column_types import Column, InvalidDates
from dispatcher.binlog.table_map.parse import TableMap, layout_id
from dispatcher.model.errors import BinlogError, ErrorKind

BATCH_ROWS = 65_536
BATCH_BYTES = 128 << 20  # of row images: a batch of larger rows has fewer of them
# Of one `TableSlice`: its reader holds a few of them beside the delivered bytes, which may be 16 times as many.
MAX_PAYLOAD_BYTES = 4 << 20

# `{"database.table": the answer of GET /v1/consumers/{c}/tables/{database.table}}`; needed only for tables whose
# TABLE_MAP lacks metadata.
Definitions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Rows of one layout of one table, in stream order.

    `batch`: the columns of `change_schema(table_map.columns)`. `invalid_dates`: how many cells hold an invalid
    date ('0000-00-00', 2024-02-31 ...) and are NULL in `batch` (with `InvalidDates.NULL`).
    """

    table_map: TableMap
    batch: pa.RecordBatch
    invalid_dates: int


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement that is neither a row change nor transaction control: CREATE, ALTER, DROP, TRUNCATE, GRANT ...

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
    """Adjacent row changes of one table, of one layout and one epoch, as bytes.

    `rows`: row changes, of which `inserts`, `updates` and `deletes`; `committed_at`: of the last transaction, µs since
    1970 UTC; `table_map`: the body of the TABLE_MAP event, from which `TableMap.parse` gives the driver the schema;
    `payload`: a delivered binlog with only this table's events, for `decode_table`; rows keep their (seq, ordinal).
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


def change_schema(
    columns: Sequence[Column], table: str = "", invalid_dates: InvalidDates = InvalidDates.NULL
) -> pa.Schema:
    """The schema of decoded changes: `epoch`, `seq`, `ordinal` int64 not null; `gtid`, `file` string; `pos` int64;
    `committed_at` timestamp('us', 'UTC'); `database`, `table`, `op` ('insert', 'update', 'delete') string;
    `before_absent`, `after_absent` list of the names of columns that the image does not hold (null if it holds all);
    `before`, `after` struct of the table's columns (null if the operation has no such image), each field nullable.

    Raises `BinlogError` UNSUPPORTED_TYPE or METADATA_MISSING, naming the column; `table` is for messages.
    """
    if not all(column.name for column in columns):
        raise BinlogError(ErrorKind.METADATA_MISSING, f"no column names for table {table}")
    return _schema([pa.field(c.name, arrow_type(c, table, invalid_dates)) for c in columns])


_ENVELOPE = (
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
    pa.field("ordinal", pa.int64(), nullable=False),
    pa.field("gtid", pa.string()),
    pa.field("file", pa.string()),
    pa.field("pos", pa.int64()),
    pa.field("committed_at", pa.timestamp("us", "UTC")),
    pa.field("database", pa.string()),
    pa.field("table", pa.string()),
    pa.field("op", pa.string()),
    pa.field("before_absent", NAMES),
    pa.field("after_absent", NAMES),
)
_CONTROL = (
    QueryKind.BEGIN,
    QueryKind.COMMIT,
    QueryKind.ROLLBACK,
    QueryKind.SAVEPOINT,
    QueryKind.XA,
)
_OPS = arrow_buffers.string_array(["insert", "update", "delete"])


def changes(
    data: bytes | memoryview,
    definitions: Definitions | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    invalid_dates: InvalidDates = InvalidDates.NULL,
) -> Iterator[TableChanges | Ddl]:
    """Decode delivered bytes. DDL statements keep their place in the stream. Between two of them the changes are
    grouped by table, each table's in stream order; (`epoch`, `seq`, `ordinal`) orders all changes.

    Raises `BinlogError` with the offset for bytes that are not a binlog, and for layouts that cannot be decoded.
    """
    index = Index.of(data)
    layouts = _Layouts(index)
    decoders: dict[int, TableDecoder] = {}
    for part in _parts(index, layouts):
        if isinstance(part, Ddl):
            yield part
            continue
        if part.layout not in decoders:
            table_map = layouts.table_map(part.layout)
            if definitions and not table_map.named and table_map.label in definitions:
                table_map = table_map.with_columns(definitions[table_map.label])
            decoders[part.layout] = TableDecoder(table_map, invalid_dates)
        yield from _decoded(index, part.events, decoders[part.layout], batch_rows)


def split_by_table(
    data: bytes | memoryview, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES
) -> Iterator[TableSlice | Ddl]:
    """Split delivered bytes by table without decoding rows. Holds one payload at a time.

    A DDL statement or a change of the epoch ends every slice before it. A slice larger than `max_payload_bytes` is
    split between two of its events, possibly inside a transaction; `last_seq` of the first is `first_seq` of the
    second then.

    Raises `BinlogError` as `changes` does, except for faults that only decoding finds.
    """
    index = Index.of(data)
    layouts = _Layouts(index)
    for part in _parts(index, layouts):
        if isinstance(part, Ddl):
            yield part
        else:
            yield from _slices(index, layouts, part, max_payload_bytes)


def row_counts(data: bytes) -> dict[int, int]:
    """Count the rows of each rows event without decoding, by the event's index in its transaction.

    Raises `BinlogError` as `split_by_table` does.
    """
    index = Index.of(data)
    layouts = _Layouts(index)
    rows: dict[int, int] = {}
    for part in _parts(index, layouts):
        if isinstance(part, _Part):
            counts = _counts(index, part.events, layouts.table_map(part.layout))
            rows |= zip(part.events[:, row_walk.INDEX].tolist(), counts.tolist(), strict=True)
    return rows


def decode_table(
    payload: bytes | memoryview,
    definitions: Definitions | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    invalid_dates: InvalidDates = InvalidDates.NULL,
) -> Iterator[pa.RecordBatch]:
    """Decode a `TableSlice.payload` to batches of at most `batch_rows` rows, with the columns of `change_schema`."""
    for item in changes(payload, definitions, batch_rows=batch_rows, invalid_dates=invalid_dates):
        if isinstance(item, TableChanges):
            yield item.batch


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows events of one layout between two DDL statements or changes of the epoch."""

    layout: int
    events: NDArray[np.int64]


class _Layouts:
    """The distinct layouts of an index. Each is parsed at its first use, so a table that is not decoded cannot fail."""

    def __init__(self, index: Index) -> None:
        bodies = [index.buf[start:end].tobytes() for start, end in index.versions[:, 1:3].tolist()]
        numbers: dict[str, int] = {}
        self.of_version = np.array(
            [numbers.setdefault(layout_id(body), len(numbers)) for body in bodies], np.int64
        )
        first = {
            layout: version
            for version, layout in reversed(list(enumerate(self.of_version.tolist())))
        }
        self.bodies = [bodies[first[layout]] for layout in range(len(numbers))]
        self._offsets = [int(index.versions[first[layout], 1]) for layout in range(len(numbers))]
        self._table_maps: dict[int, TableMap] = {}

    def table_map(self, layout: int) -> TableMap:
        if layout not in self._table_maps:
            try:
                self._table_maps[layout] = TableMap.parse(self.bodies[layout])
            except BinlogError as error:
                raise error.at(f"offset {self._offsets[layout]}") from None
        return self._table_maps[layout]


def _parts(index: Index, layouts: _Layouts) -> Iterator[_Part | Ddl]:
    events = index.events
    queries = np.flatnonzero(events[:, row_walk.TYPE] == EventType.QUERY)
    ddl = {line: statement for line in queries.tolist() if (statement := _ddl(index, line))}
    epochs = index.txns[events[:, row_walk.TXN], EPOCH]
    new_epochs = np.flatnonzero(np.diff(epochs, prepend=epochs[:1]) != 0)
    bounds = sorted({0, len(events), *new_epochs.tolist(), *ddl, *(line + 1 for line in ddl)})
    for start, end in itertools.pairwise(bounds):
        if start in ddl:
            yield ddl[start]
            continue
        run = events[start:end]
        run = run[run[:, row_walk.VERSION] >= 0]
        of_event = layouts.of_version[run[:, row_walk.VERSION]]
        present, firsts = np.unique(of_event, return_index=True)
        for layout in present[np.argsort(firsts)].tolist():
            yield _Part(layout, run if len(present) == 1 else run[of_event == layout])


def _ddl(index: Index, line: int) -> Ddl | None:
    offset, end, _, number, txn = index.events[line, :5].tolist()
    try:
        database, query, sql_mode = read_statement(index.buf[offset + HEADER_SIZE : end].tobytes())
    except BinlogError as error:
        raise error.at(f"offset {offset}") from None
    kind = classify(query)
    if kind in _CONTROL or not query.strip():
        return None
    if kind is QueryKind.DML:
        # The text may hold values, so the message quotes only its first word.
        raise BinlogError(
            ErrorKind.STATEMENT_FORMAT,
            f"{query.split(None, 1)[0][:20]} in database {database!r}",
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
        database,
        query,
        sql_mode,
    )


def _counts(index: Index, events: NDArray[np.int64], table_map: TableMap) -> NDArray[np.int64]:
    counts = np.empty(len(events), dtype=np.int64)
    if (line := row_walk.count(index.buf, events, cell_widths(table_map.columns), counts)) >= 0:
        raise _walk_error(int(counts[line]), int(events[line, row_walk.OFFSET]), table_map)
    return counts


def _slices(index: Index, layouts: _Layouts, part: _Part, bytes_max: int) -> Iterator[TableSlice]:
    table_map = layouts.table_map(part.layout)
    counts = _counts(index, part.events, table_map)
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


def _decoded(
    index: Index, events: NDArray[np.int64], decoder: TableDecoder, batch_rows: int
) -> Iterator[TableChanges]:
    # A row has at least its null bits, so a small group of events does not need arrays for a whole batch.
    columns = len(decoder.widths)
    most = int((events[:, row_walk.END] - events[:, row_walk.OFFSET]).sum()) // ((columns + 7) // 8)
    cells = row_walk.RowCells.room(columns, min(batch_rows, most))
    state = np.zeros(5, dtype=np.int64)
    while n := row_walk.walk(index.buf, events, decoder.widths, state, cells, BATCH_BYTES):
        if n < 0:
            raise _walk_error(n, int(state[4]), decoder.table_map)
        base, op = int(state[3]), cells.op[:n]
        images, invalid_dates = [], 0
        for at, lacking in ((cells.before, row_walk.INSERT), (cells.after, row_walk.DELETE)):
            missing = op == lacking
            if missing.all():
                images.append(pa.nulls(n, pa.struct(decoder.fields)))
                continue
            mask = missing if missing.any() else None
            if mask is not None:
                at[:, :n][:, mask] = -1
            decoded = decoder.decode(index.buf[base:], at[:, :n], base, mask, cells.before[:, :n])
            images.append(decoded.array)
            invalid_dates += decoded.invalid_dates
        envelope = _envelope(index, events, decoder.table_map, cells, n)
        envelope += _missing_columns(index, events, decoder.table_map, cells, n)
        batch = pa.RecordBatch.from_arrays([*envelope, *images], schema=_schema(decoder.fields))
        yield TableChanges(decoder.table_map, batch, invalid_dates)


def _missing_columns(
    index: Index, events: NDArray[np.int64], table_map: TableMap, cells: row_walk.RowCells, n: int
) -> list[pa.Array]:
    first, last = int(cells.event[0]), int(cells.event[n - 1])
    missing = MissingColumns.of(index.buf, events[first : last + 1], table_map.columns)
    if missing is None:
        return [pa.nulls(n, NAMES), pa.nulls(n, NAMES)]
    event = cells.event[:n] - np.int32(first)
    before, after = (missing.column(lines, event) for lines in (missing.before, missing.after))
    return [before, _unchanged(after, events, table_map, cells, n)]


def _unchanged(
    after: pa.Array,
    events: NDArray[np.int64],
    table_map: TableMap,
    cells: row_walk.RowCells,
    n: int,
) -> pa.Array:
    """Add to `after` the JSON columns of partial updates that did not change, and whose value the log does not hold."""
    partial = events[cells.event[:n], row_walk.TYPE] == EventType.PARTIAL_UPDATE_ROWS
    if not partial.any():
        return after
    missing = (cells.after[:, :n] == row_walk.ABSENT) & partial
    lists = after.to_pylist()
    for row in np.flatnonzero(missing.any(axis=0)).tolist():
        lists[row] = [table_map.columns[c].name for c in np.flatnonzero(missing[:, row])]
    return list_of_names(lists)


def _schema(fields: Sequence[pa.Field]) -> pa.Schema:
    row = pa.struct(fields)
    return pa.schema([*_ENVELOPE, pa.field("before", row), pa.field("after", row)])


def _envelope(
    index: Index, events: NDArray[np.int64], table_map: TableMap, cells: row_walk.RowCells, n: int
) -> list[pa.Array]:
    txn_of_row = events[cells.event[:n], row_walk.TXN]
    starts = np.flatnonzero(np.diff(txn_of_row, prepend=-1))
    lengths = np.diff(starts, append=n)
    runs = index.txns[txn_of_row[starts]]

    def numbers(column: int, target: pa.DataType) -> pa.Array:
        return arrow_buffers.fixed(target, np.repeat(runs[:, column], lengths))

    files = arrow_buffers.string_array(index.files).take(
        arrow_buffers.fixed(pa.int64(), runs[:, FILE].copy())
    )
    op = cells.op[:n]
    op_starts = np.flatnonzero(np.diff(op, prepend=-1))
    ops = _OPS.take(arrow_buffers.fixed(pa.int8(), op[op_starts]))
    return [
        numbers(EPOCH, pa.int64()),
        numbers(SEQ, pa.int64()),
        arrow_buffers.fixed(pa.int64(), cells.ordinal[:n].copy()),
        arrow_buffers.spread(gtid_strings(index.buf, runs[:, GTID]), lengths),
        arrow_buffers.spread(files, lengths),
        numbers(POSITION, pa.int64()),
        numbers(COMMIT_US, pa.timestamp("us", "UTC")),
        arrow_buffers.repeated(table_map.database, n),
        arrow_buffers.repeated(table_map.table, n),
        arrow_buffers.spread(ops, np.diff(op_starts, append=n)),
    ]


def _walk_error(code: int, offset: int, table_map: TableMap) -> BinlogError:
    where = f"offset {offset}"
    if code == row_walk.NO_COLUMNS:
        what = f"rows of table {table_map.label} hold no column, so they cannot be counted"
        return BinlogError(ErrorKind.ROW_IMAGE, what, where=where)
    why = {
        row_walk.OTHER_OPTIONS: "have unknown options",
        row_walk.OTHER_WIDTH: "have another number of columns than its TABLE_MAP",
        row_walk.TOO_MANY_ROWS: "are more than 2^24 in one event",
        row_walk.TOO_LARGE: "include one of more than 2 GiB",
    }.get(code, "reach past the end of their event")
    return BinlogError(
        ErrorKind.MALFORMED_EVENT, f"rows of table {table_map.label} {why}", where=where
    )
