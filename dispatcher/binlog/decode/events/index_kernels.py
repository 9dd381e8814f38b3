"""The kernels of `index`: the first pass frames and counts the events, the second verifies them and fills the arrays.

An open-addressing hash table maps table ids to versions. A TABLE_MAP with the same bytes as the last TABLE_MAP of its
table id is the same version. A rows event must have a TABLE_MAP in its own transaction: a server assigns new table ids
when it restarts, so an older TABLE_MAP with the id may belong to another table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.event import header, record
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.jit import njit, part
from dispatcher.binlog.kernel.short_copy import same_bytes

# Columns of the transactions array.
RECORD = 0  # offset of the first RECORD event of the transaction
GTID = 1  # offset of the transaction's GTID event, -1 if there is none
EPOCH = 2
SEQ = 3
POSITION = 4
COMMIT_US = 5
FILE = 6  # index in the list of file names
GTID_INDEX = 7
LOWER_CASE = 8  # lower_case_table_names of the server
TXN_FIELDS = 9

# Columns of the table map versions array.
TABLE_ID = 0
BODY = 1
BODY_END = 2
# The last transaction that contains a TABLE_MAP of this version. The next two columns: offset and index of the last
# such TABLE_MAP.
MAPPED_TXN = 3
MAPPED_AT = 4
MAPPED_INDEX = 5
VERSION_FIELDS = 6

# The state: number of used lines in each array, current transaction (-1 = none), index of the next event in this
# transaction.
N_EVENTS, N_TXNS, N_VERSIONS, N_FORMATS, N_FILES, TXN, NEXT = range(7)
STATE_FIELDS = 7

# Error codes.
OK, CUT, CHECKSUM, UNSUPPORTED, NO_RECORD, NO_MAP, RECORD_DIFFERS, SHORT = range(8)

# What the kernel does with an event; `_ACTIONS` maps each type to an action. An event with an action from ROWS to
# GTID_EVENT must be in a transaction.
FAIL, SKIP, UNKNOWN, ROWS, QUERY, MAP, GTID_EVENT, FORMAT, IGNORABLE, COMPRESSED = range(10)
ACTIONS_COUNT = 10

_FIRST_OFFSET = len(header.MAGIC)
_RECORD_MAGIC = int.from_bytes(record.RECORD_MAGIC, "little")
_DUMMY_TABLE = 0x00FFFFFF  # the table id of a rows event without rows that only ends a statement
# Header, fixed part, algorithm, checksum.
_FORMAT_SIZE_MIN = header.HEADER_SIZE + 57 + 1 + header.CHECKSUM_SIZE


class Arrays(NamedTuple):
    """The arrays that the kernel `index` fills. `frame` counts their sizes. `files`: (offset, size) of names.
    `formats`: offsets of FORMAT_DESCRIPTION events. `slots`: the hash table; version + 1, or 0 for a free slot."""

    events: I64
    txns: I64
    versions: I64
    formats: I64
    files: I64
    slots: I64
    state: I64

    @classmethod
    def for_counts(cls, counts: I64) -> Arrays:
        """Allocate the arrays; `counts`: the number of events by action."""
        state = np.zeros(STATE_FIELDS, np.int64)
        state[TXN] = -1
        return cls(
            np.zeros((counts[ROWS] + counts[QUERY], row_walk.EVENT_FIELDS), np.int64),
            np.zeros((counts[IGNORABLE], TXN_FIELDS), np.int64),
            np.zeros((counts[MAP], VERSION_FIELDS), np.int64),
            np.zeros(counts[FORMAT], np.int64),
            np.zeros((counts[IGNORABLE], 2), np.int64),
            np.zeros(max(16, 1 << int(2 * counts[MAP]).bit_length()), np.int64),
            state,
        )


def _actions() -> U8:
    table = np.full(256, UNKNOWN, dtype=np.uint8)
    table[list(EventType)] = FAIL
    table[
        [
            EventType.STOP, EventType.ROTATE, EventType.INTVAR, EventType.RAND, EventType.USER_VAR,
            EventType.XID, EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.ROWS_QUERY,
            EventType.PREVIOUS_GTIDS, EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE,
            EventType.XA_PREPARE, EventType.MARIADB_ANNOTATE_ROWS,
            EventType.MARIADB_BINLOG_CHECKPOINT, EventType.MARIADB_GTID_LIST,
        ]
    ] = SKIP  # fmt: skip
    table[
        [
            EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
            EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
        ]
    ] = ROWS  # fmt: skip
    table[
        [EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID]
    ] = GTID_EVENT
    table[EventType.MARIADB_QUERY_COMPRESSED : EventType.MARIADB_DELETE_ROWS_COMPRESSED + 1] = (
        COMPRESSED
    )
    table[EventType.QUERY] = QUERY
    table[EventType.TABLE_MAP] = MAP
    table[EventType.FORMAT_DESCRIPTION] = FORMAT
    table[EventType.IGNORABLE] = IGNORABLE
    return table


_ACTIONS = _actions()


@njit
def frame(buf: U8, counts: I64) -> Int:
    """Count the events by action. Return the offset of a truncated event, or -1."""
    at = np.int64(_FIRST_OFFSET)
    end = np.int64(len(buf))
    while at < end:
        if at + header.HEADER_SIZE > end:
            return at
        size = little(buf, at + header.SIZE_AT, 4)
        if size < header.HEADER_SIZE or at + size > end:
            return at
        counts[_ACTIONS[buf[at + header.TYPE_AT]]] += 1
        at += size
    return np.int64(-1)


@part
def same(buf: U8, a: Int, a_end: Int, b: Int, b_end: Int) -> bool:
    return a_end - a == b_end - b and same_bytes(buf, a, buf, b, a_end - a)


@part
def slot_of(arrays: Arrays, table_id: Int) -> Int:
    """Returns the slot of the hash table with the current version of a table id, or the free slot for it."""
    mask = len(arrays.slots) - 1
    at = (table_id * 0x9E3779B1 >> 7) & mask
    while arrays.slots[at] > 0 and arrays.versions[arrays.slots[at] - 1, TABLE_ID] != table_id:
        at = (at + 1) & mask
    return at


@part
def read_record(buf: U8, at: Int, end: Int, arrays: Arrays) -> Int:
    """Read a RECORD: begin a transaction, or continue the current transaction after events that were left out."""
    txns, files, state = arrays.txns, arrays.files, arrays.state
    if buf[at + record.VERSION_AT] != record.RECORD_VERSION:
        return RECORD_DIFFERS
    name = at + record.RECORD_SIZE
    name_end = name + np.int64(buf[at + record.NAME_SIZE_AT])
    if name_end > end:
        return SHORT
    epoch = little(buf, at + record.EPOCH_AT, 4)
    seq = little(buf, at + record.SEQ_AT, 8)
    state[NEXT] = little(buf, at + record.FIRST_EVENT_AT, 4)
    txn = state[TXN]
    if txn >= 0 and state[NEXT] and txns[txn, EPOCH] == epoch and txns[txn, SEQ] == seq:
        return OK
    file = state[N_FILES] - 1
    if file < 0 or not same(buf, name, name_end, files[file, 0], files[file, 0] + files[file, 1]):
        file += 1
        files[file, 0] = name
        files[file, 1] = name_end - name
        state[N_FILES] = file + 1
    txn = state[N_TXNS]
    state[N_TXNS] = txn + 1
    state[TXN] = txn
    txns[txn, RECORD] = at
    txns[txn, GTID] = -1
    txns[txn, EPOCH] = epoch
    txns[txn, SEQ] = seq
    txns[txn, POSITION] = little(buf, at + record.OFFSET_AT, 8)
    txns[txn, COMMIT_US] = little(buf, at + record.COMMIT_US_AT, 8)
    txns[txn, FILE] = file
    txns[txn, LOWER_CASE] = np.int64(buf[at + record.LOWER_CASE_AT])
    return OK


@part
def read_map(buf: U8, at: Int, end: Int, arrays: Arrays) -> Int:
    """Make a TABLE_MAP the current version of its table id."""
    versions, state = arrays.versions, arrays.state
    body = at + header.HEADER_SIZE
    if end - body < header.TABLE_HEAD_SIZE:
        return SHORT
    table_id = little(buf, body, header.TABLE_ID_SIZE)
    slot = slot_of(arrays, table_id)
    version = arrays.slots[slot] - 1
    start = body + header.TABLE_HEAD_SIZE
    known = versions[version, BODY] + header.TABLE_HEAD_SIZE
    if version < 0 or not same(buf, start, end, known, versions[version, BODY_END]):
        version = state[N_VERSIONS]
        state[N_VERSIONS] = version + 1
        versions[version, TABLE_ID] = table_id
        versions[version, BODY] = body
        versions[version, BODY_END] = end
        arrays.slots[slot] = version + 1
    versions[version, MAPPED_TXN] = state[TXN]
    versions[version, MAPPED_AT] = at
    versions[version, MAPPED_INDEX] = state[NEXT]
    return OK


@part
def note(at: Int, end: Int, kind: Int, version: Int, arrays: Arrays) -> None:
    """Add a line to the events."""
    state, events = arrays.state, arrays.events
    line = state[N_EVENTS]
    state[N_EVENTS] = line + 1
    events[line, row_walk.OFFSET] = at
    events[line, row_walk.END] = end
    events[line, row_walk.TYPE] = kind
    events[line, row_walk.INDEX] = state[NEXT]
    events[line, row_walk.TXN] = state[TXN]
    events[line, row_walk.VERSION] = version
    events[line, row_walk.FORMAT] = state[N_FORMATS] - 1
    if version >= 0:
        events[line, row_walk.MAP_OFFSET] = arrays.versions[version, MAPPED_AT]
        events[line, row_walk.MAP_INDEX] = arrays.versions[version, MAPPED_INDEX]


@part
def read_rows(buf: U8, at: Int, end: Int, kind: Int, arrays: Arrays) -> Int:
    body = at + header.HEADER_SIZE
    if end - body < header.TABLE_HEAD_SIZE:
        return SHORT
    table_id = little(buf, body, header.TABLE_ID_SIZE)
    if table_id == _DUMMY_TABLE:
        return OK
    version = arrays.slots[slot_of(arrays, table_id)] - 1
    if version < 0 or arrays.versions[version, MAPPED_TXN] != arrays.state[TXN]:
        return NO_MAP
    note(at, end, kind, version, arrays)
    return OK


@part
def is_text(buf: U8, at: Int, end: Int, text: bytes) -> bool:
    if end - at != len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110
        if buf[at + i] != text[i]:
            return False
    return True


@part
def read_query(buf: U8, at: Int, end: Int, arrays: Arrays) -> Int:
    """Add a query to the events unless it is BEGIN or COMMIT. In a log of small transactions, these would be half of
    all lines."""
    body = at + header.HEADER_SIZE
    if end - body < header.QUERY_FIXED_SIZE:
        return SHORT
    status_size = little(buf, body + header.QUERY_STATUS_SIZE_AT, 2)
    name_size = np.int64(buf[body + header.QUERY_DATABASE_SIZE_AT])
    text = body + header.QUERY_FIXED_SIZE + status_size + name_size + 1
    if text > end:
        return SHORT
    if not is_text(buf, text, end, b"BEGIN") and not is_text(buf, text, end, b"COMMIT"):
        note(at, end, np.int64(EventType.QUERY), np.int64(-1), arrays)
    return OK


@part
def read_gtid(at: Int, end: Int, kind: Int, arrays: Arrays) -> Int:
    # `gtid_text` parses the fields of a GTID with a tag, and checks them.
    if end - at - header.HEADER_SIZE < (
        header.MARIADB_GTID_SIZE_MIN if kind == EventType.MARIADB_GTID else header.GTID_CLOCK_AT
    ):
        return SHORT
    arrays.txns[arrays.state[TXN], GTID] = at
    arrays.txns[arrays.state[TXN], GTID_INDEX] = arrays.state[NEXT]
    return OK


@njit
def index(buf: U8, arrays: Arrays) -> tuple[Int, Int]:  # noqa: C901 - one branch per kind of event
    """Fill the arrays; returns (error code, offset)."""
    state = arrays.state
    at: Int = np.int64(_FIRST_OFFSET)
    tail: Int = np.int64(0)
    code = OK
    while at < len(buf):
        size = little(buf, at + header.SIZE_AT, 4)
        kind = np.int64(buf[at + header.TYPE_AT])
        action = _ACTIONS[kind]
        end = at + size - tail
        if action == FORMAT:
            # The caller verifies this event's checksum with parse_format_description, which clears the flag "in use"
            # first, because the checksum does not cover it.
            if size < _FORMAT_SIZE_MIN:
                return SHORT, at
            # The byte before the event's own checksum is the checksum algorithm.
            has_crc = buf[at + size - header.CHECKSUM_SIZE - 1] == 1
            tail = np.int64(header.CHECKSUM_SIZE if has_crc else 0)
            arrays.formats[state[N_FORMATS]] = at
            state[N_FORMATS] += 1
            state[TXN] = -1
            at += size
            continue
        if end < at + header.HEADER_SIZE or state[N_FORMATS] == 0:
            return SHORT, at
        if tail and np.int64(crc32(buf, at, end)) != little(buf, end, header.CHECKSUM_SIZE):
            return CHECKSUM, at
        if action == FAIL or (
            action == UNKNOWN and not buf[at + header.FLAGS_AT] & header.FLAG_IGNORABLE
        ):
            return UNSUPPORTED, at
        if ROWS <= action <= GTID_EVENT and state[TXN] < 0:
            return NO_RECORD, at
        if (
            action == IGNORABLE
            and end - at >= record.RECORD_SIZE
            and little(buf, at + record.MAGIC_AT, 2) == _RECORD_MAGIC
        ):
            code = read_record(buf, at, end, arrays)
        else:
            if action == ROWS:
                code = read_rows(buf, at, end, kind, arrays)
            elif action == MAP:
                code = read_map(buf, at, end, arrays)
            elif action == QUERY:
                code = read_query(buf, at, end, arrays)
            elif action == GTID_EVENT:
                code = read_gtid(at, end, kind, arrays)
            state[NEXT] += 1
        if code != OK:
            return code, at
        at += size
    return OK, at
