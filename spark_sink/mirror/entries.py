"""Entries of the mirror's log, and `lsn`, the number that orders them. Pure.

`lsn = append << 32 | slice << 24 | index`: the number of the consumer's append to the log (1, 2, 3 ... without gaps),
the slice of the micro-batch, and the entry's index in the slice. (consumer, lsn) orders the whole log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from dispatcher.model.position import Position

INDEX_BITS = 24
SLICE_BITS = 8
ENTRY_BITS = SLICE_BITS + INDEX_BITS
SLICES_MAX = (1 << SLICE_BITS) - 1  # slices 0..254 of a micro-batch
ENTRIES_MAX = 1 << INDEX_BITS  # entries of a slice

INLINE_BYTES = 256 << 10


class EntryKind(StrEnum):
    """What an entry of the log is."""

    ROWS = "rows"  # row changes of one table in one layout
    STATEMENT = "statement"
    END = "end"  # the last entry of each append: the position that it ends with
    CLAIM = "claim"  # the first entry of each run of a consumer's query; `BinlogLog.entries` leaves it out


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the log.

    `first_seq`, `last_seq`: transactions of the entry, in `epoch`; `rows`: row changes, of which `inserts`, `updates`
    and `deletes`; `table_map`: body of the TABLE_MAP event; `payload`: a delivered binlog of only this table's events,
    None if it is larger than `INLINE_BYTES` or there is none; `query`: the statement, whose quotes can be parsed with
    `sql_mode` only; `thread_specific`: of a statement, see `Ddl`; `file`, `pos`: where it stands in the server's log;
    `committed_at`: of the entry's last transaction; `position`: of kind END; `gap`: of kind END, the server had purged
    what came before this append.
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
    query: str
    sql_mode: int
    file: str
    pos: int
    committed_at: datetime | None
    position: Position | None
    gap: bool = False
    thread_specific: bool = False

    @property
    def append(self) -> int:
        return append_of(self.lsn)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a consumer's log. `append`: number of its last append; `position`: of the newest END entry, None if
    the log has none yet."""

    append: int
    position: Position | None


def end_row(position: Position, entry: int, *, gap: bool) -> dict[str, Any]:
    """Returns the raw row of an END entry. `entry`: its number in the append."""
    row = {"entry": entry, "kind": EntryKind.END, "rows": 0, "epoch": position.epoch, "gap": gap}
    row |= dict.fromkeys(("first_seq", "last_seq"), position.seq)
    return row | {"position": position.to_json()}


def first_lsn(append: int) -> int:
    """The smallest lsn of an append."""
    return append << ENTRY_BITS


def last_lsn(append: int) -> int:
    """The largest lsn that an append can hold."""
    return (append + 1 << ENTRY_BITS) - 1


def append_of(lsn: int) -> int:
    return lsn >> ENTRY_BITS


def entry_number(slice_number: int, index: int) -> int:
    """The part of an lsn that orders the entries of one micro-batch. Raises `ValueError` out of range."""
    if not (0 <= slice_number < SLICES_MAX and 0 <= index < ENTRIES_MAX):
        raise ValueError(f"entry {index} of slice {slice_number} has no number")
    return slice_number << INDEX_BITS | index
