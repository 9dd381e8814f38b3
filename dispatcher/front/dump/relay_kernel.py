"""The kernel that turns delivered events into packets of the protocol.

It reads the events of one piece of a delivered range and copies the events that the client gets into a buffer. In the
buffer, each event follows the header of its packet. The kernel returns to Python for rare cases: another file, another
FORMAT_DESCRIPTION, a new source of GTIDs, a large event. The kernel checks all sizes, so that it never reads or writes
outside its buffers.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.event import header, record
from dispatcher.binlog.event.gtid import STANDALONE
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I64, U8, Int, put32, u16, u32, u64
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import bytes_at, copy, integers_at, load32
from dispatcher.binlog.kernel.jit import njit, part

# Why `relay` returned. MORE: the rest of the piece is empty, or is an incomplete event. ROOM: the buffer is full. RUNS:
# the list of GTIDs is full. MALFORMED: an event that neither a server nor the daemon writes. With the other values,
# Python must process the event at st[AT], which is: with FILE, a record that names another file; with FORMAT, a
# FORMAT_DESCRIPTION; with SOURCE, a GTID of a new source; with LARGE, an event larger than LARGE_BYTES.
MORE, ROOM, FILE, FORMAT, SOURCE, LARGE, RUNS, MALFORMED = range(8)

# Indexes in the array `st`, which contains the state between calls:
AT = 0  # offset of the next byte to read
OUT = 1  # offset of the next byte to write
SEQUENCE = 2  # sequence number of the next packet
SKIP = 3  # 1 while a transaction is dropped
PLACE = 4  # which part of the current file the client has: NOTHING, the BEGINNING, or ALL
PLACE_OFFSET = 5  # with BEGINNING: the client has the file up to this offset
END = 6  # offset in the source's file after the transaction
COMMIT_US = 7  # commit time in the last record, microseconds
SENT = 8  # offset in the source's file after the last event that was sent, 0 = none in this file
NAME_SIZE = 9  # size of the file name at NAME_AT; 0 = return FILE at the next record
SOURCES = 10  # how many sources of GTIDs are known
LAST_SOURCE = 11
N_RUNS = 12
# Options:
TRACK = 13  # 1 if the kernel records sent GTIDs and drops transactions that the client has
STRIP = 14  # bytes of checksum that are removed from each event
CHECKED = 15  # 1 if events end in a checksum
ANNOTATE = 16
PLAIN = 17  # 1 for a client that does not know MariaDB's GTID events
# Addresses and sizes of arrays:
OUT_AT = 18  # the buffer for packets
OUT_SIZE = 19
NAME_AT = 20  # the name of the file that the last record named
KEY_AT = 21  # the GTID's source when the kernel returns SOURCE
KEYS_AT = 22  # the known sources, KEY_WORDS words each
# The GTIDs of source n that the client had when the dump began: [starts[i], ends[i]) for spans[n] <= i < spans[n + 1].
SPANS_AT = 23
STARTS_AT = 24
ENDS_AT = 25
INTERVALS = 26  # the number of intervals
RUNS_AT = 27  # RUN_SIZE numbers for each run
COUNTED = 28  # the offset that a replica counts, see `count_event`
FOLLOWS = 29  # 1 if the replica takes over a higher position of an event
STATE_SIZE = 30

NOTHING, BEGINNING, ALL = range(3)

LARGE_BYTES = 1 << 16  # a larger event is not copied
PACKET_HEADER = 4
_BEFORE_EVENT = PACKET_HEADER + 1  # the packet's header and the status byte
RUNS_MAX = 1 << 12
NAME_MAX = 256

# A source as 7 words, which are 56 bytes. MySQL: UUID, size of the tag, tag. MariaDB: domain, server id.
KEY_WORDS = 7
_TAG_SIZE_AT, _TAG_MAX = 16, 32
_QUERY_BEGIN = 14  # bytes of a QUERY's body before the text, without status variables

# A run of GTIDs: its source, and the half-open interval of its numbers.
RUN_SOURCE, RUN_START, RUN_END = range(3)
RUN_SIZE = 3

_BEGIN = np.frombuffer(b"BEGIN", dtype=np.uint8).copy()


@part
def _varied(buf: U8, at: Int, end: Int) -> tuple[Int, Int]:
    """Return the value of a variable-length integer and the offset after it. The offset is -1 if the integer is
    incomplete."""
    if at < 0 or at >= end:
        return np.int64(0), np.int64(-1)
    first = np.int64(buf[at])
    size = np.int64(1)
    while size < 9 and first & (np.int64(1) << (size - 1)):
        size += 1
    if at + size > end:
        return np.int64(0), np.int64(-1)
    value = np.uint64(0)
    if size == 9:
        for i in range(8):
            value |= np.uint64(buf[at + 1 + i]) << np.uint64(8 * i)
    else:
        for i in range(size):
            value |= np.uint64(buf[at + i]) << np.uint64(8 * i)
        value >>= np.uint64(size)
    return np.int64(value), at + size


@part
def _put_key(key: I64, at: Int, byte: Int) -> None:
    key[at >> 3] |= np.int64(np.uint64(byte & 0xFF) << np.uint64((at & 7) << 3))


@part
def _read_tagged(buf: U8, at: Int, end: Int, key: I64) -> Int:
    """Write the source of a GTID_TAGGED event's body to `key`, which must contain zeros. Return the GTID's number, or
    -1 if the event is damaged."""
    for _ in range(3):  # version, size, last mandatory field
        _, at = _varied(buf, at, end)
    number = np.int64(-1)
    for field in range(4):
        name, at = _varied(buf, at, end)
        if at < 0 or name != field:
            return np.int64(-1)
        value = np.int64(0)
        for k in range(16 if field == 1 else 1):
            value, at = _varied(buf, at, end)
            if field == 1:
                _put_key(key, k, value)
        if at < 0:
            return np.int64(-1)
        if field == 2:
            number = np.int64(np.uint64(value) >> np.uint64(1))
        elif field == 3:
            if not 0 <= value <= _TAG_MAX or at + value > end:
                return np.int64(-1)
            _put_key(key, _TAG_SIZE_AT, value)
            for k in range(value):
                _put_key(key, _TAG_SIZE_AT + 1 + k, np.int64(buf[at + k]))
    return number


@part
def _read_gtid(buf: U8, at: Int, end: Int, key: I64) -> Int:
    """Write the source of the GTID event at buf[at] to `key`. Return the GTID's number, or -1 if the event is
    damaged."""
    kind = buf[at + header.TYPE_AT]
    body = at + header.HEADER_SIZE
    for k in range(KEY_WORDS):
        key[k] = 0
    if kind == EventType.GTID_TAGGED:
        return _read_tagged(buf, body, end, key)
    if kind == EventType.MARIADB_GTID:
        if end - body < header.MARIADB_GTID_SIZE_MIN + 1:
            return np.int64(-1)
        domain = load32(buf, np.uint64(body + header.MARIADB_DOMAIN_AT))
        server = load32(buf, np.uint64(at + header.SERVER_ID_AT))
        key[0] = np.int64(np.uint64(domain) | np.uint64(server) << np.uint64(32))
        return u64(buf, body)
    if end - body < header.GTID_CLOCK_AT:
        return np.int64(-1)
    key[0] = u64(buf, body + header.GTID_SOURCE_AT)
    key[1] = u64(buf, body + header.GTID_SOURCE_AT + 8)
    return u64(buf, body + header.GTID_NUMBER_AT)


@part
def _same_key(keys: I64, at: Int, key: I64) -> bool:
    for k in range(KEY_WORDS):  # noqa: SIM110 - a kernel knows no generators
        if keys[at + k] != key[k]:
            return False
    return True


@part
def _find_source(keys: I64, key: I64, st: I64) -> Int:
    """Return the index of a source, or -1."""
    last = st[LAST_SOURCE]
    if last < st[SOURCES] and _same_key(keys, last * KEY_WORDS, key):
        return last
    for n in range(st[SOURCES]):
        if _same_key(keys, n * KEY_WORDS, key):
            st[LAST_SOURCE] = n
            return np.int64(n)
    return np.int64(-1)


@part
def _has(starts: I64, ends: I64, low: Int, high: Int, number: Int) -> bool:
    """True if the number lies in one of the sorted intervals [low, high)."""
    stop = high
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return bool(low < stop and starts[low] <= number)


@part
def _note(runs: I64, st: I64, source: Int, number: Int) -> None:
    next_run = RUN_SIZE * st[N_RUNS]
    last = next_run - RUN_SIZE
    if last >= 0 and runs[last + RUN_SOURCE] == source and runs[last + RUN_END] == number:
        runs[last + RUN_END] = number + 1
        return
    runs[next_run + RUN_SOURCE] = source
    runs[next_run + RUN_START] = number
    runs[next_run + RUN_END] = number + 1
    st[N_RUNS] += 1


@part
def _remove_place(out: U8, at: Int, size: Int, checked: Int) -> None:
    """Set the position of the event at out[at] to 0."""
    put32(out, at + header.LOG_POS_AT, np.int64(0))
    if checked:
        end = at + size - header.CHECKSUM_SIZE
        put32(out, end, crc32(out, at, end))


@part
def _make_begin(out: U8, at: Int, size: Int, checked: Int) -> None:
    """Turn the GTID event of MariaDB at out[at] into the QUERY event BEGIN of the same size, as MariaDB does for a
    client that does not know its GTID events."""
    end = at + size - header.CHECKSUM_SIZE * checked
    body = at + header.HEADER_SIZE
    spare = end - body - _QUERY_BEGIN - 5
    out[at + header.TYPE_AT] = np.uint8(EventType.QUERY)
    out[at + header.FLAGS_AT] |= 8  # LOG_EVENT_SUPPRESS_USE_F
    for k in range(body, end):
        out[k] = 0
    out[body + header.QUERY_STATUS_SIZE_AT] = spare & 0xFF
    out[body + header.QUERY_STATUS_SIZE_AT + 1] = spare >> 8
    for k in range(spare):
        out[body + header.QUERY_FIXED_SIZE + k] = 0xFF  # no status variable has this code
    out[end - 5], out[end - 4], out[end - 3], out[end - 2], out[end - 1] = 66, 69, 71, 73, 78
    if checked:
        put32(out, end, crc32(out, at, end))


@part
def is_record(buf: U8, at: Int, size: Int) -> bool:
    return bool(
        buf[at + header.TYPE_AT] == EventType.IGNORABLE
        and size >= record.RECORD_SIZE
        and buf[at + record.MAGIC_AT] == 66
        and buf[at + record.MAGIC_AT + 1] == 68
    )


@part
def _same_name(buf: U8, at: Int, size: Int, name: U8, name_size: Int) -> bool:
    if size != name_size:
        return False
    for k in range(size):  # noqa: SIM110 - a kernel knows no generators
        if buf[at + k] != name[k]:
            return False
    return True


@part
def full_offset(st: I64, log_pos: Int) -> Int:
    """Return the 64-bit offset of an event whose header contains only the low 32 bits. (The end of the event's
    transaction is less than 4 GiB after this offset.)"""
    return np.int64(st[END] - ((st[END] - log_pos) & 0xFFFFFFFF))


@part
def is_dropped(st: I64, kind: Int, log_pos: Int) -> bool:
    """True if the client does not get an event of the open transaction, because the client has the event already, or
    has not asked for events of this type.

    Since MariaDB 11.7, events within a transaction have no position. Such events are dropped only if the client has the
    whole transaction."""
    if st[SKIP]:
        return True
    if st[PLACE] == BEGINNING and log_pos and full_offset(st, log_pos) <= st[PLACE_OFFSET]:
        return True
    return bool(kind == EventType.MARIADB_ANNOTATE_ROWS and not st[ANNOTATE])


@part
def has_no_place(st: I64, kind: Int, log_pos: Int) -> bool:
    """True for an event of a dump by file that gets no position (`log_pos` 0), so that the client keeps the position
    that it has. For a QUERY, the result applies only if the QUERY is BEGIN.

    If a transaction replaces one event of the log (a compressed or a prepared transaction), all its events have the end
    of the replaced event as their position. A client that stored this position after one of these events, and then
    connected again, would miss the events after it."""
    if st[TRACK] or not log_pos or full_offset(st, log_pos) != st[END]:
        return False
    return bool(kind != EventType.XID and kind != EventType.XA_PREPARE)


@part
def count_event(st: I64, size: Int, log_pos: Int) -> None:
    """Count a sent event as a replica counts it. `size`, `log_pos`: the size and the position in the header of this
    event.

    A replica adds the sizes of the events that it gets. A replica of MariaDB takes over the event's position if that is
    higher than the sum. Sources: MySQL, sql/rpl_replica.cc, queue_event; MariaDB, sql/slave.cc, queue_event.
    """
    st[COUNTED] += size
    if st[FOLLOWS] and st[COUNTED] < log_pos:
        st[COUNTED] = log_pos


@part
def _is_begin(buf: U8, at: Int, end: Int) -> bool:
    """True if the QUERY at buf[at], which ends at `end` without its checksum, is BEGIN."""
    body = at + header.HEADER_SIZE
    if end - body < header.QUERY_FIXED_SIZE:
        return False
    status = u16(buf, body + header.QUERY_STATUS_SIZE_AT)
    database = np.int64(buf[body + header.QUERY_DATABASE_SIZE_AT])
    text = body + header.QUERY_FIXED_SIZE + status + database + 1
    if end - text != len(_BEGIN):
        return False
    for k in range(len(_BEGIN)):  # noqa: SIM110 - a kernel knows no generators
        if buf[text + k] != _BEGIN[k]:
            return False
    return True


@part
def _is_gtid(kind: Int) -> bool:
    return bool(
        kind == EventType.GTID or kind == EventType.GTID_TAGGED or kind == EventType.MARIADB_GTID
    )


@part
def _read_record(buf: U8, at: Int, size: Int, name: U8, st: I64) -> Int:
    """Read a record, which begins or continues a transaction. Its file name follows its last field."""
    name_size = np.int64(buf[at + record.NAME_SIZE_AT])
    if (
        buf[at + record.VERSION_AT] != record.RECORD_VERSION
        or record.RECORD_SIZE + name_size > size
    ):
        return MALFORMED
    if not _same_name(buf, at + record.RECORD_SIZE, name_size, name, st[NAME_SIZE]):
        return FILE
    st[END] = u64(buf, at + record.OFFSET_AT)
    st[COMMIT_US] = u64(buf, at + record.COMMIT_US_AT)
    if u32(buf, at + record.FIRST_EVENT_AT) == 0:
        has = st[PLACE] == BEGINNING and st[END] <= st[PLACE_OFFSET]
        st[SKIP] = 1 if has or st[PLACE] == ALL else 0
    st[AT] = at + size
    return MORE


@part
def _track(buf: U8, at: Int, end: Int, st: I64) -> Int:
    """Record the GTID of a transaction that is to be sent. If the client already has the GTID, drop the transaction."""
    key = integers_at(st[KEY_AT], KEY_WORDS)
    number = _read_gtid(buf, at, end, key)
    if number < 0:
        return MALFORMED
    source = _find_source(integers_at(st[KEYS_AT], KEY_WORDS * st[SOURCES]), key, st)
    if source < 0:
        return SOURCE
    spans = integers_at(st[SPANS_AT], st[SOURCES] + 1)
    starts = integers_at(st[STARTS_AT], st[INTERVALS])
    ends = integers_at(st[ENDS_AT], st[INTERVALS])
    if _has(starts, ends, spans[source], spans[source + 1], number):
        st[SKIP] = 1
    elif st[N_RUNS] == RUNS_MAX:
        return RUNS
    else:
        _note(integers_at(st[RUNS_AT], RUN_SIZE * RUNS_MAX), st, source, number)
    return MORE


@part
def _copy_packet(buf: U8, at: Int, size: Int, out: U8, st: I64) -> Int:
    """Write an event as a packet. Return the event's offset in `out`."""
    to = st[OUT] + PACKET_HEADER
    body = size - st[STRIP]
    length = body + 1
    put32(out, st[OUT], length | (st[SEQUENCE] & 0xFF) << 24)
    st[SEQUENCE] += 1
    out[to] = 0
    to += 1
    copy(out, to, buf, at, body)
    if st[STRIP]:
        put32(out, to + header.SIZE_AT, body)
    st[OUT] = to + body
    return to


