"""Computes how statements, unknown rows and gaps change the record of a table. Pure.

A transition consists of the table's new record and a change of its Delta table. A task first changes the Delta table,
in a commit that records the statement's lsn (its number in the log), and then writes the record. Both writes can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    LeftOut,
    Live,
    Replaying,
    Stopped,
    TableState,
)
from spark_sink.mirror.rules.table_record import (
    Move,
    TableRecord,
    forgetting,
    handled,
    new_table_id,
)
from spark_sink.mirror.schema.recomputed import generated_after
from spark_sink.mirror.schema.signature import Recopy, SchemaChange, Signature, change_of
from spark_sink.mirror.schema.statements import (
    AlterTable,
    CreateTable,
    DropTable,
    TableEffect,
    TruncateTable,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName, table_label
from spark_sink.mirror.values.policies import (
    PurgedChanges,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)


class DeltaWork(StrEnum):
    """What a statement does to a table's Delta table."""

    NOTHING = "nothing"
    DROP = "drop"  # delete all rows
    TRUNCATE = "truncate"  # delete all rows, or mark them as deleted
    SCHEMA = "schema"


@dataclass(frozen=True, slots=True)
class Transition:
    """The changes that a statement makes to a table's record and Delta table.

    `record`: the new record, None if there is none; `change`: the change of columns, for SCHEMA; `recopy`: "" if the
    values of existing rows are known; otherwise the reason why they are not known. In the latter case, the table is
    copied again if it has rows.
    """

    record: TableRecord | None
    work: DeltaWork = DeltaWork.NOTHING
    change: SchemaChange | None = None
    recopy: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """The values on which transitions depend, in addition to the record. `server`: the server from which the log was
    read; `new_id`: returns a new id for a table."""

    consumer: str
    server: str
    policy: TablePolicy
    can_copy: bool
    invalid_dates: InvalidDates
    new_id: Callable[[], str] = new_table_id


def after_effect(
    name: TableName,
    record: TableRecord | None,
    effect: TableEffect,
    entry: LogEntry,
    now: Situation,
) -> Transition:
    """Returns how one effect of a statement, other than a RENAME, changes the table `name` with this record."""
    moved = _after_effect(name, record, effect, entry, now)
    if record is None or moved.record is None:
        return moved
    return replace(moved, record=_once_in_place(moved.record, record))


def _once_in_place(record: TableRecord, before: TableRecord | None) -> TableRecord:
    """Returns the record. If its state is `Live`, but the table's folder is not in its place yet, changes the state to
    `CatchingUp`."""
    if record.move is None or not isinstance(record.state, Live):
        return record
    reason = f"its folder waits until the path {record.folder} is free"
    if before and isinstance(before.state, CatchingUp) and before.state.reason_before is not None:
        reason = before.reason
    waits = CatchingUp(record.state, reason_before=record.reason)
    return replace(record, state=waits, reason=reason)


def _after_effect(
    name: TableName,
    record: TableRecord | None,
    effect: TableEffect,
    entry: LogEntry,
    now: Situation,
) -> Transition:
    exists = record is not None and not record.is_dropped
    match effect:
        case CreateTable():
            if effect.if_not_exists and not effect.replaces and not _is_gone(record):
                return Transition(record)
            work = DeltaWork.DROP if exists else DeltaWork.NOTHING
            created = replace(_anew(name, record, entry, now), generated=effect.generated)
            if effect.cascades:
                reason = _cascades_reason(effect.cascades, created.label)
                created = replace(created, reason=reason)
            return Transition(created, work)
        case DropTable() if exists:
            assert record is not None
            dropped = replace(record, state=Dropped(), from_lsn=entry.lsn, reason="")
            return Transition(
                forgetting(replace(dropped, signature="", generated=None)), DeltaWork.DROP
            )
        case TruncateTable():
            emptied = _anew(name, record, entry, now)
            if record is not None and record.is_live:
                emptied = replace(emptied, signature=record.signature)
                return Transition(emptied, DeltaWork.TRUNCATE)
            return Transition(emptied, DeltaWork.DROP if exists else DeltaWork.NOTHING)
        case AlterTable() if record is not None and record.is_live:
            return _altered(record, effect, entry, now)
        case AlterTable() if record is not None and in_copy(record, entry.lsn):
            if effect.clauses or effect.copy_reason:
                return Transition(copied_again(record))
    return Transition(record)


def _is_gone(record: TableRecord | None) -> bool:
    """True if the server certainly has no table with the name. If there is no record, the server may have a table that
    is older than the mirror."""
    return record is not None and record.state == Dropped()


