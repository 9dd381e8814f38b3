"""The rules for mirroring the tables of one consumer: `Mirror.step(event, now)` returns effects. Pure.

One thread calls `step` with the events, in the order in which they happened. It passes the effects to other threads.
The answers of these threads are further events. The rules make every decision about tables, queues, copies, replays,
renames, gaps, requests, retries and histories. They decide from the tables' records and from these answers. No other
module of the apply stage changes a record. An effect that a thread executes is a *work* (`effects`); several works that
follow each other for one purpose, such as a copy, are a *task* (`tasks.task`); an *lsn* is the number of an entry (rows
of a table, or a statement) of the mirror's log.

After the event itself, each step does the same work: the rules execute the requests of people, continue the tasks that
need not wait, start new tasks, and store changed records. So the rules react to every change, no matter which event
caused it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import nlargest
from typing import cast

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.rules.effects import Effect, EndConsumer, StoreRecords
from spark_sink.mirror.rules.events import (
    Answer,
    Claimed,
    EntriesRead,
    Event,
    LogFailed,
    LogGrew,
    LogLost,
    Registered,
    RequestsRead,
    Started,
    Stopping,
    Stored,
    StoreFailed,
    Ticked,
    VectorsEnabled,
)
from spark_sink.mirror.rules.mirror_state import MirrorOptions, MirrorState
from spark_sink.mirror.rules.plan import RenameBarrier
from spark_sink.mirror.rules.queues import WaitingTable
from spark_sink.mirror.rules.records import without_old_names
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.retries import LASTING_AFTER, backoff_s
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    LeftOut,
    Live,
    Replaying,
    TableState,
)
from spark_sink.mirror.rules.table_record import Request, TableRecord, Wish, answering, handled
from spark_sink.mirror.rules.tasks.copy_task import CopyTask
from spark_sink.mirror.rules.tasks.history_task import NEWEST, HistoryTask, history_of
from spark_sink.mirror.rules.tasks.log_tasks import LeftTask, ReadTask, RepairTask, lasting
from spark_sink.mirror.rules.tasks.proof_task import ProofTask
from spark_sink.mirror.rules.tasks.rename_task import RenameTask
from spark_sink.mirror.rules.tasks.replay_task import ReplayTask
from spark_sink.mirror.rules.tasks.step_task import StepTask
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.rules.transitions import left_out, taken_in, unsure
from spark_sink.mirror.values.entries import (
    last_lsn,
)
from spark_sink.mirror.values.names import TableName, table_label

COPIES = 2  # how many tables are copied at the same time
REPLAYS = 2  # how many tables are replayed at the same time
LEFTS = 2  # how many tables' entries are read again from the log at the same time


class Mirror:
    """The rules of one consumer. Times are seconds of a monotonic clock."""

    def __init__(self, options: MirrorOptions) -> None:
        self.state = MirrorState(options)
        self._steps: list[StepTask | RenameTask] = []
        self._lefts: list[LeftTask] = []
        self._replays: dict[str, ReplayTask] = {}
        self._copies: dict[str, CopyTask] = {}
        self._histories: dict[str, HistoryTask] = {}
        self._repair: RepairTask | None = None
        self._reader: ReadTask | None = None
        self._proof: ProofTask | None = None
        self._works: dict[int, Task] = {}
        self._stored_records: dict[
            str, TableRecord
        ] = {}  # the control table's records, by table id
        self._saving_proofs: dict[str, None] = {}  # ids of the tables whose proofs are being stored
        self._store_run: int | None = None
        self._store_at = 0.0
        self._store_failures = 0
        self._written = 0
        self._writing: int | None = None  # the watermark that a commit is storing now
        self._watermark_at = 0.0
        self._goal: int | None = None

    def step(self, event: Event, now: float) -> list[Effect]:
        """Handle an event. Returns the effects to execute, in this order."""
        state = self.state
        state.now = now
        self._take(event)
        if state.failure is None:
            self._plan()
        effects, state.effects = state.effects, []
        return effects

    def next_wakeup(self) -> float | None:
        """Returns the time at which `step` has to be called with `Ticked` at the latest; None if nothing changes before
        another event."""
        times = [task.not_before for task in self._jobs() if task.run is None and not task.ended]
        times += [self._store_at] if self._store_due() else []
        times += [] if self._proof is None else [self._proof.wakes_at]
        if self.state.proofs_due is not None and self._store_run is None:
            times += [self.state.proofs_due]
        pause = self.state.queues.next_time(self.state.now)
        times += [] if pause is None else [pause]
        times += [self._watermark_at] if self.state.watermark() > self._written else []
        return min((time for time in times if time > self.state.now), default=None)

    # -- events ----------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        state = self.state
        match event:
            case Started():
                self._start(event)
            case LogGrew():
                state.newest, state.oldest = max(state.newest, event.newest), event.oldest
            case Stored() | StoreFailed():
                self._stored(event)
            case RequestsRead():
                self._requests(event)
            case Registered() if event.table_id in state.records:
                record = state.records[event.table_id]
                state.save(replace(record, registered=event.name, refused=event.refused))
            case VectorsEnabled() if event.table_id in state.records:
                state.save(replace(state.records[event.table_id], deletion_vectors=True))
            case Claimed() | LogFailed():
                self.fail(event.error)
            case Stopping():
                state.stopping = True
            case Registered() | VectorsEnabled() | Ticked():
                pass
            case _:
                self._answer(event)

    def _answer(self, answer: Answer) -> None:
        match answer:
            # A task of one table may read an END entry (the end of an append) that `ReadTask` could not read before.
            case EntriesRead(entries=entries) | LogLost(before=entries):
                self.state.learn_end(entries)
        task = self._works.pop(answer.run, None)
        if task is not None:
            task.answered(answer)
            self._expect_answer(task)

    def _expect_answer(self, task: Task) -> None:
        if task.run is not None:
            self._works[task.run] = task

    def fail(self, error: BinlogError) -> None:
        """Stop applying this consumer. Its tables stay as they are."""
        if self.state.failure is None:
            self.state.failure = error
            self.state.effects.append(EndConsumer(error))

    # -- the beginning -----------------------------------------------------------------------------------------

    def _start(self, started: Started) -> None:
        state = self.state
        for record in started.records:
            state.hold(record)
        self._stored_records = dict(state.records)
        state.proofs = {proof.table_id: proof for proof in started.proofs}
        state.clock_s = started.at - state.now
        state.owners = started.owners
        state.read_to = self._written = started.applied
        state.newest, state.oldest, state.end = started.newest, started.oldest, started.end
        state.draining, self._goal = started.goal is not None, started.goal
        if started.end is not None and started.end.position is not None:
            state.server = started.end.position.server
        self._watermark_at = state.now + state.options.watermark_s
        self._repair = RepairTask(state, self._repaired)

    def _repaired(self) -> None:
        """Adapt the records to the settings. `RepairTask` calls this method after its attempt to finish the interrupted
        moves of folders."""
        state = self.state
        for record in list(state.tables()):
            after = record
            if not record.is_dropped and state.options.excluded(record.name):
                after = left_out(record, state.read_to)
            elif state.options.excluded(record.name):
                after = unsure(record)
            elif isinstance(record.state, LeftOut):
                after = taken_in(record, state.read_to, state.situation(record.name))
            if after != record:
                state.save(after, why="include and exclude of the consumer")
            if not (after.is_live or after.is_dropped):
                state.leave(after, state.read_to)
        self._repair = None
        self._reader = ReadTask(state, self.fail)
        if state.options.proofs is not None and not state.draining:
            self._proof = ProofTask(state, state.options.proofs)

    # -- requests ----------------------------------------------------------------------------------------------

    def _requests(self, read: RequestsRead) -> None:
        state = self.state
        state.owners = read.owners
        for table_id, request in read.by_id.items():
            record = state.records.get(table_id)
            if record is not None and request.id != record.handled:
                state.ask(table_id, request)
                self._try_again(table_id)
        for name, request_id in read.by_name.items():
            label = table_label(name)
            named = (record for record in state.tables() if record.name == name)
            own = max(named, key=lambda r: (not r.is_dropped, r.serial), default=None)
            if own is None and state.options.excluded(name):
                continue  # the request stays open while the settings exclude the table
            if own is None:
                table_id = state.options.new_id()
                made = TableRecord(table_id, state.options.consumer, *name, state=Creating())
                made = replace(made, reason="a copy was asked for")
                state.save(answering(made, label, request_id), why="a copy was asked for")
            elif own.answered.get(label) != request_id:
                state.ask(own.table_id, Request(request_id, Wish.COPY, label))
                self._try_again(own.table_id)

    def _try_again(self, table_id: str) -> None:
        """Repeat the failed tasks of a table at once, because a person has made a request about the table."""
        tasks: list[Task | None] = [self._replays.get(table_id), self._copies.get(table_id)]
        for task in tasks:
            if task is not None:
                task.not_before = 0.0

    # -- the plan ----------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        if self._repair is not None:
            self._drive(self._repair)
        if self._repair is None and self._reader is not None:
            self._answer_requests()
            self._advance()
        self._store()

    def _advance(self) -> None:
        """Continue all tasks, and start new tasks in place of those that have ended."""
        started = True
        while started:
            for aside in self._asides():
                aside.watch()
            for task in self._jobs():
                self._drive(task)
            self._forget_ended()
            started = not self.state.stopping and self._start_jobs()
        for copy in self._copies.values():
            copy.watch()

    def _jobs(self) -> Iterator[Task]:
        """All tasks. If several tasks need one table, the first of these tasks in this order gets the table."""
        yield from [self._repair] if self._repair else []
        yield from [self._reader] if self._reader else []
        yield from list(self._steps)
        yield from list(self._lefts)
        yield from list(self._replays.values())
        yield from list(self._copies.values())
        yield from list(self._histories.values())
        yield from [self._proof] if self._proof else []

    def _drive(self, task: Task) -> None:
        """Continue a task until it has to wait for an answer."""
        while task.may_go() and not (self.state.stopping and task is not self._repair):
            task.wants_turn = False
            task.go()
            self._expect_answer(task)
            if not task.wants_turn:
                return

    def _answer_requests(self) -> None:
        for record in [self.state.records[table_id] for table_id in self.state.asked]:
            if record.history:
                # A history that the settings do not want has no task that could execute the request.
                if record.is_dropped or not self._follows(record.name):
                    self.state.save(handled(record))
                continue
            if record.request is not None and self.state.is_free(record.table_id):
                fields = {"consumer": record.consumer, "table": record.label}
                self.state.note("request", fields | {"wish": str(record.request.wish)})
                self.state.doubt(record.table_id)  # the person may have changed the files
                if record.request.wish is Wish.REPAIR and not record.is_dropped:
                    self.state.ask_repair(record)
                self.state.save(
                    self._after_request(record), why=f"{record.request.wish} was asked for"
                )
                self.state.queues.resume(record.name)

    def _after_request(self, record: TableRecord) -> TableRecord:
        named = (other for other in self.state.tables() if other.name == record.name)
        if record.is_dropped and not all(other.is_dropped for other in named):
            return handled(record)  # another table has the name of this record now
        if record.is_dropped and self.state.options.excluded(record.name):
            return handled(record)
        return after_request(record)

    def _start_jobs(self) -> bool:
        """Returns True if a task was started."""
        state, options = self.state, self.state.options
        started: list[Task] = []
        while len(self._steps) < options.parallel:
            step = state.queues.start(state.now, state.without_place())
            if step is None:
                break
            is_rename = isinstance(step.work, RenameBarrier)
            self._steps.append(RenameTask(state, step) if is_rename else StepTask(state, step))
            started.append(self._steps[-1])
        started += self._start_reads()
        started += self._start_replays()
        started += self._start_copies()
        started += self._start_histories()
        return bool(started)

    def _start_reads(self) -> list[Task]:
        state, started = self.state, list[Task]()
        while len(self._lefts) < LEFTS:
            queue = state.queues.next_left(state.now, state.without_place())
            if queue is None:
                break
            self._lefts.append(LeftTask(state, queue))
            started.append(self._lefts[-1])
        return started

    def _start_replays(self) -> list[Task]:
        state, started = self.state, list[Task]()
        free = REPLAYS - sum(task.not_before <= state.now for task in self._replays.values())
        if free > 0:
            waiting = self._oldest(i for i in state.to_replay if i not in self._replays)
            for record in waiting[:free]:
                self._replays[record.table_id] = ReplayTask(state, record.table_id)
                started.append(self._replays[record.table_id])
        return started

    def _start_copies(self) -> list[Task]:
        state, started = self.state, list[Task]()
        free = COPIES - sum(task.not_before <= state.now for task in self._copies.values())
        if free > 0 and state.options.copies:
            waiting = self._oldest(i for i in state.to_copy if i not in self._copies)
            for record in [record for record in waiting if record.request is None][:free]:
                self._copies[record.table_id] = CopyTask(state, record.table_id)
                started.append(self._copies[record.table_id])
        return started

    def _oldest(self, table_ids: Iterable[str]) -> list[TableRecord]:
        records = [self.state.records[table_id] for table_id in table_ids]
        return sorted(records, key=lambda record: record.serial)

    def _start_histories(self) -> list[Task]:
        started: list[Task] = []
        state, options = self.state, self.state.options
        if not state.changed:
            return []
        changed, state.changed = state.changed, {}
        histories = {record.name: record for record in state.histories()}
        for table in [state.records[table_id] for table_id in changed]:
            if table.history:
                continue
            name = table.name
            wants = isinstance(table.state, Live) and options.policy(name).history
            if wants and name not in histories:
                histories[name] = history_of(table, state)
                state.save(histories[name])
        for name, record in histories.items():
            if self._follows(name) and record.table_id not in self._histories:
                self._histories[record.table_id] = HistoryTask(state, record.table_id)
                started.append(self._histories[record.table_id])
        return started

    def _follows(self, name: TableName) -> bool:
        """True if the settings want a history of the tables of a name."""
        options = self.state.options
        return options.policy(name).history and not options.excluded(name)

    def _forget_ended(self) -> None:
        self._steps = [task for task in self._steps if not task.ended]
        self._lefts = [task for task in self._lefts if not task.ended]
        for tasks in (self._replays, self._copies):
            for table_id in [i for i, task in tasks.items() if task.ended]:
                del cast("dict[str, Task]", tasks)[table_id]
                self.state.joining.discard(table_id)

    # -- storing -----------------------------------------------------------------------------------------------

    def _store_due(self) -> bool:
        return self._store_run is None and bool(self.state.unsaved or self.state.saving)

    def _store(self) -> None:
        """Write the unsaved records, one commit at a time. The next commit writes the records that change during a
        commit."""
        state = self.state
        if self._store_run is not None or state.now < self._store_at:
            return
        # The commit of a watermark also removes the former names that are no longer needed with this watermark. If the
        # commit fails, the next attempt writes the same watermark or a newer one.
        self._writing = self._watermark() or self._writing
        proofs_due = state.proofs_due is not None and state.now >= state.proofs_due
        if not (state.unsaved or state.saving or proofs_due) and self._writing is None:
            return
        state.saving |= {table_id: state.records[table_id] for table_id in state.unsaved}
        state.saving = {table_id: state.records[table_id] for table_id in state.saving}
        state.unsaved = {}
        self._saving_proofs |= state.unsaved_proofs
        state.unsaved_proofs, state.proofs_due = {}, None
        proofs = tuple(state.proofs[table_id] for table_id in self._saving_proofs)
        self._store_run = state.new_run([])
        state.effects.append(
            StoreRecords(self._store_run, tuple(state.saving.values()), self._writing, proofs)
        )

    def _watermark(self) -> int | None:
        """Returns the watermark if it has to be stored now; otherwise None."""
        state = self.state
        watermark = state.watermark()
        is_due = state.now >= self._watermark_at or (state.stopping and not self._steps)
        if not is_due or watermark <= self._written or self._reader is None:
            return None
        self._watermark_at = state.now + state.options.watermark_s
        needed = min([watermark, *(task.needed() for task in self._histories.values())])
        for record in list(state.tables()):
            shorter = without_old_names(record, needed)
            if shorter != record and (record.is_live or record.is_dropped):
                state.save(shorter)
        for task in self._histories.values():
            if task.cursor is not None and task.cursor > task.record.from_lsn:
                state.save(replace(task.record, from_lsn=task.cursor))
        return watermark

    def _stored(self, event: Stored | StoreFailed) -> None:
        state = self.state
        if event.run != self._store_run:
            return
        self._store_run = None
        if isinstance(event, StoreFailed):
            self._store_failures += 1
            wait_s = backoff_s(state.options.retry_first_s, self._store_failures)
            self._store_at = state.now + wait_s
            if self._saving_proofs:
                state.unsaved_proofs |= self._saving_proofs
                self._saving_proofs, state.proofs_due = {}, self._store_at
            state.note_retry(event.failure, wait_s)
            if event.failure.fault is not None:
                self.fail(event.failure.fault)
            elif state.draining and self._store_failures >= LASTING_AFTER:
                self.fail(lasting(event.failure, state.options.consumer))
            return
        self._stored_records |= state.saving
        self._store_failures, state.saving, self._saving_proofs = 0, {}, {}
        if self._writing is not None:
            self._written, self._writing = self._writing, None
        for table_id, (serial, at) in event.written.items():
            state.stored(table_id, serial, at)

    # -- progress ----------------------------------------------------------------------------------------------

    @property
    def needed_to(self) -> int:
        """The lsn after which the log is still needed: the smallest of the stored watermark and the `from_lsn` of the
        records that need the log.

        An unsaved record may need fewer entries than the stored record of the same table. After a crash, the mirror
        continues from the stored record, so the log keeps the entries that either of the two records needs.
        """
        state = self.state
        records = [*state.records.values(), *map(self._stored_records.get, self._unsaved_ids())]
        needed = (r.from_lsn for r in records if r is not None and self._needs_log(r))
        return min([self._written, *needed])

    def _unsaved_ids(self) -> list[str]:
        return [*self.state.unsaved, *self.state.saving]

    def _needs_log(self, record: TableRecord) -> bool:
        """True if the record's table is stopped, copied or replayed, or if the record belongs to a history that the
        settings want. A copy that has not begun needs no entries, because it will begin at the log's end. A history
        that has not begun needs no entries as long as no table with its name has rows."""
        if record.is_dropped:
            return False
        is_waiting = isinstance(record.state, Creating)
        if not record.history:
            return not (record.is_live or is_waiting)
        # The task of a history begins only after the repair of folders, and relies on records that may be unsaved.
        task = self._histories.get(record.table_id)
        may_begin = task is None or task.needed() < NEWEST or bool(self._unsaved_ids())
        return self._follows(record.name) and (may_begin or not is_waiting)

    def at_rest(self) -> bool:
        """True if a drain (a run with `--available-now`) is done: each entry up to the drain's goal is applied, or has
        failed several times, or is left in the log because its table is stopped or not copied."""
        state, goal = self.state, self._goal
        if state.failure is not None:
            return True
        if goal is None or self._reader is None or self._store_due() or self._store_run:
            return False
        counts = [*state.counts.values(), *(task.failures for task in self._replays.values())]
        if any(count >= LASTING_AFTER for count in counts):
            return True
        applied = state.queues.watermark(last_lsn(state.append_seen)) >= goal
        asked = any(record.request for record in state.tables())
        return (
            applied
            and not asked
            and not self._steps
            and all(task.failures > 0 and task.run is None for task in self._asides())
            and all(
                task.failures >= LASTING_AFTER or task.rests(goal)
                for task in self._histories.values()
            )
            and not any(self._will_go_on(record) for record in state.tables())
        )

    def _asides(self) -> Iterator[ReplayTask | CopyTask]:
        yield from self._replays.values()
        yield from self._copies.values()

    def _will_go_on(self, record: TableRecord) -> bool:
        """True if a table waits for a replay, or for a copy that this job can make, and if this replay or copy has not
        failed."""
        failing = {
            i for i, task in [*self._replays.items(), *self._copies.items()] if task.failures
        }
        if record.table_id in failing:
            return False
        if isinstance(record.state, Creating | Copying | Copied):
            return self.state.options.copies
        return isinstance(record.state, CatchingUp | Replaying)

    def unfinished(self) -> list[str]:
        """Returns the tables that are stopped or not copied yet, and the tables and histories whose steps fail."""
        found = [r.label for r in self.state.tables() if not (r.is_live or r.is_dropped)]
        found += [
            task.record.label
            for task in self._histories.values()
            if task.record.word is TableState.STOPPED or task.failures >= LASTING_AFTER
        ]
        return found + list(map(table_label, self.state.counts))

    def failing(self) -> int:
        """Returns how many tables and histories have failed and will be tried again."""
        return len(self.state.counts) + sum(task.failures > 0 for task in self._histories.values())

    def waiting(self, count: int) -> list[WaitingTable]:
        """Returns the tables with the most entries that are not applied, at most `count`."""
        state = self.state
        tables = state.queues.waiting(state.now, state.counts)
        return nlargest(count, tables, key=lambda table: table.entries)

    def histories_cursor(self) -> int | None:
        """Returns the lsn up to which the log is applied to all histories; None if there is no history."""
        cursors = [min(task.needed(), self.state.read_to) for task in self._histories.values()]
        return min(cursors, default=None)
