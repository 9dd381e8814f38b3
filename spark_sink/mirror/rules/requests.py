"""What a person's request makes of the record of a table. Pure."""

from __future__ import annotations

from dataclasses import replace

from spark_sink.mirror.rules.table_record import TableRecord, TableState, handled
from spark_sink.mirror.rules.transitions import LEFT_OUT


def is_copied(record: TableRecord) -> bool:
    """True if the table waits for a copy, or for the end of one that has not taken its place."""
    begun = record.state is TableState.COPYING and "begin" in record.detail
    return record.state is TableState.CREATING or begun


def after_request(record: TableRecord) -> TableRecord:
    """Returns what a request makes of a record.

    `applied`: a person has applied the entry that could not be; `skip`: it is left out, so the table is PARTIAL;
    `partial`: an unknown table without its older rows; `retry`: the entry is tried again; `copy`: the table is copied,
    unless it is being copied; `recopy`: its copy begins, also again. A table that the settings leave out stays as it
    is.
    """
    failed = record.detail.get("failed", record.from_lsn)
    done = handled(record)
    copied_now = record.state in (TableState.CREATING, TableState.COPYING)
    if LEFT_OUT in record.detail or (record.request == "copy" and copied_now):
        return done
    if record.request in ("recopy", "copy"):
        reason = "a copy was asked for"
        copied = replace(done, state=TableState.CREATING, reason=reason, signature="")
        return copied.having(goal=None, failed=None, was=None, exact_from=None, lost=None)
    if record.state is not TableState.STOPPED:
        return done
    was = TableState(record.detail.get("was", TableState.PARTIAL))
    if "begin" in record.detail:
        # It was stopped while the log was replayed on its copy, which goes on.
        done, was = replace(done, state=TableState.COPYING), TableState.COMPLETE
    match record.request:
        case "applied":
            # The columns are compared with those of the next rows, and the epoch becomes theirs.
            done = replace(done, from_lsn=failed, signature="", epoch=0)
            return done.having(goal=str(was), exact_from=None, conflict=None)
        case "skip":
            done = replace(done, from_lsn=failed)
            return done.having(goal=str(TableState.PARTIAL), exact_from=None)
        case "partial":
            return done.having(goal=str(TableState.PARTIAL), exact_from=None)
        case "retry":
            return done.having(goal=str(was))
    return done
