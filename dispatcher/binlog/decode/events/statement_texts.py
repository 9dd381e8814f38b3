"""Finds the text of the statement that caused each rows event.

MySQL writes the text with binlog_rows_query_log_events=ON (ROWS_QUERY_EVENT), MariaDB with
binlog_annotate_row_events=ON (ANNOTATE_ROWS_EVENT), before the statement's TABLE_MAPs. The text applies to all rows
events up to the rows event that ends the statement. A part of a transaction does not repeat the text of a statement
that began before the part.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.event import header, record
from dispatcher.binlog.event.control import parse_annotate_rows, parse_rows_query
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.jit import njit

NO_TEXT = -1
CONTINUED = -2  # the statement began before the bytes, so its text is not in them

_IS_ROWS = np.zeros(256, dtype=np.uint8)
_IS_ROWS[
    [
        EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
        EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
    ]
] = 1  # fmt: skip
_IS_TEXT = np.zeros(256, dtype=np.uint8)
_IS_TEXT[[EventType.ROWS_QUERY, EventType.MARIADB_ANNOTATE_ROWS]] = 1
_FORMAT = int(EventType.FORMAT_DESCRIPTION)
_IGNORABLE = int(EventType.IGNORABLE)
_RECORD_MAGIC = int.from_bytes(record.RECORD_MAGIC, "little")


@njit
def begins_transaction(buf: U8, at: Int, end: Int) -> bool:
    """True for a RECORD before the first event of a transaction."""
    if buf[at + header.TYPE_AT] != _IGNORABLE or end - at < record.RECORD_SIZE:
        return False
    is_record = little(buf, at + record.MAGIC_AT, 2) == _RECORD_MAGIC
    return bool(is_record and little(buf, at + record.FIRST_EVENT_AT, 4) == 0)


@njit
def text_offsets(buf: U8, events: I64, texts: I64) -> None:
    """Fill `texts`: for each rows event, offset and end of its text event, or NO_TEXT or CONTINUED. The last line of
    `texts`, after those of `events`, is for the statement in which the bytes end. `index` must have checked the
    bytes."""
    at = np.int64(len(header.MAGIC))
    line = np.int64(0)
    text = np.int64(CONTINUED)
    text_end = np.int64(0)
    transactions = np.int64(0)
    tail = np.int64(0)
    while at < len(buf):
        size = little(buf, at + header.SIZE_AT, 4)
        kind = buf[at + header.TYPE_AT]
        if kind == _FORMAT:
            tail = np.int64(
                header.CHECKSUM_SIZE if buf[at + size - header.CHECKSUM_SIZE - 1] == 1 else 0
            )
        elif _IS_TEXT[kind]:
            text = at
            text_end = at + size - tail
        elif _IS_ROWS[kind]:
            while line < len(events) and events[line, row_walk.OFFSET] < at:
                line += 1
            if line < len(events) and events[line, row_walk.OFFSET] == at:
                texts[line, 0] = text
                texts[line, 1] = text_end
            if buf[at + header.HEADER_SIZE + header.ROWS_FLAGS_AT] & header.STMT_END_F:
                text = np.int64(NO_TEXT)
        elif begins_transaction(buf, at, at + size):
            # Bytes that begin inside a transaction begin with a RECORD, too. This RECORD must not reset the text.
            if transactions:
                text = np.int64(NO_TEXT)
            transactions += 1
        at += size
    texts[len(events), 0] = text
    texts[len(events), 1] = text_end


def read_text(buf: U8, start: int, end: int) -> str:
    """Returns the statement of a text event."""
    body = buf[start + header.HEADER_SIZE : end].tobytes()
    if buf[start + header.TYPE_AT] == EventType.ROWS_QUERY:
        return parse_rows_query(body)
    return parse_annotate_rows(body)
