"""The task that applies, to one table, the entries (rows and statements) that were left in the log. It begins after a
person has resolved a stop, or after a copy. Pure.

While a table is stopped or copied, its entries are left in the log. A replay reads these entries again, for this table
alone. R is the position that the server had executed when the copy ended (see `copy_task`). After a copy, the replay
applies the entries up to R while the copy is in its own folder (`Replaying`), and the entries after R when the copy is
in the table's place (`CatchingUp`). When no entry is left, the task makes the table live again.

After a DROP, TRUNCATE or CREATE, the table has no rows. The table's queue, not the replay, executes these statements.
Such a statement ends the replay.
"""

from __future__ import annotations

from dataclasses import replace

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.effects import ReadLog
from spark_sink.mirror.rules.events import Answer, EntriesRead, Failure, FoldersMoved, LogLost
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.plan import (
    RenameBarrier,
    RowRun,
    StatementItem,
    Work,
    WorkItem,
    next_work,
    route,
)
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.renames import folder_of, misses
from spark_sink.mirror.rules.retries import REPORTED_AFTER
from spark_sink.mirror.rules.states import CatchingUp, Live, Replaying, Stopped
from spark_sink.mirror.rules.table_queue import ENTRIES_MAX
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.rules.table_work import Ask, Done, Leave, next_action
from spark_sink.mirror.rules.tasks.folder_move import PLACE_AGAIN_S, begin_move, must_wait
from spark_sink.mirror.rules.tasks.table_task import TableTask
from spark_sink.mirror.rules.transitions import (
    copied_again,
    faulted,
    in_copy,
    needs_copy,
    without_entries,
)
from spark_sink.mirror.schema.statements import (
    AlterTable,
    CreateTable,
    DropTable,
    RenameTables,
    TableEffect,
    TruncateTable,
    effects_of,
)
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.names import copy_folder


