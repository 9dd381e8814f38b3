"""Decides when a table's files are compacted, which commits of its Delta log are kept, and which days of the mirror's
log are no longer needed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

SMALL_FILES_MAX = 32  # a table is compacted if it has more files than this, and the files are small
SMALL_FILE_BYTES = 16 << 20
# A table is compacted soon if it has more files than this, and they are so small that rewriting them is cheap.
TINY_FILES_MAX = 128
TINY_FILE_BYTES = 256 << 10
# Each transaction of Delta lists all commits of its table, so a table keeps at most this many (and those since the next
# checkpoint).
COMMITS_MAX = 20_000
# Commits of this age may still be read by a query that has begun before a newer checkpoint was written.
READ_S = 3600.0


def needs_compaction(size_bytes: int, files: int) -> bool:
    """True if a table has many files that are small on average."""
    return files > SMALL_FILES_MAX and size_bytes < files * SMALL_FILE_BYTES


def needs_compaction_soon(size_bytes: int, files: int) -> bool:
    """True if a table has so many tiny files that its compaction should not wait for the next round of maintenance."""
    return files > TINY_FILES_MAX and size_bytes < files * TINY_FILE_BYTES


def days_to_forget(newest_lsn: Mapping[date, int], needed: int, today: date, days: int) -> date:
    """Returns the day before which the log can be deleted. The log keeps the newest `days` days. It also keeps the
    first day that has an entry with an lsn (number of an entry) greater than `needed`, and all later days.
    `newest_lsn`: the largest lsn of each day."""
    kept = [day for day, lsn in newest_lsn.items() if lsn > needed]
    return min([today - timedelta(days=days), *kept])


def first_kept_commit(checkpoints: Mapping[int, float], now: float, keep_s: float) -> int:
    """Returns the version before which the commits and checkpoints of a Delta table can be deleted: the version of a
    checkpoint, or 0 to delete nothing.

    `checkpoints`: when each checkpoint was written, s since 1970; `keep_s`: the commits of at least this time are kept,
    but not more than some `COMMITS_MAX` commits.
    """
    newest = max(checkpoints, default=0)
    old = (
        version
        for version, at in checkpoints.items()
        if now - at >= max(keep_s, READ_S)
        or (newest - version >= COMMITS_MAX and now - at >= READ_S)
    )
    return max(old, default=0)