def copied_again(record: TableRecord) -> TableRecord:
    """Returns the record of a table whose copy has to begin again."""
    return forgetting(replace(record, state=Creating(), signature=""))


def in_copy(record: TableRecord, lsn: int) -> bool:
    """True if the rows of the table's copy may already contain the changes of the entry `lsn`."""
    match record.state:
        case Copying() | Copied():
            return True
        case Replaying(passed=passed):
            return lsn <= passed
        case CatchingUp(passed=passed):
            return passed is not None and lsn <= passed
    return False


def _anew(
    name: TableName, record: TableRecord | None, entry: LogEntry, now: Situation
) -> TableRecord:
    """Returns the record of a table that is empty after `entry`. So from this entry on, the table is complete, and its
    rows are equal to the server's. The new record has the id and the folder of `record`."""
    kept = record or TableRecord(now.new_id(), now.consumer, *name)
    empty = replace(
        forgetting(kept),
        consumer=now.consumer,
        state=Live(exact_from=entry.lsn),
        server=now.server,
        epoch=entry.epoch,
        from_lsn=entry.lsn,
        signature="",
        reason="",
    )
    return replace(empty, serial=0, at=None)


def _cascades_reason(cascades: tuple[str, ...], label: str) -> str:
    return (
        f"{', '.join(cascades)}: servers before MySQL 9.6 do not log the rows that a foreign key changes;"
        f" {remedies.of_cascades(label)}"
    )


def _altered(
    record: TableRecord, effect: AlterTable, entry: LogEntry, now: Situation
) -> Transition:
    if not effect.clauses and not effect.copy_reason:
        return Transition(record)
    # A clause that was not parsed may concern generated columns.
    generated = None if effect.copy_reason else generated_after(record.generated, effect.clauses)
    done = replace(record, from_lsn=entry.lsn, generated=generated)
    if effect.cascades:
        done = replace(done, reason=_cascades_reason(effect.cascades, record.label))
    if not record.signature:
        # A table that has had no rows gets the columns of the next rows. The columns of an adopted table are compared
        # with those of the next rows.
        return Transition(done, recopy=effect.copy_reason)
    if effect.copy_reason:
        return Transition(replace(done, signature=""), recopy=effect.copy_reason)
    known = record.generated
    if known is None and record.word is TableState.PARTIAL:
        known = ()  # the table may differ from the server's table
    before, dates = Signature.from_json(record.signature), now.invalid_dates
    change = change_of(before, effect, dates, known, now.policy.omitted, now.policy.rules)
    if isinstance(change, Recopy):
        if now.policy.unfollowed is UnfollowedChange.NEW_COLUMN and not change.others:
            return Transition(with_new_column(done, entry.lsn))
        return Transition(replace(done, signature=""), recopy=change.reason)
    done = replace(done, signature=change.signature.to_json())
    return Transition(done, DeltaWork.SCHEMA, change)


def with_new_column(record: TableRecord, lsn: int) -> TableRecord:
    """Returns the record of a live table that gets new columns together with its next rows, because the log does not
    show how the ALTER TABLE at `lsn` changed the existing rows."""
    assert isinstance(record.state, Live)
    return replace(record, from_lsn=lsn, state=replace(record.state, new_column=lsn))


def needs_copy(record: TableRecord, reason: str, lsn: int, now: Situation) -> TableRecord:
    """Returns the record of a table whose existing rows are no longer known: the table is copied if the policy says so,
    otherwise stopped before `lsn`."""
    if now.can_copy and now.policy.unfollowed is not UnfollowedChange.STOP:
        return waiting_for_copy(record, reason, lsn)
    way = remedies.of_unknown_rows(record.label, can_copy=now.can_copy)
    return stopped(record, f"{reason}, so its existing rows are not known; {way}", lsn - 1, lsn)


def masked_anew(record: TableRecord, reason: str, lsn: int, now: Situation) -> TableRecord:
    """Returns the record of a table that the RENAME `lsn` has given a name with other masks than its rows have.

    The rows of a replay have the masks of the former name, so the copy of the table begins again. A stopped table keeps
    its state: its entries before `lsn` wait in the log, and after them its next rows need a copy.
    """
    match record.state:
        case Live():
            return needs_copy(record, reason, lsn, now)
        case Replaying():
            return replace(copied_again(record), from_lsn=lsn, reason=reason)
        case CatchingUp():
            after = needs_copy(record, reason, lsn, now)
            if isinstance(after.state, Stopped):
                # The replay has applied nothing after `from_lsn`, and no entry need be skipped.
                return stopped(record, after.reason, record.from_lsn, record.from_lsn)
            return after
    return record


