"""Decides how long to wait after a failure, and how a record shows that steps fail. Pure."""

from __future__ import annotations

from dataclasses import replace

from spark_sink.mirror.rules.states import Failing, Live
from spark_sink.mirror.rules.table_record import TableRecord

BACKOFF_MAX_S = 60.0
CONFLICTS_MAX = 8  # after each of the first 8 conflicts in succession, the pause is short
REPORTED_AFTER = 3  # after this many failures in succession, the record shows them
LASTING_AFTER = 2 * REPORTED_AFTER  # after this many, --available-now ends without the table


def backoff_s(first_s: float, failures: int) -> float:
    """Returns how many seconds to wait after `failures` failures in succession."""
    return min(BACKOFF_MAX_S, first_s * 2.0 ** min(failures, 20))


def failing(record: TableRecord, lsn: int, text: str) -> TableRecord:
    """Returns the record. If the table is live, the returned record shows that the step that ends with the entry `lsn`
    fails."""
    if not isinstance(record.state, Live):
        return record
    earlier = record.state.failing
    note = Failing(lsn, record.reason if earlier is None else earlier.reason_before)
    return replace(record, state=replace(record.state, failing=note), reason=f"tried again: {text}")


def says_so(record: TableRecord) -> bool:
    """True if the record needs no note about a failing step: it already shows that a step fails, or that the table is
    not live."""
    return not isinstance(record.state, Live) or record.state.failing is not None


def recovered(record: TableRecord) -> TableRecord:
    """Returns the record as it was before `failing` changed it: without `Failing`, and with the reason before the first
    failure."""
    if not isinstance(record.state, Live) or record.state.failing is None:
        return record
    before = record.state.failing.reason_before
    return replace(record, state=replace(record.state, failing=None), reason=before)
