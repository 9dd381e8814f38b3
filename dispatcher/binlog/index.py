"""One pass over delivered binlog bytes: framing, checksums, and where everything is.

The result is arrays, a line per event that matters here (rows events, and queries other than BEGIN and COMMIT), per
transaction, per distinct TABLE_MAP and per FORMAT_DESCRIPTION. Nothing is copied and no row is read. An event that
could carry data and is not understood is an error, never skipped (an unknown one with the ignorable flag may be).

Table ids are looked up in an open-addressing hash table; a TABLE_MAP whose bytes equal the last ones of its id is the
same version. A rows event must find a version mapped in its own transaction: a server numbers tables anew when it
restarts, so an older one might be another table's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.crc import crc32
from dispatcher.binlog.events import MAGIC, RECORD_VERSION, EventType, parse_format_description, type_name
from dispatcher.binlog.gtids import little
from dispatcher.binlog.jit import njit
from dispatcher.binlog.rows import EVENT_FIELDS
from dispatcher.model.errors import BinlogError, Kind

# Columns of the transactions array.
RECORD = 0  # offset of the first RECORD event of the transaction
GTID = 1  # offset of its GTID event, -1 where it has none
EPOCH = 2
SEQ = 3
POSITION = 4
COMMIT_US = 5
FILE = 6  # line in the list of file names
RECORD_FORMAT = 7
GTID_INDEX = 8
TXN_FIELDS = 9

_HEADER = 19
_RECORD_SIZE = 55
_DUMMY_TABLE = 0x00FFFFFF  # a rows event without rows that only ends a statement

_OK = 0
_CUT = 1
_CHECKSUM = 2
_UNSUPPORTED = 3
_NO_RECORD = 4
_NO_MAP = 5
_RECORD_VERSION_DIFFERS = 6
_SHORT_EVENT = 7

# What to do with an event, by type.
_FAIL, _SKIP, _UNKNOWN, _ROWS, _QUERY, _MAP, _GTID, _FORMAT, _IGNORABLE = range(9)


def _actions() -> NDArray[np.uint8]:
    table = np.full(256, _UNKNOWN, dtype=np.uint8)
    table[list(EventType)] = _FAIL
    for code in (
        EventType.STOP, EventType.ROTATE, EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.XID,
        EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.ROWS_QUERY, EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE, EventType.XA_PREPARE, EventType.MARIADB_ANNOTATE_ROWS,
        EventType.MARIADB_BINLOG_CHECKPOINT, EventType.MARIADB_GTID_LIST,
    ):  # fmt: skip
        table[code] = _SKIP
    for code in (
        EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
        EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS,
    ):  # fmt: skip
        table[code] = _ROWS
    for code in (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID):
        table[code] = _GTID
    table[EventType.QUERY] = _QUERY
    table[EventType.TABLE_MAP] = _MAP
    table[EventType.FORMAT_DESCRIPTION] = _FORMAT
    table[EventType.IGNORABLE] = _IGNORABLE
    return table


_ACTIONS = _actions()


@njit
def frame(buf: NDArray[np.uint8], counts: NDArray[np.int64]) -> int:
    """Count events by action into `counts`; returns the offset of one that is cut short, or -1."""
    at = np.int64(4)
    end = np.int64(len(buf))
    while at < end:
        if at + _HEADER > end:
            return at
        size = np.int64(buf[at + 9]) | np.int64(buf[at + 10]) << 8 | np.int64(buf[at + 11]) << 16
        size |= np.int64(buf[at + 12]) << 24
        if size < _HEADER or at + size > end:
            return at
        counts[_ACTIONS[buf[at + 4]]] += 1
        at += size
    return -1


@njit
def same(buf: NDArray[np.uint8], a: int, a_end: int, b: int, b_end: int) -> bool:
    if a_end - a != b_end - b:
        return False
    for i in range(a_end - a):
        if buf[a + i] != buf[b + i]:
            return False
    return True


@njit
def slot_of(slots: NDArray[np.int64], versions: NDArray[np.int64], table_id: int) -> int:
    """Where the version of a table id is (as version + 1), or belongs (0), in the hash table."""
    mask = len(slots) - 1
    at = (table_id * 0x9E3779B1 >> 7) & mask
    while slots[at] > 0 and versions[slots[at] - 1, 0] != table_id:
        at = (at + 1) & mask
    return at


@njit
def is_control(buf: NDArray[np.uint8], at: int, end: int) -> bool:
    """Is the body of a QUERY exactly BEGIN or COMMIT? They are half of all events in a log of small transactions."""
    text = at + 13 + little(buf, at + 11, 2) + np.int64(buf[at + 8]) + 1
    if end - text == 5:
        return buf[text] == 66 and buf[text + 1] == 69 and buf[text + 2] == 71 and buf[text + 3] == 73 and buf[text + 4] == 78
    if end - text == 6:
        return buf[text] == 67 and buf[text + 1] == 79 and buf[text + 2] == 77 and buf[text + 3] == 77 and buf[text + 5] == 84
    return False


@njit
def index(
    buf: NDArray[np.uint8],
    events: NDArray[np.int64],
    txns: NDArray[np.int64],
    versions: NDArray[np.int64],
    formats: NDArray[np.int64],
    files: NDArray[np.int64],
    slots: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> int:
    """Fill the arrays; `sizes` = lines used of each, in argument order, then the offset of an error. Returns its code.

    `versions`: (table id, body offset, body end, last transaction, its TABLE_MAP's offset, its index); `files`: (offset,
    size) of a name. The arrays are large enough for what `frame` counted.
    """
    n_events = n_txns = n_versions = n_formats = n_files = 0
    at = np.int64(4)
    tail = np.int64(0)
    next_index = np.int64(0)
    txn = np.int64(-1)
    code = _OK
    while at < len(buf):
        size = little(buf, at + 9, 4)
        kind = np.int64(buf[at + 4])
        action = _ACTIONS[kind]
        body = at + _HEADER
        if action == _FORMAT:
            # Checked by parse_format_description, which also knows that the flag "in use" is not part of the checksum.
            if size < _HEADER + 57 + 5:
                code = _SHORT_EVENT
                break
            tail = np.int64(4) if buf[at + size - 5] == 1 else np.int64(0)
            formats[n_formats] = at
            n_formats += 1
            txn = np.int64(-1)
            at += size
            continue
        end = at + size - tail
        if end < body or n_formats == 0:
            code = _SHORT_EVENT
            break
        if tail and np.int64(crc32(buf, at, end)) != little(buf, end, 4):
            code = _CHECKSUM
            break
        if action == _IGNORABLE and end - body >= _RECORD_SIZE - _HEADER and buf[body] == 66 and buf[body + 1] == 68:
            name = at + _RECORD_SIZE
            name_size = np.int64(buf[at + 22])
            if buf[at + 21] != RECORD_VERSION:
                code = _RECORD_VERSION_DIFFERS
                break
            if name + name_size > end:
                code = _SHORT_EVENT
                break
            epoch = little(buf, at + 23, 4)
            seq = little(buf, at + 27, 8)
            next_index = little(buf, at + 51, 4)
            if txn < 0 or next_index == 0 or txns[txn, EPOCH] != epoch or txns[txn, SEQ] != seq:
                last = files[n_files - 1] if n_files else files[0]
                if n_files == 0 or not same(buf, name, name + name_size, last[0], last[0] + last[1]):
                    files[n_files, 0] = name
                    files[n_files, 1] = name_size
                    n_files += 1
                txn = np.int64(n_txns)
                n_txns += 1
                txns[txn, RECORD] = at
                txns[txn, GTID] = -1
                txns[txn, EPOCH] = epoch
                txns[txn, SEQ] = seq
                txns[txn, POSITION] = little(buf, at + 35, 8)
                txns[txn, COMMIT_US] = little(buf, at + 43, 8)
                txns[txn, FILE] = n_files - 1
                txns[txn, RECORD_FORMAT] = n_formats - 1
            at += size
            continue
        if action == _FAIL or (action == _UNKNOWN and not buf[at + 17] & 0x80):
            code = _UNSUPPORTED
            break
        if _ROWS <= action <= _GTID and txn < 0:
            code = _NO_RECORD
            break
        if action == _GTID:
            if end - body < (12 if kind == 162 else 25):
                code = _SHORT_EVENT
                break
            txns[txn, GTID] = at
            txns[txn, GTID_INDEX] = next_index
        elif action == _MAP:
            if end - body < 8:
                code = _SHORT_EVENT
                break
            table_id = little(buf, body, 6)
            slot = slot_of(slots, versions, table_id)
            version = slots[slot] - 1
            if version < 0 or not same(buf, body + 8, end, versions[version, 1] + 8, versions[version, 2]):
                version = np.int64(n_versions)
                n_versions += 1
                versions[version, 0] = table_id
                versions[version, 1] = body
                versions[version, 2] = end
                slots[slot] = version + 1
            versions[version, 3] = txn
            versions[version, 4] = at
            versions[version, 5] = next_index
        elif action == _ROWS or (action == _QUERY):
            if end - body < (8 if action == _ROWS else 13):
                code = _SHORT_EVENT
                break
            version = np.int64(-1)
            skip = False
            if action == _ROWS:
                table_id = little(buf, body, 6)
                version = slots[slot_of(slots, versions, table_id)] - 1
                skip = table_id == _DUMMY_TABLE
                if not skip and (version < 0 or versions[version, 3] != txn):
                    code = _NO_MAP
                    break
            elif body + 13 + little(buf, body + 11, 2) + np.int64(buf[body + 8]) + 1 > end:
                code = _SHORT_EVENT
                break
            else:
                skip = is_control(buf, body, end)
            if not skip:
                line = events[n_events]
                n_events += 1
                line[0], line[1], line[2], line[3], line[4], line[5] = at, end, kind, next_index, txn, version
                if version >= 0:
                    line[6], line[7] = versions[version, 4], versions[version, 5]
                line[8] = n_formats - 1
        next_index += 1
        at += size
    sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5] = n_events, n_txns, n_versions, n_formats, n_files, at
    return code


@dataclass(frozen=True, slots=True)
class Index:
    """Where everything is in `buf`; the arrays are described above, `events` in `rows`."""

    buf: NDArray[np.uint8]
    events: NDArray[np.int64]
    txns: NDArray[np.int64]
    versions: NDArray[np.int64]
    formats: NDArray[np.int64]
    files: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes) -> Index:
        """Raises `BinlogError` with the offset: MALFORMED_EVENT, CHECKSUM_MISMATCH, UNSUPPORTED_EVENT."""
        if data[:4] != MAGIC:
            raise BinlogError(Kind.MALFORMED_EVENT, f"not a binlog: it begins with {bytes(data[:4])!r}")
        buf: NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8)
        buf.flags.writeable = False  # one kind of array, so that each kernel has one signature
        counts = np.zeros(9, dtype=np.int64)
        if (at := frame(buf, counts)) >= 0:
            raise _error(buf, _CUT, at)
        events = np.zeros((counts[_ROWS] + counts[_QUERY], EVENT_FIELDS), dtype=np.int64)
        txns = np.zeros((counts[_IGNORABLE], TXN_FIELDS), dtype=np.int64)
        versions = np.zeros((counts[_MAP], 6), dtype=np.int64)
        formats = np.zeros(counts[_FORMAT], dtype=np.int64)
        files = np.zeros((counts[_IGNORABLE] + 1, 2), dtype=np.int64)
        slots = np.zeros(max(16, 1 << int(2 * counts[_MAP]).bit_length()), dtype=np.int64)
        sizes = np.zeros(6, dtype=np.int64)
        code = index(buf, events, txns, versions, formats, files, slots, sizes)
        for at in formats[: sizes[3]].tolist():
            _check_format(buf, at)
        if code != _OK:
            raise _error(buf, code, int(sizes[5]))
        return cls(
            buf,
            events[: sizes[0]],
            txns[: sizes[1]],
            versions[: sizes[2]],
            formats[: sizes[3]],
            tuple(_name(buf, at, size) for at, size in files[: sizes[4]].tolist()),
        )


def _check_format(buf: NDArray[np.uint8], at: int) -> None:
    size = int.from_bytes(buf[at + 9 : at + 13].tobytes(), "little")
    try:
        parse_format_description(buf[at : at + size].tobytes())
    except BinlogError as error:
        raise error.at(f"offset {at}") from None


def _name(buf: NDArray[np.uint8], at: int, size: int) -> str:
    try:
        return buf[at : at + size].tobytes().decode()
    except UnicodeDecodeError:
        raise BinlogError(Kind.MALFORMED_EVENT, "record with a file name that is not UTF-8", where=f"offset {at}") from None


def _error(buf: NDArray[np.uint8], code: int, at: int) -> BinlogError:
    where = f"offset {at}"
    if code == _CUT:
        return BinlogError(Kind.MALFORMED_EVENT, "an event reaches past the end or is shorter than its header", where=where)
    name = type_name(int(buf[at + 4]))
    match code:
        case 2:
            return BinlogError(Kind.CHECKSUM_MISMATCH, name, where=where)
        case 3:
            return _unsupported(name, int(buf[at + 4]), where)
        case 4:
            return BinlogError(Kind.MALFORMED_EVENT, f"{name} outside a transaction: no record stands before it", where=where)
        case 5:
            return BinlogError(Kind.MALFORMED_EVENT, f"{name} without a TABLE_MAP in its transaction", where=where)
        case 6:
            return BinlogError(
                Kind.UNSUPPORTED_EVENT,
                f"record of version {int(buf[at + 21])}, this reader knows {RECORD_VERSION}",
                where=where,
                remedy="install the same version of binlog-dispatcher on both sides",
            )
    return BinlogError(Kind.MALFORMED_EVENT, f"{name} is cut short, or no FORMAT_DESCRIPTION_EVENT stands before it", where=where)


def _unsupported(name: str, kind: int, where: str) -> BinlogError:
    remedy = {
        EventType.PARTIAL_UPDATE_ROWS: "SET PERSIST binlog_row_value_options='' on the server",
        EventType.TRANSACTION_PAYLOAD: "SET PERSIST binlog_transaction_compression=OFF on the server",
        EventType.GTID_TAGGED: "do not use gtid_next='AUTOMATIC:tag'",
    }.get(EventType(kind)) if kind in EventType else None
    if EventType.MARIADB_QUERY_COMPRESSED <= kind <= EventType.MARIADB_DELETE_ROWS_COMPRESSED:
        remedy = "SET GLOBAL log_bin_compress=OFF on the server"
    return BinlogError(Kind.UNSUPPORTED_EVENT, name, where=where, remedy=remedy)