class ReplayTask(TableTask):
    """`cursor`: the lsn (number of an entry) up to which entries are applied to the table and its record; None until
    the task has read the lsn that the Delta table records."""

    def __init__(self, state: MirrorState, table_id: str) -> None:
        super().__init__(state)
        self.table_id = table_id
        self.cursor: int | None = None
        self._items: list[WorkItem] = []
        self._work: Work | None = None  # what the running work of the task applies, if anything
        self._moves = False  # True while the running work moves the folder
        self._alone = False
        self._folder = ""
        self._applied = -1  # the lsn up to which the Delta table shows the entries
        self._pass_to = (
            -1
        )  # the lsn up to which the task reads the log before it looks for later entries
        self._taken = (
            ""  # the folder for which this table waits, because another table has this folder
        )

    @property
    def record(self) -> TableRecord:
        return self.state.records[self.table_id]

    def go(self) -> None:
        record = self.record
        if self.state.is_busy(self.table_id):
            return
        self._work, self._moves = None, False
        match record.state:
            case CatchingUp() if record.move is not None:
                self._move(record)
            case CatchingUp() | Replaying() if not self.state.is_free(self.table_id):
                return  # a RENAME is moving the folder with the rows that are older than the table's copy
            case CatchingUp(goal=goal):
                self._forward(record, replace(record, state=goal))
            case Replaying(goal=goal):
                aside = copy_folder(self.table_id)
                self._forward(record, replace(record, state=goal, folder=aside, move=None))
            case _:
                self.ended = True  # the table was dropped, emptied, created anew or stopped

    def watch(self) -> None:
        """If the table's state no longer needs a replay, end the task, even during a pause. End the pause if the table
        has got another place."""
        record = self.record
        if self.run is None and not isinstance(record.state, CatchingUp | Replaying):
            self.ended = True
        if self._taken and (record.move is None or record.folder != self._taken):
            self._taken, self.failures, self.not_before = "", 0, 0.0

    def _move(self, record: TableRecord) -> None:
        def moved(answer: FoldersMoved) -> None:
            if answer.refused:
                self._taken = record.folder
                self.failures += 1
                self.not_before = self.state.now + PLACE_AGAIN_S
            self._restart()

        if not must_wait(self.state, [record]):
            begin_move(self, [record], moved)
            self._moves = True

    def _restart(self) -> None:
        self.cursor, self._items, self._alone = None, [], False

    def _forward(self, record: TableRecord, view: TableRecord) -> None:
        """Execute the next action. `view`: the record that the table would have if it was live in the folder in which
        its rows are now."""
        if view.folder != self._folder:
            self._folder = view.folder
            self._restart()
        applied = self.state.facts_of(view).applied if view.folder else -1
        if applied is None:
            self.ask(view, Ask(view.folder))
            return
        self._applied = applied
        if not self._is_dealt_with(record, applied):
            self._part()
            return  # a statement that the queue executes has changed the Delta table, but not the record yet
        if self.cursor is None:
            # The job may have been killed after a statement had changed the Delta table, and before the record was
            # written. So the entry of the recorded lsn is read again.
            self.cursor = max(applied - 1, record.from_lsn)
        self._pass(record.from_lsn)
        if not self._items:
            self._read_on(record, self.cursor)
            return
        count = 1 if self._alone else ENTRIES_MAX
        work, taken = next_work(self._items, self.state.options.step_bytes_max, count)
        if _copy_ends(record, work):
            self.state.save(copied_again(record), why=f"the table changed at lsn {work.lsn}")
            self.ended = True
            return
        if _is_drop(work) and self.state.left.get(self.table_id, 0) > work.lsn:
            # When the queue had to execute the statement, the log had lost it. Later entries belong to another table.
            situation = self.state.situation(record.name)
            reason = f"a DROP TABLE at lsn {work.lsn} was lost when it was due"
            self._stand(needs_copy(record, reason, work.lsn, situation))
            return
        if isinstance(work, RenameBarrier) and _is_missed(record, work):
            self._stand(faulted(record, _not_renamed(record, work), work.lsn))
            return
        self._apply(view, work, taken)

    def _pass(self, lsn: int) -> None:
        """Leave out entries up to `lsn`, because the record shows a later state: either this task has applied these
        entries, or the queue has executed a statement while the task read the log."""
        assert self.cursor is not None
        self.cursor = max(self.cursor, lsn)
        if self._items and self._items[0].lsn <= lsn:
            self._items = [item for item in self._items if item.lsn > lsn]

    def _read_on(self, record: TableRecord, cursor: int) -> None:
        """Continue after all entries that were read are applied: read more of the log or, if no entry is left, change
        the table's state."""
        state, left = self.state, self.state.left.get(self.table_id, 0)
        match record.state:
            case Replaying(passed=passed) if cursor >= passed:
                state.save(_in_place(record, record.state), why="copied")
                state.doubt(self.table_id)
            case CatchingUp(goal=goal) if cursor >= left and self._may_end(record, cursor):
                reason = "" if goal.complete else record.reason
                live = replace(record, state=goal, from_lsn=cursor, reason=reason)
                state.save(live, why="live again")
                self.ended = True
            case Replaying(passed=passed):
                self._read(record, cursor, passed)
            case _ if cursor < left:
                if cursor >= self._pass_to >= 0:
                    state.joining.add(self.table_id)
                self._pass_to = max(left, self._pass_to)
                self._read(record, cursor, left)
            case _:
                self._part()  # the replay waits for the queues

    def _part(self) -> None:
        """Let the queues go on, which leave the table's entries in the log."""
        self.state.joining.discard(self.table_id)

    def _is_dealt_with(self, record: TableRecord, cursor: int) -> bool:
        """True if the queues have executed the table's entries up to `cursor`, or left them in the log. Otherwise the
        replay waits: the Delta table may show a DROP, TRUNCATE or CREATE whose record the queue has not written yet."""
        dealt_with = self.state.dealt_with
        return dealt_with(record.name) >= cursor and all(
            dealt_with(former.name) >= min(cursor, former.until) for former in record.names
        )

    def _may_end(self, record: TableRecord, cursor: int) -> bool:
        """True if the table may become live at `cursor`. It must not if a later statement has already renamed the
        record (after a crash, the log is read again): the replay still has to apply this statement's other effects."""
        is_renamed_later = any(former.until > cursor for former in record.names)
        return not is_renamed_later and self._is_dealt_with(record, cursor)

    def _read(self, record: TableRecord, cursor: int, to: int) -> None:
        names = list(dict.fromkeys([*(former.name for former in record.names), record.name]))

        def read(answer: Answer) -> None:
            if isinstance(answer, LogLost):
                self._lost(answer, cursor)
                return
            assert isinstance(answer, EntriesRead)
            now = self.record
            self._items = [
                item
                for entry in answer.entries
                for name, item in route(entry, effects_of, lambda: names, lambda _: False)
                if name == name_at(now, entry.lsn)
            ]
            if not self._items:
                self.cursor = answer.entries[-1].lsn if answer.entries else to

        self.begin([], lambda run: ReadLog(run, cursor, to + 1, tuple(names)), read)

    def _lost(self, lost: LogLost, cursor: int) -> None:
        record = self.record
        if record.from_lsn > cursor:
            return  # the queue has emptied or dropped the table; the lost entries may be older than this
        if isinstance(record.state, CatchingUp | Replaying):
            reason = remedies.of_fault(lost.error, record.label)
            last = last_lsn(lost.last)
            self._stand(without_entries(record, reason, cursor, last, self._applied))

    # -- actions ---------------------------------------------------------------------------------------------

    def _apply(self, view: TableRecord, work: Work, taken: int) -> None:
        snapshot: tuple[Position, Position] | None = None
        if isinstance(self.record.state, Replaying) and self.record.state.exact:
            snapshot = self.record.state.begin, self.record.state.executed
        name = name_at(self.record, work.lsn)
        context = self.state.context(name, snapshot)
        facts = self.state.facts_of(view)
        try:
            action = next_action(name, view, facts, _of_table(work), context)
        except BinlogError as fault:
            self._fault(fault, work)
            return
        match action:
            case Done() | Leave():
                del self._items[:taken]
                self.cursor = work.lsn
                self.wants_turn = True
            case _:
                self._work = work
                self.take(view, action)

    def save(self, record: TableRecord, why: str) -> None:
        """Write the record, with the changes that an action has made to the view `record`."""
        now = self.record
        if isinstance(now.state, Replaying):
            record = replace(record, folder=now.folder, move=now.move)
        if isinstance(now.state, Replaying | CatchingUp):
            if isinstance(record.state, Live):
                kept = replace(now.state, goal=record.state)
                record = replace(record, state=kept, reason=now.reason)
            elif isinstance(record.state, Stopped) and isinstance(now.state, Replaying):
                copy = replace(now.state, goal=record.state.was)
                record = replace(record, state=replace(record.state, copy=copy))
        self.state.update(record, why)

    def failed(self, failure: Failure) -> None:
        self._part()
        if not isinstance(self.record.state, CatchingUp | Replaying):
            self.ended = True  # a statement in the queue has emptied or dropped the table
            return
        # A move that failed may have moved some of the files. So before anything else, the move has to be repeated
        # until it succeeds.
        if failure.fault is not None and not self._moves:
            self._fault(failure.fault, self._work)
            return
        wait_s = self.pause(failure)
        record = self.record
        self.state.note_retry(failure, wait_s, record.label)
        if self.failures == REPORTED_AFTER and not self.state.is_unsaved(self.table_id):
            self.state.save(replace(record, reason=f"tried again: {failure.text}"))

    def _fault(self, fault: BinlogError, work: Work | None) -> None:
        if isinstance(work, RowRun) and len(work.entries) > 1:
            self._alone = self.wants_turn = True
            return
        lsn = self.record.from_lsn + 1 if work is None else work.lsn
        self._stand(faulted(self.record, fault, lsn))

    def _stand(self, record: TableRecord) -> None:
        self.state.save(record, why="its replay has stopped")
        self.ended = True