def waiting_for_copy(record: TableRecord, reason: str, lsn: int) -> TableRecord:
    """Returns the record of a table that waits for a copy. The table's entries after `lsn` are left in the log."""
    copied = replace(record, state=Creating(), from_lsn=lsn, reason=reason)
    return forgetting(replace(copied, signature=""))


def conflicting(record: TableRecord, differs: str, lsn: int, now: Situation) -> TableRecord:
    """Returns the record of a table whose rows in the log, from the entry `lsn` on, have other columns than the table.
    `differs`: the difference.

    If the policy wants it, the table is copied, but not a second time for the same difference. If the difference
    remains after a copy, the server describes the columns in another way than its log, so another copy would have the
    difference, too.
    """
    reason = f"the log's rows have other columns than the table: {differs}"
    if record.conflict != differs:
        after = needs_copy(record, reason, lsn, now)
        return replace(after, conflict=differs) if isinstance(after.state, Creating) else after
    text = f"{reason}, also after a copy; {remedies.of_conflict(record.label)}"
    # The entry `lsn` was not applied, and need not be skipped: a replay will read it again.
    return stopped(record, text, lsn - 1, lsn - 1)


def differing(record: TableRecord, difference: str, lsn: int, *, columns: bool) -> TableRecord:
    """Returns the record of a table that is stopped because it differs from the server's table. All entries up to `lsn`
    are applied. `columns`: True if its columns differ."""
    way = remedies.of_difference(record.label, columns=columns)
    reason = f"the table differs from the server's: {difference}; {way}"
    standing = stopped(record, reason, lsn, lsn)
    assert isinstance(standing.state, Stopped)
    return replace(standing, state=replace(standing.state, differs=True))


def shown_without_mask(
    record: TableRecord, columns: Sequence[str], former: str, lsn: int
) -> TableRecord:
    """Returns the record of a table that the statement `lsn` has renamed, so that the settings no longer mask
    `columns`. `former`: the table's former label.

    Only a person may decide to show these values, so the table is stopped, and the person asks for its copy. A table
    that was stopped before still needs the entries before the statement, so its state stays.
    """
    named = f"column {columns[0]}" if len(columns) == 1 else f"columns {', '.join(columns)}"
    way = remedies.of_shown_columns(record.label, columns)
    reason = f"the settings mask {named} in {former}, but not in {record.label}; {way}"
    if isinstance(record.state, Stopped):
        return replace(record, reason=reason)
    return stopped(record, reason, lsn, lsn)


def faulted(record: TableRecord, fault: BinlogError, lsn: int) -> TableRecord:
    """Returns the record of a table whose entry `lsn` has a fault.

    If the entry's rows belong to another history, the entry itself has no fault: a replay applies it after a person has
    confirmed that the table has all changes from before these rows.
    """
    other_history = fault.kind is ErrorKind.HISTORY_DIFFERS
    text = remedies.of_fault(fault, record.label)
    # The fault contains the table's name at the entry. A RENAME after the entry may already be executed.
    then = table_label(name_at(record, lsn))
    text = remedies.naming(text, then, record.label)
    return stopped(record, text, lsn - 1, lsn - 1 if other_history else lsn)


def stopped(record: TableRecord, reason: str, before: int, failed: int) -> TableRecord:
    """Returns the record of a stopped table: all entries up to the lsn `before` are applied, and `failed` is the last
    lsn that could not be applied.

    `reason` ends with a remedy from `remedies`.
    """
    copy = record.state if isinstance(record.state, Replaying) else None
    state = Stopped(failed, returns_to(record), copy=copy)
    return replace(record, state=state, reason=reason, from_lsn=before)


def place_taken(record: TableRecord, aside: str, fault: BinlogError) -> TableRecord:
    """Returns the record of a table whose folder stays at `aside`, because its place is taken. When the place is free,
    the mirror moves the folder and continues to apply the table."""
    waits = replace(record, move=Move(aside))
    state = CatchingUp(record.state) if isinstance(record.state, Live) else record.state
    if not isinstance(state, CatchingUp):
        return waits
    if state.reason_before is None:
        state = replace(state, reason_before=record.reason)
    return replace(waits, state=state, reason=str(fault))


def in_its_place(record: TableRecord) -> TableRecord:
    """Returns the record of a table whose folder is now in its place."""
    moved, state = replace(record, move=None), record.state
    if not isinstance(state, CatchingUp) or state.reason_before is None:
        return moved
    return replace(moved, state=replace(state, reason_before=None), reason=state.reason_before)


def without_entries(
    record: TableRecord, reason: str, before: int, last: int, applied: int
) -> TableRecord:
    """Returns the record of a table that is stopped because the log has lost its entries after the lsn `before`, up to
    `last`. `applied`: the lsn up to which the Delta table shows the entries."""
    after = stopped(record, reason, before, last)
    assert isinstance(after.state, Stopped)
    return replace(after, state=replace(after.state, lost=last, ahead=applied > before))


