"""Decides the next action for an item of a table's work. Pure.

A task calls `next_action` repeatedly for one item. Each action changes the table's record, or the facts about its Delta
table. The item is finished when the result is `Done` or `Leave`. After a crash, a new task continues in the same way.
The order of the writes is:

* rows: the Delta table is created, then the record gets folder and columns, then the rows are committed. This commit
  records the lsn, which is the number of the last entry. The creation can be repeated; the lsn that the Delta table
  records shows whether the rows were committed.
* statement: the Delta table is changed under the statement's lsn, then the record is written with `from_lsn` = that
  lsn. After a crash between the two, the statement is read again: the Delta table already has the lsn, so only the
  record is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.omitted import kept_table_map
from spark_sink.mirror.rules.plan import (
    GapItem,
    LostItem,
    RenameBarrier,
    RowRun,
    StatementItem,
    UnclearItem,
    Work,
)
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Dropped,
    LeftOut,
    Live,
    Replaying,
    Stopped,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.transitions import (
    DeltaWork,
    Situation,
    Transition,
    after_effect,
    after_gap,
    conflicting,
    copied_again,
    needs_copy,
    stopped,
    unknown_rows,
    unsure,
    with_new_column,
    without_entries,
)
from spark_sink.mirror.schema.signature import SchemaChange, Signature, difference, new_columns
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import Deletes, TablePolicy, UnfollowedChange

NO_TABLE_ID = "none"  # the owner of a Delta table that another program has made


@dataclass(frozen=True, slots=True)
class DeltaFacts:
    """The known facts about a table's Delta table. If a fact is None, it must be read from the Delta table.

    `applied`: the lsn that the Delta table records, -1 if it records none; `empty`: True if it has no rows; `owner`:
    the id of the table to which it belongs, `NO_TABLE_ID` if another program has made it, "" if there is no Delta
    table.
    """

    applied: int | None = None
    empty: bool | None = None
    owner: str | None = None


UNKNOWN = DeltaFacts()


# -- changes of a Delta table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MakeTable:
    """Create the Delta table with the columns of an entry's rows, unless it exists. The action fails if a Delta table
    with other columns exists. `replaces`: True to replace an existing Delta table and its rows."""

    entry: LogEntry
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceColumns:
    """Give a Delta table without rows the columns of an entry's rows."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class AddMetadata:
    """Add the metadata columns of the policy that the Delta table lacks."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete all rows, or mark them as deleted, in a commit that records `lsn`."""

    lsn: int
    marked: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Change the columns and their values, in a commit that records `lsn`. The action is refused if existing rows
    cannot follow the change."""

    lsn: int
    change: SchemaChange


DeltaChange = MakeTable | ReplaceColumns | AddMetadata | DeleteRows | ChangeColumns


# -- actions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the item in the log, because the table's queue must not apply entries to the table now."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Read the facts of the Delta table in `folder`; `rows`: True to read also whether the table is empty."""

    folder: str
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Save:
    """Write a record. `why`: the reason for this, which is logged."""

    record: TableRecord
    why: str


@dataclass(frozen=True, slots=True)
class ChangeDelta:
    """Change the Delta table in the folder of the record `then`; after this, write the record. If the Delta table
    refuses the change, write the record that the function `refused` returns instead."""

    change: DeltaChange
    then: TableRecord
    why: str


@dataclass(frozen=True, slots=True)
class ApplyRows:
    """Commit the rows of `run` under the run's lsn.

    `exact`: True if an inserted row cannot be in the table yet; `snapshot`: `begin` and `executed` of the snapshot
    whose transactions the table already shows, see `rules.executed.Snapshot`.
    """

    record: TableRecord
    run: RowRun
    exact: bool
    snapshot: tuple[Position, Position] | None = None


Action = Done | Leave | Ask | Save | ChangeDelta | ApplyRows


@dataclass(frozen=True, slots=True)
class WorkContext:
    """The values on which actions depend, in addition to record and facts.

    `other_owner`: returns the other consumer that mirrors the table of a name, "" if there is none; `has_left`: returns
    True if the table with an id (first argument) no longer needs its rows in a folder (second argument); `path`:
    returns the path of a folder; `snapshot`: for a table without a key, the snapshot of its copy, while the log is
    replayed on the copy.
    """

    situation: Situation
    other_owner: Callable[[TableName], str]
    has_left: Callable[[str, str], bool]
    path: Callable[[str], str]
    snapshot: tuple[Position, Position] | None = None


