"""The rows of prepared transactions, in parts: a server bounds the size of a packet, and a transaction should be short.

The parts of one transaction have an id, which the row of the transaction in `prepared` contains. Parts whose id is in
no row are left from a write that failed, and `sweep_parts` deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from dispatcher.binlog.stream.xa_store import XaEntry
from dispatcher.state.statements import Statements
from dispatcher.state.xa_rows import Data

PART_BYTES = 1 << 20
SMALL_BYTES = 1 << 16

Part = tuple[bytes, int, bytes]  # id, number from 0, data


class PartRows:
    """The parts of entries that are to be stored. `small`: parts that may be written together with the entries;
    `large`: parts that are written one by one, before the entries."""

    def __init__(self, entries: Sequence[XaEntry]) -> None:
        self._ids: list[bytes] = []
        self.small: list[Part] = []
        self.large: list[Part] = []
        for entry in entries:
            if entry.rows is not None:
                self._add(memoryview(entry.rows.data))

    def _add(self, data: memoryview) -> None:
        key = uuid4().bytes
        self._ids.append(key)
        parts = self.small if len(data) <= SMALL_BYTES else self.large
        starts = range(0, max(1, len(data)), PART_BYTES)
        parts += [(key, n, bytes(data[at : at + PART_BYTES])) for n, at in enumerate(starts)]

    def keys(self) -> Callable[[Data], Data]:
        """Returns a function for `save_xa`, which returns the ids in the order of the entries."""
        ids = iter(self._ids)
        return lambda _: next(ids)


def write_parts(db: Statements, parts: Sequence[Part]) -> None:
    if parts:
        db.executemany("REPLACE INTO prepared_part (id, part, data) VALUES (?, ?, ?)", parts)


def read_parts(db: Statements, key: Data) -> bytes:
    """Returns the joined parts. Raises LookupError if there are none."""
    parts: list[bytes] = []
    query = "SELECT data FROM prepared_part WHERE id = ? AND part = ?"
    while (row := db.execute(query, (bytes(key), len(parts))).fetchone()) is not None:
        parts.append(row[0])
    if not parts:
        raise LookupError("rows of a prepared transaction are missing")
    return b"".join(parts)


def sweep_parts(db: Statements) -> None:
    db.execute(
        'DELETE FROM prepared_part WHERE id NOT IN (SELECT "rows" FROM prepared WHERE "rows" IS NOT NULL)'
    )