def returns_to(record: TableRecord) -> Live:
    """Returns the state to which a table that stops now will return after a person has resolved the stop."""
    match record.state:
        case Live(failing=None) as live:
            return live
        case Live() as live:
            return replace(live, failing=None)
        case CatchingUp(goal=goal):
            return goal
        case Stopped(was=was):
            return was
        case Replaying(goal=goal):
            return goal
    return Live(complete=False)


def unknown_rows(
    name: TableName, record: TableRecord | None, entry: LogEntry, now: Situation
) -> TableRecord:
    """Returns the record of a table of which the log has rows, but no CREATE TABLE before them. `record`: the record of
    a dropped table with the same name, None if there is none."""
    known = replace(
        _anew(name, record, entry, now),
        generated=None,
        state=Live(complete=False),
        from_lsn=entry.lsn - 1,
        reason="older than the mirror",
    )
    partly = "rows that existed before the mirror's start are missing, as the policy allows"
    missing = "the table is older than the mirror, so its existing rows are missing"
    return _once_in_place(_without_rows(known, entry.lsn, now, partly, missing), record)


def _without_rows(
    known: TableRecord, lsn: int, now: Situation, partly: str, missing: str
) -> TableRecord:
    """Returns the record of a table some of whose rows are not in the log. The policy decides whether the table is
    copied, becomes partial (with the reason `partly`), or is stopped at `lsn` (with the reason `missing`)."""
    policy = now.policy.unknown
    if policy is UnknownTables.PARTIAL:
        return replace(known, state=Live(complete=False), reason=partly)
    if policy is UnknownTables.COPY and now.can_copy:
        return replace(known, state=Creating(), from_lsn=lsn)
    way = remedies.of_unknown_table(known.label, can_copy=now.can_copy)
    return stopped(known, f"{missing}; {way}", known.from_lsn, lsn)


def unsure(record: TableRecord) -> TableRecord:
    """Returns the record of a dropped table, marked as unsure: the server may have a new table with the name."""
    assert record.is_dropped
    return replace(record, state=Dropped(unsure=True))


def left_out(record: TableRecord, lsn: int) -> TableRecord:
    """Returns the record of a table that the consumer's `include` and `exclude` leave out after the entry `lsn`. After
    this entry, the mirror does not change the table's rows."""
    if isinstance(record.state, LeftOut) and record.request is None:
        return record
    # A new `since` must not be smaller: after a crash, entries from before the record was written are read again.
    since = record.state.since if isinstance(record.state, LeftOut) else max(lsn, record.from_lsn)
    reason = f"the settings of the consumer leave this table out since lsn {since}: later changes are missing"
    return replace(forgetting(handled(record)), state=LeftOut(since), reason=reason)


def taken_in(record: TableRecord, lsn: int, now: Situation) -> TableRecord:
    """Returns the record of a table that the settings left out, and that is mirrored again after the entry `lsn`. The
    table lacks the changes in between, so it is treated like a table that is older than the mirror."""
    assert isinstance(record.state, LeftOut)
    lsn = max(lsn, record.from_lsn, record.state.since)
    missing = f"the settings left this table out since lsn {record.state.since}, so changes of it are missing"
    known = replace(forgetting(record), server=now.server, epoch=0, signature="", from_lsn=lsn)
    known = replace(known, generated=None, state=Live(complete=False), reason=missing)
    return _once_in_place(_without_rows(known, lsn, now, missing, missing), record)


def after_gap(record: TableRecord, entry: LogEntry, now: Situation) -> TableRecord:
    """Returns the record of a table after a gap: the server had purged changes, so the log lacks them. If the policy
    wants it, the table is copied again; otherwise it becomes partial."""
    epoch = entry.position.epoch if entry.position else entry.epoch
    reason = f"the server had purged changes before lsn {entry.lsn} before they were read"
    if record.is_dropped:
        return record
    after = replace(record, epoch=epoch, reason=reason, from_lsn=entry.lsn, generated=None)
    if now.can_copy and now.policy.purged is PurgedChanges.COPY:
        return forgetting(replace(after, state=Creating(), signature=""))
    if isinstance(record.state, Stopped) and (record.state.copy or record.state.ahead):
        # The signature describes the copy, which is not in the table's place, or columns that the table had before.
        after = replace(after, signature="")
    way = remedies.of_gap(record.label, can_copy=now.can_copy)
    partial = replace(after, state=Live(complete=False), reason=f"{reason}; {way}")
    return _once_in_place(partial, record)