def next_action(
    name: TableName,
    record: TableRecord | None,
    facts: DeltaFacts,
    work: Work,
    context: WorkContext,
) -> Action:
    """Returns the next action for an item of the table that had `name` at the item's lsn.

    Raises `BinlogError` if the item cannot be applied to this table.
    """
    assert not isinstance(work, RenameBarrier), "several tables are concerned, see `RenameTask`"
    if record is not None:
        # After a crash, the log is read again. It may contain items under a former name of a table. The settings may
        # leave the table out by now, although they do not exclude its former name.
        if work.lsn <= record.from_lsn or isinstance(record.state, LeftOut):
            return Done()
        if isinstance(work, RowRun) and not (record.is_live or record.is_dropped):
            return Leave()
        if isinstance(work, UnclearItem | GapItem | LostItem) and not record.is_live:
            return _doubtful(record, work, context.situation, facts.applied)
        if not record.folder:
            facts = replace(facts, applied=-1)
        if facts.applied is None:
            return Ask(record.lies_at)
        if work.lsn <= facts.applied and not isinstance(work, StatementItem):
            return Done()
    match work:
        case RowRun():
            return _rows(name, record, facts, work, context)
        case StatementItem():
            return _statement(name, record, facts, work, context)
        case UnclearItem() | GapItem() | LostItem():
            now = context.situation
            return Done() if record is None else _doubtful(record, work, now, facts.applied)
    assert_never(work)


def refused(record: TableRecord, reason: str, lsn: int, now: Situation) -> TableRecord:
    """Returns the record of a table whose existing rows cannot follow a change of its columns at `lsn`. `reason`: why
    not."""
    if now.policy.unfollowed is UnfollowedChange.NEW_COLUMN:
        return with_new_column(record, lsn)
    return needs_copy(record, reason, lsn, now)


# -- rows ----------------------------------------------------------------------------------------------------------


def _rows(
    name: TableName,
    record: TableRecord | None,
    facts: DeltaFacts,
    run: RowRun,
    context: WorkContext,
) -> Action:
    if record is None or record.is_dropped:
        return _first_rows(name, record, run.entries[0], context)
    if not isinstance(record.state, Live):
        return Leave()
    rest = run.after(max(facts.applied or 0, record.from_lsn))
    if rest is None:
        return Done()
    require_same_history(record, rest.entries[0])
    fitting = _fitting(record, record.state, facts, rest, context)
    if fitting is not None:
        return fitting
    since = record.state.exact_from
    exact = record.state.complete and since is not None and rest.entries[0].lsn > since
    return ApplyRows(record, rest, exact, context.snapshot)


def _first_rows(
    name: TableName, record: TableRecord | None, entry: LogEntry, context: WorkContext
) -> Action:
    unknown = unknown_rows(name, record, entry, context.situation)
    if owner := context.other_owner(name):
        way = remedies.of_other_consumer(unknown.label, unknown.consumer)
        reason = f"the target has this table from the consumer {owner}; {way}"
        unknown = stopped(replace(unknown, folder=""), reason, entry.lsn - 1, entry.lsn)
    return Save(unknown, f"first rows at lsn {entry.lsn}")


def require_same_history(record: TableRecord, entry: LogEntry) -> None:
    """Raises `BinlogError` HISTORY_DIFFERS if an entry's rows belong to another epoch than the rows of the table."""
    # If the epoch of a table is not known, the table gets the epoch of its next rows when their columns are compared.
    if record.epoch and entry.epoch != record.epoch:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"table {record.label} is of epoch {record.epoch}, and its rows are now of epoch {entry.epoch}: the"
            " consumer was moved, or the server's log is another one",
            where=f"lsn {entry.lsn}",
            remedy=remedies.of_other_history(record.label),
        )


def _fitting(
    record: TableRecord, live: Live, facts: DeltaFacts, run: RowRun, context: WorkContext
) -> Action | None:
    """Returns the next action that gives the Delta table the columns of the run; None if the table has these
    columns."""
    entry, now = run.entries[0], context.situation
    if not record.signature:
        return _made(record, facts, entry, context)
    differs = _difference(record.signature, entry.table_map, now.policy, now.invalid_dates)
    if differs:
        return _following(record, live, facts, entry, differs, now)
    if record.conflict:
        return Save(replace(record, conflict=""), f"its columns fit at lsn {entry.lsn}")
    ordered = _ordered(record.signature, entry.table_map)
    if ordered != record.signature:
        return Save(
            replace(record, signature=ordered), f"the order of its columns at lsn {entry.lsn}"
        )
    wanted = tuple(map(str, now.policy.extra))
    if not set(wanted) <= set(record.metadata):
        return ChangeDelta(AddMetadata(entry), replace(record, metadata=wanted), "metadata columns")
    return None


