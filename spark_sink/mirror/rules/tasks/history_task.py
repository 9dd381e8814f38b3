"""The task that applies the log to the history of one table. Each history has its own task, which reads the log. Pure.

The task reads rows from the log, entry by entry. An entry is rows of a table, or a statement; its number is the lsn. So
a history contains every version, and does not delay its table. The task does not compute what a statement does to rows.
When it reaches a statement, it waits until the mirror has executed the statement on the mirrored table. One version of
this table's Delta table then contains the rows as they were after the statement, and the task compares these rows with
the current versions of the history. So a history is never ahead of its table. The task makes the same comparison when
the history of a table with rows begins, and after a copy or a RENAME. Rows that are equal keep their version.

The steps of the mirrored table do not write the history. If they did, a history that fails would stop its table, and
each kind of statement would need separate rules for histories.

Exactly once: a step records its lsn in its Delta commit, as the mirror's steps do. If entries need no commit, the
`from_lsn` of the record shows that the task has handled them. A history belongs to a name, `database.table`: if another
table gets the name, the history continues with that table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.effects import (
    AskTable,
    CompareVersions,
    Effect,
    EndVersions,
    ReadLog,
    WriteVersions,
)
from spark_sink.mirror.rules.events import Answer, EntriesRead, Failure, LogLost, TableAsked
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.plan import (
    LostItem,
    RowRun,
    StatementItem,
    Work,
    WorkItem,
    next_work,
    route,
)
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import Creating, Live, Stopped, TableState
from spark_sink.mirror.rules.table_queue import ENTRIES_MAX
from spark_sink.mirror.rules.table_record import TableRecord, handled
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.schema.statements import (
    AlterTable,
    CreateTable,
    DropTable,
    TruncateTable,
    effects_of,
)
from spark_sink.mirror.values.entries import append_of, last_lsn
from spark_sink.mirror.values.names import TableName

STEP_BYTES_MAX = 4 << 20  # bytes of the log in one step, which the driver decodes
NEWEST = (1 << 62) - 1  # larger than every lsn


def can_begin_with(mirrored: TableRecord | None) -> bool:
    """True if a history can begin with the present rows of a mirrored table."""
    return mirrored is not None and not mirrored.is_dropped and mirrored.folder != ""


class HistoryTask(Task):
    """`cursor`: the lsn up to which the log is applied to the history, None until the task has read the recorded lsn
    from the Delta table. `_committed`: the recorded lsn, -1 if there is none; known when `cursor` is known. The task
    ends only with the job."""

    def __init__(self, state: MirrorState, table_id: str) -> None:
        super().__init__(state)
        self.table_id = table_id
        self.name: TableName = state.records[table_id].name
        self.cursor: int | None = None
        self._committed = -1
        self._items: list[WorkItem] = []
        self._compare_at: int | None = None  # the lsn of the entry at which a comparison is due

    @property
    def record(self) -> TableRecord:
        return self.state.records[self.table_id]

    @property
    def mirrored(self) -> TableRecord | None:
        return self.state.find(self.name, NEWEST)

    def go(self) -> None:
        record, mirrored = self.record, self.mirrored
        if self.state.is_busy(self.table_id) or self._waits(mirrored):
            return
        if record.request is not None:
            self.cursor, self._items, self._compare_at = None, [], None
            # Begin with the rows that the table has now: if the history began with older rows, it might stop at the
            # same entry again.
            anew = replace(handled(record), state=Creating(as_it_is=True))
            self.state.save(replace(anew, reason="the table's rows are read again"))
            return
        if isinstance(record.state, Stopped):
            return
        if self.cursor is None:
            self._ask(record)
        elif isinstance(record.state, Creating):
            self._begin_with(record, mirrored, self.cursor)
        else:
            self._follow(record, mirrored, self.cursor)

    def _waits(self, mirrored: TableRecord | None) -> bool:
        """True if the history has to wait because the queue of its table does not apply entries now."""
        return mirrored is not None and not (mirrored.is_live or mirrored.is_dropped)

    def _ask(self, record: TableRecord) -> None:
        if not record.folder:
            self._committed, self.cursor, self.wants_turn = -1, record.from_lsn, True
            return

        def asked(answer: Answer) -> None:
            assert isinstance(answer, TableAsked)
            self._committed = -1 if answer.facts.applied is None else answer.facts.applied
            self.cursor = max(self._committed, self.record.from_lsn)

        self.begin(
            [self.table_id], lambda run: AskTable(run, self.table_id, record.folder, False), asked
        )

    # -- its beginning -----------------------------------------------------------------------------------------

    def _begin_with(self, record: TableRecord, mirrored: TableRecord | None, cursor: int) -> None:
        """Make the history's current versions equal to the table's rows. Afterwards, the task applies the log to the
        history."""
        if (
            mirrored is None
            or not can_begin_with(mirrored)
            or not self.state.is_free(mirrored.table_id)
        ):
            return
        applied = self.state.facts_of(mirrored).applied
        if applied is None:
            self._ask_table(mirrored)
            return
        # Begin with the rows that the table had when it became live, if the log has all changes since then.
        begun = mirrored.from_lsn
        as_it_is = isinstance(record.state, Creating) and record.state.as_it_is
        if as_it_is or self._is_lost(begun) or begun < cursor:
            begun = max(applied, mirrored.from_lsn, self.state.dealt_with(self.name))
        self._compare(begun, None, begins=True)

    def _ask_table(self, mirrored: TableRecord) -> None:
        table_id, folder = mirrored.table_id, mirrored.lies_at

        def asked(answer: Answer) -> None:
            assert isinstance(answer, TableAsked)
            self.state.learn(mirrored, answer.facts)

        self.begin([table_id], lambda run: AskTable(run, table_id, folder, False), asked)

    def _is_lost(self, cursor: int) -> bool:
        """True if the log no longer has all entries after `cursor`."""
        return append_of(self.state.oldest) > append_of(cursor) + 1

    # -- following the log -------------------------------------------------------------------------------------

    def _follow(self, record: TableRecord, mirrored: TableRecord | None, cursor: int) -> None:
        to = self.state.dealt_with(self.name)
        if self._is_copied_here(record, mirrored, cursor):
            self._compare(cursor, None)
            return
        if cursor >= to:
            return
        if self._is_lost(cursor):
            self._compare(to, None)
            return
        copied = self._due_at(mirrored)
        if self._compare_at is not None:
            self._compare(self._compare_at, None)
            return
        if self._items:
            work, count = next_work(self._items, STEP_BYTES_MAX, ENTRIES_MAX)
            # After a repair, `copied` may be larger than the lsn up to which the table is applied.
            self._execute(record, work, count, copied if copied <= to else -1)
            return
        self._read(cursor, min(to, copied) if cursor < copied else to, copied)

    def _is_copied_here(
        self, record: TableRecord, mirrored: TableRecord | None, cursor: int
    ) -> bool:
        """True if the history has reached the lsn at which it has to be compared with its table after the table's last
        copy or repair, but was not yet compared with the table at this lsn."""
        return _compared_at(record) < cursor == self._due_at(mirrored)

    def _due_at(self, mirrored: TableRecord | None) -> int:
        """Returns the lsn at which the history has to be compared with its table after the table's last copy or repair;
        -1 if the table was neither copied nor repaired under this name.

        This is `copied_at` of the table. But if the history already has a commit with this lsn from before the copy, a
        second commit with the same lsn would do nothing. In this case, the comparison is due at the end of the next
        append."""
        copied = _copied_at(mirrored, self.name)
        if _compared_at(self.record) < copied <= self._committed:
            return last_lsn(append_of(copied) + 1)
        return copied

    def _read(self, cursor: int, to: int, copied: int) -> None:
        def read(answer: Answer) -> None:
            if isinstance(answer, LogLost):
                self._stand(answer.error)
                return
            assert isinstance(answer, EntriesRead)
            self._items = [
                item
                for entry in answer.entries
                for name, item in route(entry, effects_of, lambda: [self.name], lambda _: False)
                if name == self.name
            ]
            if self._items:
                return
            reached = answer.entries[-1].lsn if answer.entries else to
            if cursor < copied <= reached:
                self._compare_at = copied
            else:
                self.cursor = max(cursor, reached)

        self.begin([], lambda run: ReadLog(run, cursor, to + 1, (self.name,)), read)

    def _execute(
        self,
        record: TableRecord,
        work: Work,
        count: int,
        copied: int,
    ) -> None:
        assert self.cursor is not None
        assert not isinstance(work, LostItem), "a lost file of the log stops a history"
        if isinstance(work, RowRun):
            rest = work.after(self.cursor)
            if rest is None:
                self._reached(work.lsn, count)
                return
            at_work = self.state.find(self.name, rest.lsn)
            exact = at_work is not None and at_work.word is TableState.COMPLETE
            if at_work is not None and at_work.copied_at is not None:
                copied = max(copied, at_work.copied_at)
            exact = exact and rest.entries[0].lsn > copied
            self._write(lambda run: WriteVersions(run, self.record, rest, exact), work.lsn, count)
            return
        effects = work.effects if isinstance(work, StatementItem) else None
        if effects is not None and not any(map(_changes_rows, effects)):
            self._reached(work.lsn, count)
            return
        at = work.entry.committed_at
        if effects is not None and all(
            isinstance(e, DropTable | TruncateTable | CreateTable) for e in effects
        ):
            if record.folder:
                lsn = work.lsn
                self._write(lambda run: EndVersions(run, self.record, lsn, at), lsn, count)
            else:
                self._reached(work.lsn, count)
            return
        lsn = max(work.lsn, copied)
        self._compare(lsn, at if lsn == work.lsn else None)

    def _reached(self, lsn: int, count: int) -> None:
        del self._items[:count]
        self.cursor, self.wants_turn = lsn, True

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, effect: Callable[[int], Effect], lsn: int, count: int) -> None:
        if self._named():

            def written(_: Answer) -> None:
                self.failures, self._committed = 0, lsn
                self._reached(lsn, count)

            self.begin([self.table_id], effect, written)

    def _named(self) -> bool:
        """Write the history's folder into its record before the history gets its first version. So if a record names no
        folder, its history has no versions. Returns False if the caller has to wait until the record is stored."""
        if self.record.folder:
            return True
        self.state.save(replace(self.record, folder=folder_of(self.record.shown_name)))
        return False

    def _compare(self, lsn: int, at: datetime | None, *, begins: bool = False) -> None:
        """Make the current versions equal to the rows that the table had at `lsn`. `at`: the commit time of the entry
        `lsn`, None if not known; `begins`: True if the history begins with these versions."""
        if not self._named():
            return
        mirrored = self.state.find(self.name, lsn + 1)
        used = [self.table_id, *([mirrored.table_id] if mirrored else [])]
        copied = self._due_at(mirrored)
        if not all(map(self.state.is_free, used)):
            return

        def compared(_: Answer) -> None:
            self.failures, self._committed = 0, lsn
            self.cursor, self._compare_at = lsn, None
            self._items = [item for item in self._items if item.lsn > lsn]
            after = replace(self.record, from_lsn=lsn)
            if 0 <= copied <= lsn:
                after = replace(after, copied_at=copied)
            if begins:
                after = replace(after, state=Live(), reason="")
            self.state.save(after)

        self.begin(used, lambda run: CompareVersions(run, self.record, mirrored, lsn, at), compared)

    # -- failures ------------------------------------------------------------------------------------------------

    def failed(self, failure: Failure) -> None:
        self.cursor, self._items, self._compare_at = None, [], None
        if failure.fault is not None:
            self._stand(failure.fault)
            return
        wait_s = self.pause(failure)
        self.state.note_retry(failure, wait_s, self.record.label)

    def _stand(self, fault: BinlogError) -> None:
        text = str(fault)
        if remedies.MIRROR not in text:
            text = f"{text}; {remedies.of_history(self.record.label)}"
        state = Stopped(self.record.from_lsn, Live())
        self.state.save(replace(self.record, state=state, reason=text))

    # -- progress ----------------------------------------------------------------------------------------------------

    def needed(self) -> int:
        """Returns the lsn after which the history needs the log; `NEWEST` if the history needs no entry yet."""
        return NEWEST if self._waits_for_table() else self.cursor or self.record.from_lsn

    def rests(self, goal: int) -> bool:
        """True if the history has reached the lsn `goal`, or cannot reach this lsn now."""
        if self.run is not None or self.state.is_unsaved(self.table_id):
            return False
        if self._waits(self.mirrored):
            return True
        if self.record.request is not None:
            return False
        if isinstance(self.record.state, Creating):
            return self._waits_for_table()
        if isinstance(self.record.state, Stopped):
            return True
        cursor = self.cursor or 0
        return cursor >= goal and not self._is_copied_here(self.record, self.mirrored, cursor)

    def _waits_for_table(self) -> bool:
        """True if the history has not begun, because no table with its name has rows yet."""
        return isinstance(self.record.state, Creating) and not can_begin_with(self.mirrored)


def _compared_at(history: TableRecord) -> int:
    """Returns the lsn at which a history was last compared with a copied or repaired table; -1 if there was no
    comparison."""
    return -1 if history.copied_at is None else history.copied_at


def _copied_at(mirrored: TableRecord | None, name: TableName) -> int:
    """Returns `copied_at` of the table if the table had this name then; otherwise -1."""
    copied = None if mirrored is None else mirrored.copied_at
    if mirrored is None or copied is None:
        return -1
    return copied if name_at(mirrored, copied + 1) == name else -1


def _changes_rows(effect: object) -> bool:
    match effect:
        case AlterTable():
            return bool(effect.clauses or effect.copy_reason)
        case CreateTable():
            return effect.replaces or not effect.if_not_exists
    return True


def history_of(table: TableRecord, state: MirrorState) -> TableRecord:
    """Returns the record of a new history of a table. If the table had no rows when it became live, the history begins
    at that entry, without versions, and so will contain every version. Otherwise, the history begins with the table's
    rows."""
    table_id, consumer = state.options.new_id(), state.options.consumer
    begun = TableRecord(table_id, consumer, *table.name, state=Creating(), history=True)
    since = table.from_lsn
    is_new = isinstance(table.state, Live) and table.state.exact_from == since
    if is_new and table.copied_at != since:
        return replace(begun, state=Live(), from_lsn=since)
    return begun
