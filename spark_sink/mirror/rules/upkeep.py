"""Decides when a table's files are compacted, and which days of the log are no longer needed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

SMALL_FILES_MAX = 32  # a table is compacted if it has more files than this, and the files are small
SMALL_FILE_BYTES = 16 << 20
# A table is compacted soon if it has more files than this, and they are so small that rewriting them is cheap.
TINY_FILES_MAX = 128
TINY_FILE_BYTES = 256 << 10


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