def _made(record: TableRecord, facts: DeltaFacts, entry: LogEntry, context: WorkContext) -> Action:
    """Returns the action that creates the Delta table of a table whose columns are not known."""
    now = context.situation
    has_folder = bool(record.folder)
    placed = record if has_folder else replace(record, folder=folder_of(record.name))
    if facts.owner is None:
        return Ask(placed.lies_at)
    # If the record has no folder, and another table owns the Delta table at this place but no longer needs it, the
    # Delta table is replaced.
    replaces = not has_folder and context.has_left(facts.owner, placed.lies_at)
    if not has_folder and facts.owner and not replaces:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"the folder for {record.label} has a Delta table that the mirror of {record.consumer} did not make",
            where=context.path(placed.lies_at),
            remedy=remedies.of_other_folder(record.label, record.consumer),
        )
    if has_folder and has_rows(record) and not facts.owner:
        raise missing_table(context.path(placed.lies_at))  # a new Delta table would lack the rows
    signature = _signature(entry.table_map, now.policy, now.invalid_dates)
    wanted = tuple(map(str, now.policy.extra))
    then = replace(placed, signature=signature, epoch=record.epoch or entry.epoch, metadata=wanted)
    return ChangeDelta(
        MakeTable(entry, replaces), then, f"its columns are those of lsn {entry.lsn}"
    )


def _following(
    record: TableRecord,
    live: Live,
    facts: DeltaFacts,
    entry: LogEntry,
    differs: str,
    now: Situation,
) -> Action:
    new = _signature(entry.table_map, now.policy, now.invalid_dates)
    if live.new_column is not None:
        before, after = Signature.from_json(record.signature), Signature.from_json(new)
        change = new_columns(before, after, live.new_column)
        followed = replace(record, state=replace(live, new_column=None))
        then = replace(followed, signature=change.signature.to_json())
        return ChangeDelta(ChangeColumns(live.new_column, change), then, "new columns")
    if facts.empty is None:
        return Ask(record.lies_at, rows=True)
    if facts.empty:
        return ChangeDelta(ReplaceColumns(entry), replace(record, signature=new), "it has no rows")
    return Save(conflicting(record, differs, entry.lsn, now), "copy needed")


def has_rows(record: TableRecord) -> bool:
    """False if it is known that the table has had no rows since it was created, otherwise True. A table without rows
    may have no Delta table yet."""
    is_new = isinstance(record.state, Live) and record.state.exact_from is not None
    return record.signature != "" or not is_new


def missing_table(path: str) -> BinlogError:
    """Returns the error for a table whose folder was deleted or moved away. `path`: the path of the folder."""
    return BinlogError(
        ErrorKind.TARGET_FILES,
        f"the Delta table at {path} cannot be read: there is none: its folder was deleted or moved",
    )


@lru_cache(4096)
def _signature(table_map: bytes, policy: TablePolicy, dates: InvalidDates) -> str:
    parsed = TableMap.parse(table_map)
    signature = Signature.of_table_map(kept_table_map(parsed, policy), dates)
    return signature.in_order(column.name for column in parsed.columns).to_json()


@lru_cache(4096)
def _difference(signature: str, table_map: bytes, policy: TablePolicy, dates: InvalidDates) -> str:
    columns = kept_table_map(TableMap.parse(table_map), policy)
    return difference(Signature.from_json(signature), columns, dates)


@lru_cache(4096)
def _ordered(signature: str, table_map: bytes) -> str:
    """Returns the signature with the order of all columns of the TABLE_MAP, including the omitted ones. The mirrored
    columns of both must already be the same."""
    before = Signature.from_json(signature)
    after = before.in_order(column.name for column in TableMap.parse(table_map).columns)
    return signature if after == before else after.to_json()


# -- statements ----------------------------------------------------------------------------------------------------


