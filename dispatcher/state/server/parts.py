"""The rows of prepared transactions, in parts. A server limits the size of a packet, a cluster also limits the size of
a transaction, and the store's transactions should be short. So each transaction writes or deletes about a MiB of parts.

The parts of one transaction have an id, which the row of the transaction in `prepared` contains. The id is a digest of
the rows: a write that is repeated writes the same parts again, not another copy. Parts whose id is in no row are left
from a transaction that was deleted, or from a write that failed; `unnamed_parts` finds them. Such parts stay as long as
they are few and have less than a MiB together, because a deletion costs a commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from dispatcher.state.statements import Statements
from dispatcher.state.xa_rows import Data
from dispatcher.stream.xa_store import XaEntry

PART_BYTES = 1 << 20
SMALL_BYTES = 1 << 16
UNNAMED_MAX = 100  # how many parts are looked for, and deleted, at a time
_ID_BYTES = 16
# The inner query does not select the data: InnoDB would read the data of all parts, also of those that a row names.
_UNNAMED = f"""
SELECT id, part, LENGTH(data) FROM prepared_part JOIN (
  SELECT id, part FROM prepared_part
  WHERE id NOT IN (SELECT "rows" FROM prepared WHERE "rows" IS NOT NULL) ORDER BY id, part LIMIT {UNNAMED_MAX}
) AS unnamed USING (id, part) ORDER BY id, part
"""

PartKey = tuple[bytes, int]  # id, number from 0
Part = tuple[bytes, int, bytes]  # id, number from 0, data


class PartRows:
    """The parts of entries that are to be stored. `small`: parts of at most a MiB together, which the caller writes in
    the transaction of the entries; `groups`: parts that the caller writes before the entries, each group of at most a
    MiB in a transaction of its own."""

    def __init__(self, entries: Sequence[XaEntry]) -> None:
        self._ids: list[bytes] = []
        self.small: list[Part] = []
        self.groups: list[list[Part]] = []
        self._small_bytes = 0
        for entry in entries:
            if entry.rows is not None:
                self._add(memoryview(entry.rows.data))

    def _add(self, data: memoryview) -> None:
        key = hashlib.blake2b(data, digest_size=_ID_BYTES).digest()
        self._ids.append(key)
        starts = range(0, max(1, len(data)), PART_BYTES)
        parts = [(key, n, bytes(data[at : at + PART_BYTES])) for n, at in enumerate(starts)]
        if len(data) > SMALL_BYTES:
            self.groups += [[part] for part in parts]
            return
        if self._small_bytes + len(data) > PART_BYTES:
            self.groups.append(self.small)
            self.small, self._small_bytes = [], 0
        self.small += parts
        self._small_bytes += len(data)

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


def unnamed_parts(db: Statements) -> list[list[PartKey]]:
    """Returns the keys of at most `UNNAMED_MAX` parts that no row names, in groups of about a MiB. Returns no group if
    there are fewer than `UNNAMED_MAX` such parts, and these have less than a MiB together."""
    found = [(bytes(key), number, size) for key, number, size in db.execute(_UNNAMED)]
    if len(found) < UNNAMED_MAX and sum(size for *_, size in found) < PART_BYTES:
        return []
    groups: list[list[PartKey]] = []
    room = 0
    for key, number, size in found:
        if not groups or size > room:
            groups.append([])
            room = PART_BYTES
        groups[-1].append((key, number))
        room -= size
    return groups


def delete_parts(db: Statements, keys: Sequence[PartKey]) -> None:
    these = " OR ".join(["id = ? AND part = ?"] * len(keys))
    db.execute(f"DELETE FROM prepared_part WHERE {these}", [each for key in keys for each in key])