def _in_place(record: TableRecord, replaying: Replaying) -> TableRecord:
    """Returns the record of a table whose copy is going to move to the table's place."""
    passed = replaying.passed
    # If the log has lost entries after R, and a person has skipped them, `from_lsn` is larger than `passed`.
    from_lsn = max(passed, record.from_lsn)
    goal = replace(replaying.goal, exact_from=passed if replaying.goal.complete else None)
    place = folder_of(record.name)
    copy = replace(record, folder=place, from_lsn=from_lsn, copied_at=passed)
    copy = replace(copy, deletion_vectors=False)
    move = Move(copy_folder(record.table_id))
    return replace(copy, state=CatchingUp(goal, passed), move=move)


def _copy_ends(record: TableRecord, work: Work) -> bool:
    """True if `work` is a statement that changed the table's columns, or made the table anew, during its copy. The copy
    then begins again."""
    if not isinstance(work, StatementItem | RenameBarrier) or not in_copy(record, work.lsn):
        return False
    return any(map(_ends_copy, work.effects))


def _ends_copy(effect: TableEffect) -> bool:
    match effect:
        case AlterTable():
            return bool(effect.clauses or effect.copy_reason)
        case CreateTable():
            return effect.replaces or not effect.if_not_exists
    return isinstance(effect, DropTable | TruncateTable)


def _is_drop(work: Work) -> bool:
    if not isinstance(work, StatementItem | RenameBarrier):
        return False
    return any(isinstance(effect, DropTable) for effect in work.effects)


def _is_missed(record: TableRecord, work: RenameBarrier) -> bool:
    """True if the queues did not execute the RENAME at its turn, because the log's file with the RENAME was lost at
    that time. This task can read the RENAME, so a person has restored the file since then."""
    renames = (effect for effect in work.effects if isinstance(effect, RenameTables))
    return any(misses(record, rename.pairs, work.lsn) for rename in renames)


def _not_renamed(record: TableRecord, work: RenameBarrier) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"a RENAME TABLE at lsn {work.lsn} was lost when it was due, so the entries behind it are of another table",
        where=f"table {record.label}",
        remedy=remedies.of_copy_again(record.label),
    )


def _of_table(work: Work) -> Work:
    """Returns the work without its RENAME, because the queue has already executed the RENAME."""
    if isinstance(work, RenameBarrier):
        rest = tuple(effect for effect in work.effects if not isinstance(effect, RenameTables))
        return StatementItem(work.entry, rest)
    return work
