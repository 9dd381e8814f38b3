"""Entries of a raw stream, which the mirror stores in its log: kinds, numbers, and the row of an END entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.model.position import Position

INDEX_BITS = 24
SLICE_BITS = 8
SLICES_MAX = (1 << SLICE_BITS) - 1  # slices 0..254 of a micro-batch
ENTRIES_MAX = 1 << INDEX_BITS  # entries of a slice


class EntryKind(StrEnum):
    """The kind of an entry."""

    ROWS = "rows"  # row changes of one table in one layout
    STATEMENT = "statement"
    END = "end"  # the last entry of each append, with the position at which the append ends
    CLAIM = "claim"  # first entry of each run of a consumer's query; `BinlogLog.entries` omits it


def end_row(position: Position, entry: int, *, gap: bool) -> dict[str, Any]:
    """Returns the raw row of an END entry. `entry`: the number of this entry in the append."""
    row = {"entry": entry, "kind": EntryKind.END, "rows": 0, "epoch": position.epoch, "gap": gap}
    row |= dict.fromkeys(("first_seq", "last_seq"), position.seq)
    return row | {"position": position.to_json()}


def statement_columns(statement: LoggedStatement) -> dict[str, Any]:
    """Returns the columns of a raw row that hold a statement."""
    session = statement.facts.to_text()
    return {"query": statement.text, "database": statement.database, "session": session}


def statement_of(row: Mapping[str, Any]) -> LoggedStatement:
    """Returns the statement of `statement_columns`."""
    facts = SessionFacts.from_text(row["session"])
    return LoggedStatement(row["query"], row["database"], facts)


def entry_number(slice_number: int, index: int) -> int:
    """Returns the part of an lsn (number of an entry) that orders the entries of one micro-batch. Raises `ValueError`
    for numbers that are out of range."""
    if not (0 <= slice_number < SLICES_MAX and 0 <= index < ENTRIES_MAX):
        raise ValueError(f"entry {index} of slice {slice_number} is out of range")
    return slice_number << INDEX_BITS | index