@njit
def relay(state: Int, address: Int, size: Int) -> Int:  # noqa: C901, PLR0911, PLR0912 - one branch per kind of event
    """Turn the events of a piece into packets, beginning at st[AT]. Return the reason for the return (MORE ...); st[AT]
    is then the offset of the next event.

    `state`: address of the state. `address`, `size`: address and size of the piece. The arguments are addresses because
    changing the reference counts of arrays would cost more than the work on an event.
    """
    st = integers_at(state, STATE_SIZE)
    buf = bytes_at(address, size)
    out = bytes_at(st[OUT_AT], st[OUT_SIZE])
    name = bytes_at(st[NAME_AT], NAME_MAX)
    while True:
        at = st[AT]
        left = size - at
        if left < header.HEADER_SIZE:
            return MORE
        event = np.int64(u32(buf, at + header.SIZE_AT))
        kind = np.int64(buf[at + header.TYPE_AT])
        if event < header.HEADER_SIZE + st[STRIP] or event > header.EVENT_BYTES_MAX:
            return MALFORMED
        if event > LARGE_BYTES:
            return LARGE
        if left < event:
            return MORE
        if is_record(buf, at, event):
            code = _read_record(buf, at, event, name, st)
            if code != MORE:
                return code
            continue
        if kind == EventType.FORMAT_DESCRIPTION:
            return FORMAT
        log_pos = np.int64(u32(buf, at + header.LOG_POS_AT))
        if is_dropped(st, kind, log_pos):
            st[AT] = at + event
            continue
        if st[OUT] + _BEFORE_EVENT + event > len(out):
            return ROOM
        if st[TRACK] and _is_gtid(kind):
            end = at + event - header.CHECKSUM_SIZE * st[CHECKED]
            code = _track(buf, at, end, st)
            if code != MORE:
                return code
            if st[SKIP]:
                continue
        st[AT] = at + event
        begins = kind == EventType.MARIADB_GTID and st[PLAIN] != 0
        if begins:
            flags_at = header.HEADER_SIZE + header.MARIADB_FLAGS_AT
            if event < flags_at + 7 + header.CHECKSUM_SIZE * st[CHECKED]:
                return MALFORMED
            if buf[at + flags_at] & STANDALONE:
                continue
        to = _copy_packet(buf, at, event, out, st)
        checked = 1 if st[CHECKED] and not st[STRIP] else 0
        if begins:
            _make_begin(out, to, event - st[STRIP], checked)
        end = at + event - header.CHECKSUM_SIZE * st[CHECKED]
        if has_no_place(st, kind, log_pos) and (kind != EventType.QUERY or _is_begin(buf, at, end)):
            _remove_place(out, to, event - st[STRIP], checked)
            log_pos = np.int64(0)
        elif log_pos:
            st[SENT] = full_offset(st, log_pos)
        count_event(st, event - st[STRIP], log_pos)
        st[PLACE] = NOTHING