def _statement(
    name: TableName,
    record: TableRecord | None,
    facts: DeltaFacts,
    item: StatementItem,
    context: WorkContext,
) -> Action:
    after, pending = record, None
    for effect in item.effects:
        moved = after_effect(name, after, effect, item.entry, context.situation)
        action = delta_action(after, moved, facts, item.lsn, context)
        if isinstance(action, Ask | Save):
            return action
        # Only one commit can record the lsn. If a statement has several effects on the Delta table, only the last one
        # is executed.
        pending = action or pending
        after = moved.record
    if after is None:
        return Done()
    if pending is not None:
        return replace(pending, then=after)
    if after != record:
        return Save(after, f"{type(item.effects[-1]).__name__} at lsn {item.lsn}")
    return Done() if after.is_live or after.is_dropped else Leave()


def delta_action(
    before: TableRecord | None,
    moved: Transition,
    facts: DeltaFacts,
    lsn: int,
    context: WorkContext,
) -> Ask | Save | ChangeDelta | None:
    """Returns the action that has to be executed before a transition's record is written, or instead of this write;
    None if there is no such action. `before`: the record before the transition."""
    after = moved.record
    if after is None or not after.folder or (moved.work is DeltaWork.NOTHING and not moved.recopy):
        return None
    if facts.applied is not None and facts.applied >= lsn:
        return None  # the change was made before a crash
    if facts.owner is None or (moved.recopy and facts.empty is None):
        return Ask(after.lies_at, rows=moved.recopy != "")
    needs_table = before is not None and has_rows(before) and moved.work is not DeltaWork.DROP
    if needs_table and not facts.owner:
        raise missing_table(context.path(after.lies_at))
    if moved.recopy and not facts.empty:
        assert before is not None
        copied = needs_copy(before, moved.recopy, lsn, context.situation)
        return Save(copied, "copy needed")
    change = _delta_change(moved, lsn, context.situation)
    return None if change is None else ChangeDelta(change, after, f"at lsn {lsn}")


def _delta_change(moved: Transition, lsn: int, now: Situation) -> DeltaChange | None:
    match moved.work:
        case DeltaWork.DROP:
            return DeleteRows(lsn)
        case DeltaWork.TRUNCATE:
            return DeleteRows(lsn, marked=now.policy.deletes is Deletes.SOFT)
        case DeltaWork.SCHEMA:
            assert moved.change is not None
            return ChangeColumns(lsn, moved.change)
    return None


# -- entries that are unclear, missing or lost ---------------------------------------------------------------------


def _doubtful(
    record: TableRecord,
    work: UnclearItem | GapItem | LostItem,
    now: Situation,
    applied: int | None,
) -> Action:
    """Returns the next action. `applied`: the lsn up to which the Delta table shows the entries; not None for a live
    table."""
    if isinstance(record.state, Dropped):
        if not record.state.unsure:
            return Save(unsure(record), f"changes up to lsn {work.lsn} are not known")
        return Done()
    match work:
        case UnclearItem() if record.is_live:
            raise unclear_statement(record, work)
        case GapItem() if record.is_live or has_lost_entries(record):
            return Save(after_gap(record, work.entry, now), f"gap before lsn {work.lsn}")
        case GapItem() if isinstance(record.state, Copying | Copied | Replaying):
            return Save(copied_again(record), f"gap before lsn {work.lsn}")
        case LostItem() if record.is_live:
            reason = remedies.of_fault(work.error, record.label)
            assert applied is not None
            # Some of the entries may have been applied before they were lost.
            before = max(record.from_lsn, work.first - 1)
            halted = without_entries(record, reason, before, work.lsn, applied)
            return Save(halted, f"lost entries from lsn {work.first}")
    return Leave()


def has_lost_entries(record: TableRecord) -> bool:
    """True if the table is stopped because the log has lost entries of the table, or catches up after a person has
    resolved such a stop."""
    match record.state:
        case Stopped(lost=lost) | CatchingUp(stopped=Stopped(lost=lost)):
            return lost is not None
    return False


def unclear_statement(record: TableRecord, work: UnclearItem) -> BinlogError:
    """Returns the error for a statement that may have changed the table. The error's remedy contains the commands that
    resolve the stop."""
    return BinlogError(
        work.error.kind,
        work.error.what,
        where=f"lsn {work.lsn}, {work.entry.file}:{work.entry.pos}",
        remedy=remedies.of_statement(record.label),
    )
