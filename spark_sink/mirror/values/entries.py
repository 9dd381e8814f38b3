"""Entries of the mirror's log, and `lsn`, the number that orders them. An entry contains rows of one table with the
same columns, or a statement, or (kind END) the position at which an append ends. An append is one micro-batch of one
consumer; one commit adds it to the log. A slice is the part of a micro-batch for one task. Pure.

`lsn = append << 32 | slice << 24 | index`. `append` numbers the consumer's appends to the log (1, 2, 3 ...; numbers are
missing only if the end of the log was lost), `slice` numbers the slices of the micro-batch, and `index` numbers the
entries of the slice. (consumer, lsn) orders the whole log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.model.position import Position
from spark_sink.source.raw_entries import INDEX_BITS, SLICE_BITS, EntryKind

ENTRY_BITS = SLICE_BITS + INDEX_BITS

INLINE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the log.

    `first_seq`, `last_seq`: `seq` of the entry's first and last transaction, in `epoch`; `rows`: number of row changes,
    the sum of `inserts`, `updates` and `deletes`; `table_map`: body of the TABLE_MAP event; `payload`: a delivered
    binlog with only the events of this table; None for an entry without rows, and for a payload of more than
    `INLINE_BYTES`; `statement`: None for other kinds; `file`, `pos`: the entry's place in the server's log;
    `committed_at`: the commit time of the entry's last transaction; `position`: for kind END, the position at which the
    append ends; `gap`: for kind END, True if the server had purged changes before this append.
    """

    lsn: int
    kind: EntryKind
    database: str
    table: str
    layout: str
    epoch: int
    first_seq: int
    last_seq: int
    rows: int
    inserts: int
    updates: int
    deletes: int
    table_map: bytes
    payload_bytes: int
    payload: bytes | None
    statement: LoggedStatement | None
    file: str
    pos: int
    committed_at: datetime | None
    position: Position | None
    gap: bool = False

    @property
    def append(self) -> int:
        return append_of(self.lsn)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a consumer's log. `append`: number of the consumer's last append; `position`: the position of the
    newest END entry, None if the log contains no END entry yet."""

    append: int
    position: Position | None


def first_lsn(append: int) -> int:
    """Returns the smallest lsn of an append."""
    return append << ENTRY_BITS


def last_lsn(append: int) -> int:
    """Returns the largest possible lsn of an append."""
    return (append + 1 << ENTRY_BITS) - 1


def append_of(lsn: int) -> int:
    return lsn >> ENTRY_BITS
