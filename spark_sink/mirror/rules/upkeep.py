"""When a table's files are compacted, and what of the log is needed no longer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from spark_sink.mirror.rules.table_record import TableRecord, TableState

SMALL_FILES_MAX = 32  # of a table, until they are compacted
SMALL_FILE_BYTES = 16 << 20


def needs_compaction(size_bytes: int, files: int) -> bool:
    """True if a table has many files that are small on average."""
    return files > SMALL_FILES_MAX and size_bytes < files * SMALL_FILE_BYTES


def oldest_needed(records: Iterable[TableRecord], watermark: int) -> int:
    """Returns the lsn behind which the log is still needed: by tables that are stopped, copied, or brought forward
    aside (`goal`). A copy that has not begun begins at the log's end, and needs nothing."""
    needing = (TableState.STOPPED, TableState.COPYING)
    return min(
        [watermark, *(r.from_lsn for r in records if r.state in needing or "goal" in r.detail)]
    )


def days_to_forget(newest_lsn: Mapping[date, int], needed: int, today: date, days: int) -> date:
    """Returns the day before which no entry of the log is needed; `newest_lsn`: the largest lsn of each day."""
    kept = [day for day, lsn in newest_lsn.items() if lsn > needed]
    return min([today - timedelta(days=days), *kept])
