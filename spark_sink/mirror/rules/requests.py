"""Computes how a person's request changes the record of a table. Pure."""

from __future__ import annotations

from dataclasses import replace

from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    LeftOut,
    Live,
    Replaying,
    Stopped,
)
from spark_sink.mirror.rules.table_record import TableRecord, Wish, handled


def waits_for_copy(record: TableRecord) -> bool:
    """True if the table waits for a copy, or for the end of a copy that has not replaced its rows yet."""
    return isinstance(record.state, Creating | Copying | Copied | Replaying)


def after_request(record: TableRecord) -> TableRecord:
    """Returns the record after its request was executed, without the request. A request does not change a table that
    the settings leave out. A live table is changed only by a request for a copy. If a table is stopped because its rows
    differ, a request for a repair ends the stop."""
    if record.request is None:
        return record
    done, wish = handled(record), record.request.wish
    if isinstance(record.state, LeftOut):
        return done
    if wish in (Wish.COPY, Wish.RECOPY):
        is_copied = waits_for_copy(record) or (
            isinstance(record.state, CatchingUp) and record.state.passed is not None
        )
        if wish is Wish.COPY and is_copied:
            return done
        return replace(done, state=Creating(), reason="a copy was asked for", signature="")
    if not isinstance(record.state, Stopped) or (wish is Wish.REPAIR and not record.state.differs):
        return done
    return _resumed(done, record.state, wish)


def _resumed(record: TableRecord, stopped: Stopped, wish: Wish) -> TableRecord:
    goal = stopped.was
    if wish is Wish.APPLIED:
        # The mirror compares the columns of the next rows of the log with those of the table, and the table gets the
        # epoch of these rows.
        record = replace(record, from_lsn=stopped.failed, signature="", epoch=0, conflict="")
        goal = replace(goal, exact_from=None)
    elif wish is Wish.SKIP:
        record = replace(record, from_lsn=stopped.failed)
        if stopped.ahead:  # as above
            record = replace(record, signature="")
    if wish in (Wish.SKIP, Wish.PARTIAL):
        goal = Live(complete=False)
    if stopped.copy is not None:
        # The table was stopped while the log was replayed on its copy, so this replay continues.
        return replace(record, state=replace(stopped.copy, goal=goal))
    return replace(record, state=CatchingUp(goal, stopped=stopped))
