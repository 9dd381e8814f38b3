"""The kernel that reads a buffer of packets, or of a file's events: framing, checksums, transactions, routes.

The kernel fills `Events` and `Transactions`, and keeps its state in one array of integers. It returns a reason code
when it needs more bytes, or when Python must read an event. It checks the sizes of events and packets, the CRC32 of
every event that has one, and that rows lie inside a transaction and refer to a table map.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event import header
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I32, I64, U8, u16, u32, u64
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import load64
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.model.gtid import GNO_MAX
from dispatcher.stream.batch import (
    FRAME,
    ROWS,
    ROWS_END,
    TABLE_MAP,
    TEXT,
    Events,
    Transactions,
)
from dispatcher.stream.routes import ALL, NO_ROUTE, find_route

# Why the kernel returned.
MORE, FULL, PYTHON, NEW_TABLE, NEW_SOURCE, LARGE, PACKET, CHECKSUM, MALFORMED = range(9)
WHY = (
    "",
    "has a size that does not fit its packet",
    "is cut short",
    "occurs outside a transaction",
    "refers to a table map that is missing",
    "occurs inside a transaction",
    "is one more table map than a statement may have",
    "names no table",
    "is larger than any that a server writes",
    "has a number that no transaction has",
)

OUTSIDE = 3  # index in WHY

# The state between calls is an array of integers. Each name below is the index of an element.
AT = 0  # next byte to read
END = 1  # bytes in the buffer
CHECKED = 2  # 1 if events end in a CRC32
PACKETS = 3  # 1 for packets of the protocol, 0 for bare events of a file
FILE_POS = 4  # offset in the source's file after the last event
TX = 5  # NO_TX, TX_STARTED, TX_BEGUN, TX_XA
SOURCE = 6  # index of the source of the open transaction's GTID, -1 = no GTID
GNO = 7
COMMIT_US = 8
MAPS = 9  # number of table maps of the open statement
HEAD = 10  # index of the open statement's first event (text or table map), -1 = none
N_EVENTS = 11
N_TXS = 12
# The event for which the kernel returned.
OFF = 13
SIZE = 14
NEXT = 15  # offset after the event
REASON = 16  # index in WHY
TIMESTAMP = 17  # timestamp of the last event
TX_FIRST = 18  # index of the open transaction's first event
TX_FLAGS = 19
# The event that is being read.
STOP = 20  # end of the event's body, without the checksum
KIND = 21
ROUTE = 22
ENDS = 23  # 1 if the event ends its transaction
OPENED = 24  # number of transactions that began
JOINED = 25  # offset of an event whose packets were joined, -1 = none
STATE_SIZE = 26

# The values of TX, in order: no transaction is open; the GTID of the open transaction was read; its BEGIN was read or
# implied; its XA START was read, and only Python can end the transaction.
NO_TX, TX_STARTED, TX_BEGUN, TX_XA = 0, 1, 2, 3
EVENTS_MAX = 1 << 16
MAPS_MAX = 4096
SLACK = MAPS_MAX + 64  # room for the carried events, which are listed again after a full batch
SOURCES_MAX = 1024
PACKET_MAX = 0xFFFFFF
TABLE_ID_MASK = (1 << 48) - 1


class TableMaps(NamedTuple):
    """Table ids and routes of the open statement's table maps. The first `st[MAPS]` entries are in use."""

    id: I64
    route: I32


class Names(NamedTuple):
    """The tables that `routes.find_route` searches, and the `n_sources` sources of GTIDs. A source has
    three words in `sources`: the two halves of its UUID, and 1 if it has a UUID, else 0. Python finds the sources
    without a UUID by name."""

    slots: I32
    names: U8
    spans: I64
    sources: NDArray[np.uint64]
    n_sources: int


def _rows_kinds() -> U8:
    """Returns one byte per type code: 1 if the body begins with the table id and flags of a rows event."""
    table = np.zeros(256, dtype=np.uint8)
    for kind in EventType:
        name = kind.name.removeprefix("MARIADB_").removeprefix("PARTIAL_")
        table[kind] = name.startswith(("WRITE_ROWS", "UPDATE_ROWS", "DELETE_ROWS"))
    return table


