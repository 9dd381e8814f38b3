"""The kernel that walks a buffer of packets (or of a file's events): framing, checksums, transactions, routes.

It fills `Events` and `Transactions`, keeps what survives a call in one array of integers, and comes back with a
reason when it needs more bytes or something that only Python can do. What is checked here: sizes against packets,
every event's CRC32, and that rows stand in transactions and refer to table maps.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.arrays import (
    FRAME,
    ROWS,
    ROWS_END,
    TABLE_MAP,
    TEXT,
    U8,
    I32,
    I64,
    Events,
    Transactions,
    u16,
    u32,
)
from dispatcher.binlog.crc import crc32
from dispatcher.binlog.jit import njit
from dispatcher.binlog.routes import ALL, NOBODY, find

# Why the kernel came back.
MORE, FULL, PYTHON, NEW_TABLE, NEW_SOURCE, LARGE, PACKET, CHECKSUM, MALFORMED = range(9)
WHY = (
    "",
    "has a size that does not fit its packet",
    "is cut short",
    "stands outside a transaction",
    "refers to a table map that is missing",
    "stands inside a transaction",
    "is one table map too many in its statement",
)

# What survives between calls, by its place in the state array.
AT = 0  # next byte to look at
END = 1  # bytes in the buffer
CHECKED = 2  # do events end in a CRC32?
PACKETS = 3  # packets of the protocol, or bare events of a file?
FILE_POS = 4  # offset in the source's file after the last event
TX = 5  # NO_TX, TX_STARTED, TX_BEGUN
SOURCE = 6  # of the open transaction: index of its GTID's source, -1 = no GTID
GNO = 7
COMMIT_US = 8
MAPS = 9  # table maps of the open statement
HEAD = 10  # index of the open statement's first event (text or table map), -1 = none
N_EVENTS = 11
N_TXS = 12
OFF = 13  # the event that the kernel came back for: offset,
SIZE = 14  # size,
NEXT = 15  # and what follows it
REASON = 16  # index in WHY
TIMESTAMP = 17  # of the last event
TX_FIRST = 18  # of the open transaction: index of its first event
TX_FLAGS = 19
STATE_SIZE = 20

NO_TX, TX_STARTED, TX_BEGUN = 0, 1, 2  # none; its GTID was seen; its BEGIN was seen, or implied
EVENTS_MAX = 1 << 16
MAPS_MAX = 4096
SLACK = MAPS_MAX + 64  # for what an open transaction carries, listed again behind a full batch
SOURCES_MAX = 256
PACKET_MAX = 0xFFFFFF


@njit
def uint(buf: U8, at: int, size: int) -> int:
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[at + i]) << (8 * i)
    return value


@njit
def _find_source(buf: U8, at: int, sources: U8, count: int) -> int:
    for s in range(count):
        same = True
        for i in range(16):
            if sources[s, i] != buf[at + i]:
                same = False
                break
        if same:
            return s
    return -1


@njit
def _same(buf: U8, at: int, size: int, word: U8) -> bool:
    if size != len(word):
        return False
    for i in range(size):
        if buf[at + i] != word[i]:
            return False
    return True


_BEGIN = np.frombuffer(b"BEGIN", dtype=np.uint8).copy()
_COMMIT = np.frombuffer(b"COMMIT", dtype=np.uint8).copy()


@njit
def advance_position(position: int, log_pos: int, size: int) -> int:
    """The 64-bit offset after an event of `size` bytes whose header says `log_pos` (32 bits, 0 = unknown).

    `log_pos` wraps at 4 GiB, and a dump by GTID leaves events out, so neither alone tells the offset.
    """
    if log_pos == 0:
        return position + size
    low = position & 0xFFFFFFFF
    if log_pos >= low:
        return (position - low) | log_pos
    if low + size > 0xFFFFFFFF:
        return position + size
    return log_pos


@njit
def split(
    buf: U8,
    st: I64,
    ev: Events,
    tx: Transactions,
    map_id: I64,
    map_route: I32,
    slots: I32,
    names: U8,
    spans: I64,
    sources: U8,
    n_sources: int,
) -> int:
    """Fill the arrays from buf[st[AT]:st[END]] until something needs Python; returns why."""
    at, end, n = st[AT], st[END], st[N_EVENTS]
    checked, packets = st[CHECKED], st[PACKETS]
    code = MORE
    while True:
        if n >= EVENTS_MAX or st[N_TXS] >= EVENTS_MAX:
            code = FULL
            break
        if packets:
            if end - at < 4:
                break
            size = np.int64(buf[at]) | np.int64(buf[at + 1]) << 8 | np.int64(buf[at + 2]) << 16
            if size == PACKET_MAX:
                code = LARGE
                break
            off, nxt = at + 5, at + 4 + size
            if nxt > end:
                break
            if size == 0 or buf[at + 4] != 0:
                st[OFF], st[SIZE], st[NEXT] = at + 4, size, nxt
                code = PACKET
                break
            size -= 1
            if size < 19 or u32(buf, off + 9) != size:
                st[OFF], st[SIZE], st[REASON] = off, size, 1
                code = MALFORMED
                break
        else:
            if end - at < 19:
                break
            off, size = at, u32(buf, at + 9)
            if size < 19:
                st[OFF], st[SIZE], st[REASON] = off, size, 1
                code = MALFORMED
                break
            nxt = at + size
            if nxt > end:
                break
        kind_of = buf[off + 4]
        body = off + 19
        stop = off + size
        st[OFF], st[SIZE], st[NEXT] = off, size, nxt
        if checked and kind_of != 15:
            stop -= 4
            if stop < body or crc32(buf, off, stop) != u32(buf, stop):
                code = CHECKSUM
                break

        kind, route, ends = FRAME, ALL, False
        if kind_of == 19 or kind_of >= 30 and kind_of <= 32 or kind_of >= 23 and kind_of <= 25:
            if stop - body < 10:
                st[REASON] = 2
                code = MALFORMED
                break
            if st[TX] != TX_BEGUN:
                st[REASON] = 3
                code = MALFORMED
                break
            table_id = uint(buf, body, 6)
            if kind_of == 19:
                database_size = np.int64(buf[body + 8])
                database = body + 9
                table = database + database_size + 2
                if table > stop or table + buf[table - 1] >= stop:
                    st[REASON] = 2
                    code = MALFORMED
                    break
                table_size = np.int64(buf[table - 1])
                route = find(buf, database, database_size, table, table_size, slots, names, spans)
                if route < 0:
                    st[OFF], st[SIZE] = database, database_size
                    code = NEW_TABLE
                    break
                if st[MAPS] >= MAPS_MAX:
                    st[REASON] = 6
                    code = MALFORMED
                    break
                if st[HEAD] < 0:
                    st[HEAD] = n
                map_id[st[MAPS]], map_route[st[MAPS]] = table_id, route
                st[MAPS] += 1
                kind = TABLE_MAP
            else:
                flags = u16(buf, body + 6)
                route = NOBODY
                for m in range(st[MAPS] - 1, -1, -1):
                    if map_id[m] == table_id:
                        route = map_route[m]
                        break
                kind = ROWS
                if flags & 1:
                    kind = ROWS_END
                # The server closes a statement whose last table was not logged with rows for "no table".
                if route == NOBODY and not (
                    kind == ROWS_END and (table_id == 0xFFFFFF or table_id == 0)
                ):
                    st[REASON] = 4
                    code = MALFORMED
                    break
                if kind == ROWS_END:
                    st[MAPS], st[HEAD] = 0, -1
        elif kind_of == 33 or kind_of == 34:
            if st[TX] != NO_TX:
                st[REASON] = 5
                code = MALFORMED
                break
            if stop - body < 25:
                st[REASON] = 2
                code = MALFORMED
                break
            source = -1
            if kind_of == 33:
                source = _find_source(buf, body + 1, sources, n_sources)
                if source < 0:
                    code = NEW_SOURCE
                    break
            commit_us = u32(buf, off) * 1_000_000
            # flags 1, sid 16, gno 8, lt_type 1, last_committed 8, sequence_number 8, then 56 bits of commit time
            if stop - body >= 49 and buf[body + 25] == 2:
                commit_us = uint(buf, body + 42, 7) & ~(np.int64(1) << 55)
            st[TX], st[SOURCE], st[GNO], st[COMMIT_US] = (
                TX_STARTED,
                source,
                uint(buf, body + 17, 8),
                commit_us,
            )
            st[TX_FIRST], st[TX_FLAGS], st[MAPS], st[HEAD] = n, 0, 0, -1
        elif kind_of == 16:
            if st[TX] != TX_BEGUN:
                st[REASON] = 3
                code = MALFORMED
                break
            ends = True
        elif kind_of == 2:
            if stop - body < 13:
                st[REASON] = 2
                code = MALFORMED
                break
            query = body + 13 + u16(buf, body + 11) + np.int64(buf[body + 8]) + 1
            if query > stop:
                st[REASON] = 2
                code = MALFORMED
                break
            if _same(buf, query, stop - query, _BEGIN) and st[TX] != TX_BEGUN:
                if st[TX] == NO_TX:  # no GTID event before it: 5.6 without GTIDs
                    st[SOURCE], st[GNO], st[COMMIT_US] = -1, 0, u32(buf, off) * 1_000_000
                    st[TX_FIRST], st[TX_FLAGS], st[MAPS], st[HEAD] = n, 0, 0, -1
                st[TX] = TX_BEGUN
            elif _same(buf, query, stop - query, _COMMIT) and st[TX] == TX_BEGUN:
                ends = True
            else:
                code = PYTHON
                break
        elif (kind_of == 29 or kind_of == 160) and st[TX] == TX_BEGUN:
            st[HEAD] = n
            kind = TEXT
        else:
            code = PYTHON
            break

        st[FILE_POS] = advance_position(st[FILE_POS], u32(buf, off + 13), size)
        st[TIMESTAMP] = u32(buf, off)
        ev.off[n], ev.size[n], ev.kind[n], ev.route[n] = off, size, kind, route
        n += 1
        at = nxt
        if ends:
            t = st[N_TXS]
            tx.first[t], tx.last[t], tx.flags[t] = st[TX_FIRST], n, st[TX_FLAGS]
            tx.source[t], tx.gno[t], tx.commit_us[t] = st[SOURCE], st[GNO], st[COMMIT_US]
            tx.end[t] = st[FILE_POS]
            st[N_TXS] = t + 1
            st[TX], st[MAPS], st[HEAD] = NO_TX, 0, -1
    st[AT], st[N_EVENTS] = at, n
    return code
