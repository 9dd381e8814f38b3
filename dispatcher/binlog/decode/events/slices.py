"""Copies one table's events out of delivered bytes into a separate delivered binlog.

The copy contains the rows events and the events that are needed to decode them: a FORMAT_DESCRIPTION if it differs from
the previous one; at the beginning of each transaction its RECORD and GTID event; a RECORD at each place where events
are left out, so that each event keeps its index and each row its ordinal; and the TABLE_MAP in force. The copy has no
BEGIN or COMMIT, so only this project's decoder can read it.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.decode.events.index_kernels import GTID, GTID_INDEX, RECORD
from dispatcher.binlog.decode.events.row_walk import (
    END,
    FORMAT,
    INDEX,
    MAP_INDEX,
    MAP_OFFSET,
    OFFSET,
    TXN,
)
from dispatcher.binlog.event.header import SIZE_AT
from dispatcher.binlog.event.record import FIRST_EVENT_AT
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit


@njit
def put(buf: U8, at: Int, out: U8, o: Int) -> Int:
    """Copy a whole event, unless `out` is empty. Returns the offset after the event in `out`."""
    size = little(buf, at + SIZE_AT, 4)
    if len(out):
        copy(out, o, buf, at, size)
    return o + size


@njit
def put_record(buf: U8, at: Int, first_event: Int, tail: Int, out: U8, o: Int) -> Int:
    """Copy a RECORD, and set the field `first_event` of the copy."""
    end = put(buf, at, out, o)
    if len(out):
        for i in range(4):
            out[o + FIRST_EVENT_AT + i] = first_event >> (8 * i) & 0xFF
        if tail:
            crc = np.int64(crc32(out, o, end - 4))
            for i in range(4):
                out[end - 4 + i] = crc >> (8 * i) & 0xFF
    return end


@njit
def assemble(
    buf: U8, events: I64, txns: I64, formats: I64, bytes_max: Int, out: U8
) -> tuple[Int, Int]:
    """Copy as many `events` as fit into `bytes_max`, but at least one. Returns (events copied, bytes). If `out` is
    empty, copy nothing and only compute the size."""
    o = np.int64(4)
    if len(out):
        out[0], out[1], out[2], out[3] = 0xFE, 0x62, 0x69, 0x6E
    last_format = last_txn = last_map = next_index = np.int64(-1)
    for line in range(len(events)):
        start = o
        txn = events[line, TXN]
        size = little(buf, events[line, OFFSET] + SIZE_AT, 4)
        tail = events[line, OFFSET] + size - events[line, END]
        record = txns[txn, RECORD]
        if events[line, FORMAT] != last_format:
            last_format = events[line, FORMAT]
            o = put(buf, formats[last_format], out, o)
            last_txn = np.int64(-1)
        if txn != last_txn:
            last_txn = txn
            last_map = np.int64(-1)
            next_index = np.int64(0)
            if txns[txn, GTID] >= 0:
                next_index = txns[txn, GTID_INDEX]
                o = put_record(buf, record, next_index, tail, out, o)
                o = put(buf, txns[txn, GTID], out, o)
                next_index += 1
            else:
                o = put_record(buf, record, next_index, tail, out, o)
        if events[line, MAP_OFFSET] != last_map:
            last_map = events[line, MAP_OFFSET]
            if events[line, MAP_INDEX] != next_index:
                o = put_record(buf, record, events[line, MAP_INDEX], tail, out, o)
            o = put(buf, last_map, out, o)
            next_index = events[line, MAP_INDEX] + 1
        if events[line, INDEX] != next_index:
            o = put_record(buf, record, events[line, INDEX], tail, out, o)
        o = put(buf, events[line, OFFSET], out, o)
        next_index = events[line, INDEX] + 1
        if line > 0 and o > bytes_max:
            return line, start
    return len(events), o


def build_payload(
    buf: U8, events: I64, txns: I64, formats: I64, bytes_max: Int
) -> tuple[int, memoryview]:
    """Return the number of events copied, and the payload, which is read-only."""
    lines, size = assemble(buf, events, txns, formats, bytes_max, np.empty(0, dtype=np.uint8))
    out = np.empty(size, dtype=np.uint8)
    assemble(buf, events[:lines], txns, formats, bytes_max, out)
    return lines, memoryview(out).toreadonly()  # type: ignore[arg-type]