_IS_ROWS = _rows_kinds()
_BEGIN = np.frombuffer(b"BEGIN", dtype=np.uint8).copy()
_COMMIT = np.frombuffer(b"COMMIT", dtype=np.uint8).copy()
_LOGICAL_CLOCK = 2  # LOGICAL_TIMESTAMP_TYPECODE
_NO_TABLE_ID = 0xFFFFFF
_OK = -1  # continue with the next event


@part
def _find_source(buf: U8, at: int, sources: NDArray[np.uint64], n_sources: int) -> int:
    low, high = load64(buf, np.uint64(at)), load64(buf, np.uint64(at + 8))
    for s in range(n_sources):
        if sources[s, 0] == low and sources[s, 1] == high and sources[s, 2]:
            return s
    return -1


@part
def _same(buf: U8, at: int, size: int, word: U8) -> bool:
    if size != len(word):
        return False
    for i in range(size):  # noqa: SIM110 - a kernel knows no generators
        if buf[at + i] != word[i]:
            return False
    return True


@part
def advance_position(position: int, log_pos: int, size: int) -> int:
    """Return the 64-bit offset after an event of `size` bytes whose header has `log_pos` (32 bits, 0 = unknown).

    `log_pos` wraps at 4 GiB, so `position` supplies the upper bits. Sizes cannot be added up, because a dump by GTIDs
    leaves events out; `size` is used only if `log_pos` is unknown. Offsets in a file only grow, so a `log_pos` below
    the lower bits of `position` has wrapped. (A gap of more than 4 GiB is not detected.)
    """
    if log_pos == 0:
        return position + size
    low = position & 0xFFFFFFFF
    high = position - low
    return (high | log_pos) if log_pos >= low else (high | log_pos) + 0x100000000


@part
def _malformed(st: I64, reason: int) -> int:
    st[REASON] = reason
    return MALFORMED


