"""Writes changes in the envelope of Debezium's MySQL connector, as JSON without schemas.

A row's line has the keys `before`, `after`, `source`, `transaction`, `op` (c, u or d), `ts_ms`, `ts_us` and `ts_ns`. An
update that changes the primary key becomes a deletion and an insertion. A statement's line has the keys of the
connector's schema changes, without `tableChanges`. `docs/read.md` lists the differences from Debezium.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.changes.json_render import IMAGES, json_objects, json_text
from dispatcher.binlog.decode.changes.ops import Op
from dispatcher.binlog.decode.changes.walked_rows import WalkedRows
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import GTID
from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I64
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement
from dispatcher.reader.change_lines import LINE_ORDER, finished_lines, json_line
from dispatcher.reader.debezium_values import debezium_image

_HEADER = np.dtype(
    [("timestamp", "<u4"), ("type", "u1"), ("server_id", "<u4"), ("size", "<u4"), ("log_pos", "<u4")]
)  # fmt: skip
_LOG_POS_MASK = 0xFFFFFFFF


class DebeziumForm:
    """The form of the lines. `name`: the key `name` of `source`, which is Debezium's `topic.prefix`."""

    def __init__(self, name: str) -> None:
        self._head = {
            "version": version("binlog-dispatcher"),
            "connector": "mysql",
            "name": name,
            "snapshot": "false",
        }

    def row_lines(self, part: TableChanges) -> pa.RecordBatch:
        """Returns the columns `line`, `epoch`, `seq` and `ordinal` of a batch of rows."""
        table_map, batch = part.table_map, part.batch
        images = {name: debezium_image(batch.column(name), table_map.columns) for name in IMAGES}
        absent = {f"{name}_absent": batch.column(f"{name}_absent") for name in IMAGES}
        texts = json_text(_batch(images | absent))
        rows = _batch(
            {name: texts.column(name) for name in IMAGES}
            | {"source": self._sources(part), "op": _letters(batch.column("op"))}
            | {name: batch.column(name) for name in LINE_ORDER}
        )
        rows = _split_updates(rows, _changes_key(batch, table_map.key))
        now_ns = np.full(len(rows), time.time_ns())
        members = {name: rows.column(name) for name in (*IMAGES, "source")}
        members |= {"transaction": pa.nulls(len(rows), pa.string()), "op": rows.column("op")}
        members |= _times(now_ns)
        objects = json_objects(_batch(members).to_struct_array(), {}, (*IMAGES, "source"))
        return finished_lines(objects, rows)

    def statement_line(self, ddl: Ddl) -> str:
        """Returns the line of a statement. The line has the database and the name of the first table that the statement
        names."""
        micros, header = ddl.committed_at, ddl.header
        tables = parse_statement(ddl.statement, ROUTING_BOUNDS).tables
        database, table = next(iter(tables), (ddl.statement.database, None))
        source = self._head | {
            "ts_ms": micros // 1000,
            "db": database,
            "sequence": None,
            "ts_us": micros,
            "ts_ns": micros * 1000,
            "table": table,
            "server_id": header.server_id,
            "gtid": ddl.gtid or None,
            "file": ddl.file,
            "pos": header.log_pos - header.size & _LOG_POS_MASK,
            "row": 0,
            "thread": None,
            "query": None,
        }
        change = {"databaseName": database, "schemaName": None}
        now = {"ts_ms": time.time_ns() // 1_000_000}
        return json_line({"source": source} | now | change | {"ddl": ddl.statement.text})

    def _sources(self, part: TableChanges) -> pa.Array:
        """Returns the key `source` of each row as JSON."""
        walked, batch = part.walked, part.batch
        n = walked.n
        event = walked.cells.event[:n]
        headers = _headers(walked.log, walked.events[event[0] : event[-1] + 1, row_walk.OFFSET])
        headers = headers[event - event[0]]
        size, log_pos = headers["size"].astype(np.int64), headers["log_pos"].astype(np.int64)
        micros = batch.column("committed_at").cast(pa.int64()).to_numpy()
        texts = self._head | {"db": part.table_map.database, "table": part.table_map.table}
        columns = {name: arrow_buffers.repeated(text, n) for name, text in texts.items()}
        columns |= _times(micros * 1000) | {
            "sequence": pa.nulls(n, pa.string()),
            "server_id": arrow_buffers.fixed(pa.int64(), headers["server_id"].astype(np.int64)),
            "gtid": batch.column("gtid"),
            "file": batch.column("file"),
            "pos": arrow_buffers.fixed(pa.int64(), log_pos - size & _LOG_POS_MASK),
            "row": arrow_buffers.fixed(pa.int64(), walked.cells.ordinal[:n] & _ROW_MASK),
            "thread": _threads(walked),
            "query": pa.nulls(n, pa.string()),
        }
        return json_objects(_batch(columns).to_struct_array(), {})


_ROW_MASK = (1 << row_walk.ROW_BITS) - 1


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _times(nanoseconds: NDArray[np.int64]) -> dict[str, pa.Array]:
    units = {"ts_ms": 1_000_000, "ts_us": 1000, "ts_ns": 1}
    return {name: arrow_buffers.fixed(pa.int64(), nanoseconds // ns) for name, ns in units.items()}


def _headers(log: Index, at: I64) -> NDArray[Any]:
    """Returns the headers of the events at these offsets."""
    raw = log.buf[at[:, None] + np.arange(_HEADER.itemsize)]
    return np.ascontiguousarray(raw).view(_HEADER)[:, 0]


def _threads(walked: WalkedRows) -> pa.Array:
    """Returns the id of the connection that wrote each row: BEGIN, which follows the GTID event, contains it."""
    log, n = walked.log, walked.n
    txns, txn_of_row = np.unique(
        walked.events[walked.cells.event[:n], row_walk.TXN], return_inverse=True
    )
    at = log.txns[txns, GTID]
    known = at >= 0
    at[known] += _headers(log, at[known])["size"]
    known[known] = _headers(log, at[known])["type"] == EventType.QUERY
    threads = np.zeros(len(txns), dtype=np.int64)
    # The id is the first field of a QUERY, where an event's header would have its time.
    threads[known] = _headers(log, at[known] + HEADER_SIZE)["timestamp"]
    return arrow_buffers.fixed(pa.int64(), threads[txn_of_row], known[txn_of_row])


_LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}


def _letters(ops: pa.Array) -> pa.Array:
    names = arrow_buffers.string_array(list(_LETTERS))
    return arrow_buffers.string_array(list(_LETTERS.values())).take(pc.index_in(ops, names))


def _changes_key(batch: pa.RecordBatch, key: tuple[int, ...]) -> NDArray[np.bool_]:
    """Returns for each row whether it is an update that changes the primary key."""
    changed = np.zeros(len(batch), dtype=np.bool_)
    before, after = (batch.column(name) for name in IMAGES)
    if before.null_count < len(batch) and after.null_count < len(batch):
        for i in key:
            differs = pc.fill_null(pc.not_equal(before.field(i), after.field(i)), False)
            changed |= differs.to_numpy(zero_copy_only=False)
        changed &= pc.equal(batch.column("op"), Op.UPDATE).to_numpy(zero_copy_only=False)
    return changed


def _split_updates(rows: pa.RecordBatch, chosen: NDArray[np.bool_]) -> pa.RecordBatch:
    """Replace each of the chosen updates by a deletion and an insertion, as Debezium does."""
    if not chosen.any():
        return rows
    index = np.repeat(np.arange(len(rows)), 1 + chosen)
    second = np.append(False, index[1:] == index[:-1])
    first = np.append(second[1:], False)
    columns = {name: rows.column(name).take(pa.array(index)) for name in rows.schema.names}
    for name, gone, letter in (("after", first, "d"), ("before", second, "c")):
        mask = arrow_buffers.booleans(gone)
        columns[name] = pc.if_else(mask, pa.scalar(None, pa.string()), columns[name])
        columns["op"] = pc.if_else(mask, letter, columns["op"])
    return _batch(columns)
