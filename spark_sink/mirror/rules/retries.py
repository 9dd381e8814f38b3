"""How long to wait before a step is tried again, and what a record says of a step that fails. Pure."""

from __future__ import annotations

from dataclasses import replace

from spark_sink.mirror.rules.table_record import TableRecord

BACKOFF_MAX_S = 60.0
FAILING = "failing"  # of `detail`: at which lsn
_REASON_BEFORE = "reason_before"


def backoff_s(first_s: float, failures: int) -> float:
    """Returns how long to wait after so many failures in a row."""
    return min(BACKOFF_MAX_S, first_s * 2.0 ** min(failures, 20))


def with_failure(record: TableRecord, lsn: int, text: str) -> TableRecord:
    """The record with the note that steps fail, since the entry `lsn` with the error `text`."""
    before = record.detail.get(_REASON_BEFORE, record.reason or None)
    return replace(record, reason=f"tried again: {text}").having(
        **{FAILING: lsn, _REASON_BEFORE: before}
    )


def without_failure(record: TableRecord) -> TableRecord:
    """The record without the note that steps fail, and with the reason that it had before."""
    if FAILING not in record.detail:
        return record
    before = record.detail.get(_REASON_BEFORE, "")
    return replace(record, reason=before).having(**{FAILING: None, _REASON_BEFORE: None})
