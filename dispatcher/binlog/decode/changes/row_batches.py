"""Decodes rows events of one layout to Arrow batches: the columns of the envelope (which say when, where and how a row
changed; see `ENVELOPE`), and the two images of each change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import NAMES, images_schema
from dispatcher.binlog.decode.arrow.invalid import InvalidCell
from dispatcher.binlog.decode.changes.missing_columns import MissingColumns, list_of_names
from dispatcher.binlog.decode.changes.ops import ROW_OPS
from dispatcher.binlog.decode.changes.walked_rows import WalkedRows, current_rows
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import (
    COMMIT_US,
    EPOCH,
    FILE,
    GTID,
    POSITION,
    SEQ,
)
from dispatcher.binlog.decode.formats.gtid_text import gtid_strings
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import TableKind
from dispatcher.model.errors import BinlogError, ErrorKind

BATCH_ROWS = 65_536
BATCH_BYTES = 128 << 20  # limit of the row images in a batch: a batch of large rows has fewer rows

_OPS = arrow_buffers.string_array(ROW_OPS)


class DecodedRows(NamedTuple):
    """The images of a batch's rows, as structs of the decoder's fields. `invalid_dates`: see `Decoded`; `invalid`: the
    invalid cells of the images after the changes."""

    walked: WalkedRows
    before: pa.Array
    after: pa.Array
    invalid_dates: int
    invalid: tuple[InvalidCell, ...] = ()


def decoded_rows(
    index: Index,
    events: NDArray[np.int64],
    decoder: TableDecoder,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[DecodedRows]:
    """Decode rows events of one layout, in batches of at most `batch_rows` rows and about `batch_bytes` bytes of
    events. The arrays of `walked.cells` are valid until the next batch is built.

    Raises `BinlogError` MALFORMED_EVENT, ROW_IMAGE, or what the columns' decoders raise.
    """
    for walked in walked_rows(index, events, decoder, batch_rows, batch_bytes):
        yield _with_images(walked, decoder)


def walked_rows(
    index: Index,
    events: NDArray[np.int64],
    decoder: TableDecoder,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[WalkedRows]:
    """Find the cells of rows events of one layout, in the batches of `decoded_rows`. The arrays of `cells` are valid
    until the next batch is built.

    For a system-versioned table, only the changes of current rows are returned, unless `table_map` was made by
    `TableMap.with_all_versions`. Raises `BinlogError` MALFORMED_EVENT, ROW_IMAGE, and METADATA_MISSING if the kind of
    the table is in doubt.
    """
    decoder.table_map.require_kind()
    sizes = events[:, row_walk.END] - events[:, row_walk.OFFSET]
    # A row has at least its null bits, so the size of the events bounds the number of rows, and thus the size of the
    # arrays.
    columns = len(decoder.widths)
    runs = list(_runs(sizes, batch_bytes))
    most = max(int(sizes[run].sum()) for run in runs) if runs else 0
    cells = row_walk.RowCells.room(columns, min(batch_rows, most // ((columns + 7) // 8)))
    for run in runs:
        # Events of other tables may lie between the events of a run. An event larger than a batch is cut between its
        # rows.
        span = batch_bytes if sizes[run][0] > batch_bytes else max(batch_bytes, BATCH_BYTES)
        yield from _walked_run(index, events[run], decoder, cells, span)


def _runs(sizes: NDArray[np.int64], bytes_max: int) -> Iterator[slice]:
    """Divide events of these sizes into runs of about `bytes_max` bytes. Only a run's first event may exceed
    `bytes_max`."""
    group = (np.cumsum(sizes) - 1) // bytes_max
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(sizes)], strict=True):
        yield slice(start, end)


def _walked_run(
    index: Index,
    events: NDArray[np.int64],
    decoder: TableDecoder,
    cells: row_walk.RowCells,
    bytes_max: int,
) -> Iterator[WalkedRows]:
    state = np.zeros(row_walk.WALK_FIELDS, dtype=np.int64)
    while n := row_walk.walk(index.buf, events, decoder.widths, state, cells, bytes_max):
        if n < 0:
            raise _walk_error(n, int(state[4]), decoder.table_map)
        walked = WalkedRows(index, events, cells, n, base=int(state[3]), sparse=bool(state[5]))
        if decoder.table_map.kind is TableKind.VERSIONED:
            walked = current_rows(walked, decoder.table_map)
        if walked.n:
            yield walked


def _with_images(walked: WalkedRows, decoder: TableDecoder) -> DecodedRows:
    index, _, cells, n, base, _ = walked
    op = cells.op[:n]
    images, invalid_dates, invalid = [], 0, tuple[InvalidCell, ...]()
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
        if at is cells.after:
            invalid = decoded.invalid
    before, after = images
    return DecodedRows(walked, before, after, invalid_dates, invalid)


def newest_image(walked: WalkedRows, decoder: TableDecoder) -> pa.StructArray:
    """Decode one image of each row: the image after the change, or for a deletion the image before it. Raises
    `BinlogError`."""
    return _one_image(walked, decoder, walked.cells.op[: walked.n] == row_walk.DELETE)


def oldest_image(walked: WalkedRows, decoder: TableDecoder) -> pa.StructArray:
    """Decode one image of each row: the image before the change, or for an insertion the image after it. Raises
    `BinlogError`."""
    return _one_image(walked, decoder, walked.cells.op[: walked.n] != row_walk.INSERT)


def _one_image(
    walked: WalkedRows, decoder: TableDecoder, is_before: NDArray[np.bool_]
) -> pa.StructArray:
    index, _, cells, n, base, _ = walked
    before, at = cells.before[:, :n], cells.after[:, :n]
    if is_before.all():
        at = before
    elif is_before.any():
        at = np.where(is_before, before, at)
    return decoder.decode(index.buf[base:], at, base, None, before).array


def envelope(rows: WalkedRows, table_map: TableMap) -> list[pa.Array]:
    """Returns the columns of `ENVELOPE`."""
    return [*_about_change(rows, table_map), *absent_columns(rows, table_map)]


def newest_envelope(rows: WalkedRows, table_map: TableMap) -> list[pa.Array]:
    """Returns the columns of `NEWEST_ENVELOPE`."""
    before_absent, absent = absent_columns(rows, table_map)
    if rows.sparse:
        deleted = arrow_buffers.booleans(rows.cells.op[: rows.n] == row_walk.DELETE)
        absent = pc.if_else(deleted, before_absent, absent)
    return [*_about_change(rows, table_map), absent]


def absent_columns(rows: WalkedRows, table_map: TableMap) -> list[pa.Array]:
    """Returns `before_absent` and `after_absent` of `ENVELOPE`."""
    index, events, cells, n, _, sparse = rows
    if not sparse:
        return [pa.nulls(n, NAMES), pa.nulls(n, NAMES)]
    return _missing_columns(index, events, table_map, cells, n)


def change_batch(rows: DecodedRows, decoder: TableDecoder) -> pa.RecordBatch:
    """Returns the columns of `images_schema` of the decoder's fields."""
    arrays = [*envelope(rows.walked, decoder.table_map), rows.before, rows.after]
    return pa.RecordBatch.from_arrays(arrays, schema=images_schema(decoder.fields))


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
    """Add to the lists `after`, for partial updates, the JSON columns that did not change and whose values the log
    lacks."""
    partial = events[cells.event[:n], row_walk.TYPE] == EventType.PARTIAL_UPDATE_ROWS
    if not partial.any():
        return after
    missing = (cells.after[:, :n] == row_walk.ABSENT) & partial
    lists = after.to_pylist()
    for row in np.flatnonzero(missing.any(axis=0)).tolist():
        lists[row] = [table_map.columns[c].name for c in np.flatnonzero(missing[:, row])]
    return list_of_names(lists)


def _about_change(rows: WalkedRows, table_map: TableMap) -> list[pa.Array]:
    index, events, cells, n, *_ = rows
    txn_of_row = events[cells.event[:n], row_walk.TXN]
    starts = np.flatnonzero(np.diff(txn_of_row, prepend=-1))
    lengths = np.diff(starts, append=n)
    runs = index.txns[txn_of_row[starts]]
    single = len(runs) == n  # True if each transaction has one row

    def numbers(column: int, target: pa.DataType) -> pa.Array:
        values = runs[:, column]
        return arrow_buffers.fixed(target, values.copy() if single else np.repeat(values, lengths))

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


def row_counts_of(
    index: Index, events: NDArray[np.int64], table_map: TableMap
) -> NDArray[np.int64]:
    """Count the rows of each event. Raises `BinlogError` as `decoded_rows` does."""
    counts = np.empty(len(events), dtype=np.int64)
    if (
        line := row_walk.count(index.buf, events, row_walk.cell_widths(table_map.columns), counts)
    ) >= 0:
        raise _walk_error(int(counts[line]), int(events[line, row_walk.OFFSET]), table_map)
    return counts
