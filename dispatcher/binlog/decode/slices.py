"""One table's events cut out of delivered bytes, as delivered bytes again.

What stands before a kept event: the FORMAT_DESCRIPTION, where it differs from the last one; at the beginning of each
transaction its RECORD and GTID event; a RECORD wherever events were left out, so that the index of the next one, and
with it the ordinal of each row, stays what it was; and the TABLE_MAP in force. The result is for our own reader:
transaction control is left out.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.decode.index_kernels import GTID, GTID_INDEX, RECORD
from dispatcher.binlog.decode.row_walk import END, FORMAT, INDEX, MAP_INDEX, MAP_OFFSET, OFFSET, TXN
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit

_FIRST_EVENT = 51


@njit
def put(buf: U8, at: Int, out: U8, o: Int) -> Int:
    """Copy a whole event; nothing is written where `out` is empty. Returns the offset behind it."""
    size = little(buf, at + 9, 4)
    if len(out):
        copy(out, o, buf, at, size)
    return o + size


@njit
def put_record(buf: U8, at: Int, first_event: Int, tail: Int, out: U8, o: Int) -> Int:
    """Copy a RECORD with another index of the event that follows."""
    end = put(buf, at, out, o)
    if len(out):
        for i in range(4):
            out[o + _FIRST_EVENT + i] = first_event >> (8 * i) & 0xFF
        if tail:
            crc = np.int64(crc32(out, o, end - 4))
            for i in range(4):
                out[end - 4 + i] = crc >> (8 * i) & 0xFF
    return end


@njit
def assemble(
    buf: U8,
    events: I64,
    txns: I64,
    formats: I64,
    bytes_max: Int,
    out: U8,
) -> tuple[Int, Int]:
    """(lines of `events` taken, bytes): as many as fit into `bytes_max`, one at least. `out` empty: only measure."""
    o = np.int64(4)
    if len(out):
        out[0], out[1], out[2], out[3] = 0xFE, 0x62, 0x69, 0x6E
    last_format = last_txn = last_map = next_index = np.int64(-1)
    for line in range(len(events)):
        start = o
        txn = events[line, TXN]
        size = little(buf, events[line, OFFSET] + 9, 4)
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
    buf: U8,
    events: I64,
    txns: I64,
    formats: I64,
    bytes_max: Int,
) -> tuple[int, bytes]:
    """(lines of `events` taken, the payload)."""
    lines, size = assemble(buf, events, txns, formats, bytes_max, np.empty(0, dtype=np.uint8))
    out = np.empty(size, dtype=np.uint8)
    assemble(buf, events[:lines], txns, formats, bytes_max, out)
    return lines, out.tobytes()