@part
def _next_event(buf: U8, st: I64) -> int:  # noqa: PLR0911 - one return per reason
    """Find the next complete event, verify its checksum if it has one, and set OFF, SIZE, NEXT and STOP in `st`."""
    at, end = st[AT], st[END]
    if st[PACKETS] and at != st[JOINED]:
        if end - at < 4:
            return MORE
        size = u32(buf, at) & 0xFFFFFF
        if size == PACKET_MAX:
            return LARGE
        off, following = at + 5, at + 4 + size
        if following > end:
            return MORE
        if size == 0 or buf[at + 4] != 0:
            st[OFF], st[SIZE], st[NEXT] = at + 4, size, following
            return PACKET
        size -= 1
        st[OFF], st[SIZE], st[NEXT] = off, size, following
        if size < header.HEADER_SIZE or u32(buf, off + header.SIZE_AT) != size:
            return _malformed(st, 1)
    else:
        if end - at < header.HEADER_SIZE:
            return MORE
        off, size = at, u32(buf, at + header.SIZE_AT)
        st[OFF], st[SIZE], st[NEXT] = off, size, at + size
        if size < header.HEADER_SIZE or size > header.EVENT_BYTES_MAX:
            return _malformed(st, 1 if size < header.HEADER_SIZE else 8)
        if at + size > end:
            return MORE
    st[STOP] = off + size
    # A FORMAT_DESCRIPTION itself says whether it ends in a checksum.
    if st[CHECKED] and buf[off + header.TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        st[STOP] -= header.CHECKSUM_SIZE
        stop = st[STOP]
        if size < header.HEADER_SIZE + header.CHECKSUM_SIZE or crc32(buf, off, stop) != u32(
            buf, stop
        ):
            return CHECKSUM
    return _OK


@part
def open_transaction(st: I64, state: int, source: int, gno: int, commit_us: int) -> None:
    st[TX], st[SOURCE], st[GNO], st[COMMIT_US] = state, source, gno, commit_us
    st[TX_FIRST], st[TX_FLAGS], st[MAPS], st[HEAD] = st[N_EVENTS], 0, 0, -1
    st[OPENED] += 1


@part
def _gtid(buf: U8, st: I64, sources: NDArray[np.uint64], n_sources: int) -> int:
    """Read a GTID or ANONYMOUS_GTID. In MySQL 5.6 the body ends after the number. 5.7 adds the logical clock, and 8.0
    adds the commit time in microseconds. Bit 55 of the commit time says that the original commit time follows."""
    off, stop = st[OFF], st[STOP]
    body = off + header.HEADER_SIZE
    if st[TX] != NO_TX:
        return _malformed(st, 5)
    if stop - body < header.GTID_CLOCK_AT:
        return _malformed(st, 2)
    source = -1
    if buf[off + header.TYPE_AT] == EventType.GTID:
        source = _find_source(buf, body + header.GTID_SOURCE_AT, sources, n_sources)
        if source < 0:
            return NEW_SOURCE
    commit_us = u32(buf, off + header.TIMESTAMP_AT) * 1_000_000
    # The kernel reads 8 bytes at once, but the commit time has 7: one more byte must follow it.
    has_commit_time = stop - body > header.GTID_COMMIT_AT + header.GTID_COMMIT_SIZE
    if has_commit_time and buf[body + header.GTID_CLOCK_AT] == _LOGICAL_CLOCK:
        commit_us = u64(buf, body + header.GTID_COMMIT_AT) & ((1 << 55) - 1)
    gno = u64(buf, body + header.GTID_NUMBER_AT)
    if source >= 0 and not 0 < gno < GNO_MAX:
        return _malformed(st, 9)
    open_transaction(st, TX_STARTED, source, gno, commit_us)
    st[KIND] = FRAME
    return _OK


@part
def _query(buf: U8, st: I64) -> int:
    """Read a QUERY that is exactly BEGIN or COMMIT. Python classifies all other statements."""
    off, stop = st[OFF], st[STOP]
    body = off + header.HEADER_SIZE
    if stop - body < header.QUERY_FIXED_SIZE:
        return _malformed(st, 2)
    database_size = int(buf[body + header.QUERY_DATABASE_SIZE_AT])
    query = (
        body
        + header.QUERY_FIXED_SIZE
        + u16(buf, body + header.QUERY_STATUS_SIZE_AT)
        + database_size
        + 1
    )
    if query > stop:
        return _malformed(st, 2)
    if st[TX] < TX_BEGUN and _same(buf, query, stop - query, _BEGIN):
        if st[TX] == NO_TX:  # MySQL 5.6 without GTIDs writes no GTID event before BEGIN
            open_transaction(st, TX_BEGUN, -1, 0, u32(buf, off + header.TIMESTAMP_AT) * 1_000_000)
        st[TX], st[KIND] = TX_BEGUN, FRAME
        return _OK
    if st[TX] == TX_BEGUN and _same(buf, query, stop - query, _COMMIT):
        st[KIND], st[ENDS] = FRAME, 1
        return _OK
    return PYTHON


@part
def _table_map(
    buf: U8, st: I64, map_id: I64, map_route: I32, slots: I32, names: U8, spans: I64
) -> int:
    body, stop = st[OFF] + header.HEADER_SIZE, st[STOP]
    if st[TX] < TX_BEGUN:
        return _malformed(st, 3)
    if stop - body < header.TABLE_HEAD_SIZE + 2:
        return _malformed(st, 2)
    database_size = int(buf[body + header.TABLE_HEAD_SIZE])
    database = body + header.TABLE_HEAD_SIZE + 1
    table = database + database_size + 2
    if table > stop or table + buf[table - 1] >= stop:
        return _malformed(st, 2)
    table_size = int(buf[table - 1])
    if not (database_size and table_size):
        return _malformed(st, 7)
    route = find_route(buf, database, database_size, table, table_size, slots, names, spans)
    if route < 0:
        st[OFF], st[SIZE] = database, database_size
        return NEW_TABLE
    n = st[MAPS]
    if n >= MAPS_MAX:
        return _malformed(st, 6)
    if st[HEAD] < 0:
        st[HEAD] = st[N_EVENTS]
    map_id[n], map_route[n] = u64(buf, body) & TABLE_ID_MASK, route
    st[MAPS], st[KIND], st[ROUTE] = n + 1, TABLE_MAP, route
    return _OK


@part
def _rows(buf: U8, st: I64, map_id: I64, map_route: I32) -> int:
    body, stop = st[OFF] + header.HEADER_SIZE, st[STOP]
    if st[TX] < TX_BEGUN:
        return _malformed(st, 3)
    if stop - body < header.TABLE_HEAD_SIZE:
        return _malformed(st, 2)
    table_id = u64(buf, body) & TABLE_ID_MASK
    route = NO_ROUTE
    for m in range(st[MAPS] - 1, -1, -1):
        if map_id[m] == table_id:
            route = map_route[m]
            break
    ends = u16(buf, body + header.ROWS_FLAGS_AT) & header.STMT_END_F
    # If a statement's last table is not logged, the server ends the statement with a rows event for "no table".
    if route == NO_ROUTE and not (ends and table_id in (0, _NO_TABLE_ID)):
        return _malformed(st, 4)
    st[KIND], st[ROUTE] = ROWS, route
    if ends:
        st[KIND], st[MAPS], st[HEAD] = ROWS_END, 0, -1
    return _OK


@part
def _other(st: I64, kind: int) -> int:
    if kind == EventType.XID and st[TX] != TX_XA:
        st[KIND], st[ENDS] = FRAME, 1
        return _OK if st[TX] == TX_BEGUN else _malformed(st, 3)
    is_text = kind == EventType.ROWS_QUERY or kind == EventType.MARIADB_ANNOTATE_ROWS
    if is_text and st[TX] >= TX_BEGUN:
        st[KIND], st[HEAD] = TEXT, st[N_EVENTS]
        return _OK
    return PYTHON


@njit
def split_packets(
    buf: U8, st: I64, ev: Events, tx: Transactions, maps: TableMaps, names: Names
) -> int:
    """Fill the arrays from buf[st[AT]:st[END]] until Python must act; returns the reason code."""
    # Taking an array out of a tuple changes the array's reference count atomically, twice. So the kernel takes the
    # arrays out once per call, not per event.
    ev_off, ev_size, ev_kind, ev_route = ev.off, ev.size, ev.kind, ev.route
    tx_first, tx_last, tx_flags, tx_source = tx.first, tx.last, tx.flags, tx.source
    tx_gno, tx_end, tx_commit_us = tx.gno, tx.end, tx.commit_us
    map_id, map_route = maps.id, maps.route
    slots, arena, spans, sources = names.slots, names.names, names.spans, names.sources
    while True:
        n = st[N_EVENTS]
        if n >= EVENTS_MAX or st[N_TXS] >= EVENTS_MAX:
            return FULL
        code = _next_event(buf, st)
        if code != _OK:
            return code
        st[ROUTE], st[ENDS] = ALL, 0
        kind = buf[st[OFF] + header.TYPE_AT]
        if kind == EventType.TABLE_MAP:
            code = _table_map(buf, st, map_id, map_route, slots, arena, spans)
        elif _IS_ROWS[kind]:
            code = _rows(buf, st, map_id, map_route)
        elif kind == EventType.GTID or kind == EventType.ANONYMOUS_GTID:
            code = _gtid(buf, st, sources, names.n_sources)
        elif kind == EventType.QUERY:
            code = _query(buf, st)
        else:
            code = _other(st, kind)
        if code != _OK:
            return code
        off, size = st[OFF], st[SIZE]
        st[FILE_POS] = advance_position(st[FILE_POS], u32(buf, off + header.LOG_POS_AT), size)
        st[TIMESTAMP] = u32(buf, off + header.TIMESTAMP_AT)
        ev_off[n], ev_size[n], ev_kind[n], ev_route[n] = off, size, st[KIND], st[ROUTE]
        st[N_EVENTS], st[AT] = n + 1, st[NEXT]
        if st[ENDS]:
            t = st[N_TXS]
            tx_first[t], tx_last[t], tx_flags[t] = st[TX_FIRST], n + 1, st[TX_FLAGS]
            tx_source[t], tx_gno[t], tx_commit_us[t] = st[SOURCE], st[GNO], st[COMMIT_US]
            tx_end[t] = st[FILE_POS]
            st[N_TXS] = t + 1
            st[TX], st[MAPS], st[HEAD] = NO_TX, 0, -1
