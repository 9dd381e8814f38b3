"""Tasks of a whole consumer: one finishes moves of folders that a crash has interrupted, the others read the mirror's
log into the queues. The log consists of appends, which contain entries (see `rules.plan`). Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.effects import ReadLog
from spark_sink.mirror.rules.events import Answer, EntriesRead, Failure, FoldersMoved, LogLost
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.plan import LostItem, route
from spark_sink.mirror.rules.retries import LASTING_AFTER
from spark_sink.mirror.rules.table_queue import TableQueue, of_left
from spark_sink.mirror.rules.tasks.folder_move import begin_move
from spark_sink.mirror.rules.tasks.task import Task, table_failed
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn, last_lsn
from spark_sink.source.raw_entries import EntryKind


class RepairTask(Task):
    """Finishes the moves of folders that a crash has interrupted."""

    def __init__(self, state: MirrorState, done: Callable[[], None]) -> None:
        super().__init__(state)
        self._done, self._tried = done, False
        self._without_place: set[str] = set()

    def go(self) -> None:
        state = self.state
        waiting = self._without_place
        moving = [r for r in state.tables() if r.move is not None and r.table_id not in waiting]
        if any(state.is_busy(record.table_id) for record in state.tables()):
            return
        if self._tried or not moving:
            self.ended = True
            self._done()
            return

        def moved(answer: FoldersMoved) -> None:
            self._tried = answer.step is None
            self._without_place |= answer.refused.keys()

        begin_move(self, moving, moved)

    def failed(self, failure: Failure) -> None:
        wait_s = self.pause(failure)
        self.state.note_retry(failure, wait_s)


class ReadTask(Task):
    """Reads the log into the queues."""

    def __init__(self, state: MirrorState, fail: Callable[[BinlogError], None]) -> None:
        super().__init__(state)
        self._fail = fail

    def go(self) -> None:
        state = self.state
        if state.newest <= state.append_seen or state.queues.reserves():
            return
        if state.queues.is_full(state.now, state.without_place()):
            return
        newest, after = state.newest, state.read_to

        def read(answer: Answer) -> None:
            self.failures = 0
            if isinstance(answer, LogLost):
                self._leave_out(answer)
                return
            assert isinstance(answer, EntriesRead)
            self._into_queues(answer.entries)
            # If no entry was read, the appends up to `newest` contain only claims, which a read leaves out.
            state.append_seen = append_of(state.read_to) if answer.entries else newest

        self.begin([], lambda run: ReadLog(run, after), read)

    def _into_queues(self, entries: tuple[LogEntry, ...]) -> None:
        state = self.state
        for entry in entries:
            if entry.kind is EntryKind.END and entry.position is not None:
                state.server = entry.position.server
            known = partial(state.names, dropped=entry.gap)
            for name, item in route(entry, effects_of, known, state.options.excluded):
                state.queues.add(name, item)
            state.read_to = entry.lsn

    def _leave_out(self, lost: LogLost) -> None:
        """Continue with the entries after the appends that cannot be read. All tables stop before these appends,
        because these may contain changes of any table."""
        state = self.state
        first, last = first_lsn(lost.first), last_lsn(lost.last)
        if lost.before:
            self._into_queues(lost.before)
            state.append_seen = append_of(state.read_to)
            return
        if last <= state.read_to:
            self._fail(lost.error)  # the error does not show which entries are lost
            return
        for name in state.names(dropped=True):
            state.queues.add(name, LostItem(first, last, lost.error))
        state.read_to, state.append_seen = last, append_of(last)

    def failed(self, failure: Failure) -> None:
        state = self.state
        wait_s = self.pause(failure)
        state.note_retry(failure, wait_s)
        if failure.fault is not None:
            self._fail(failure.fault)
        elif state.draining and self.failures >= LASTING_AFTER:
            self._fail(lasting(failure, state.options.consumer))


class LeftTask(Task):
    """Reads items of one queue from the log again, until the table's share of the memory is used, or until all items of
    the queue are in memory."""

    def __init__(self, state: MirrorState, queue: TableQueue) -> None:
        super().__init__(state)
        self._queue = queue

    def go(self) -> None:
        queues, queue, excluded = self.state.queues, self._queue, self.state.options.excluded
        left, name = queue.left, queue.name
        if left is None or not queues.reads_on(queue):
            self._end()
            return

        def read(answer: Answer) -> None:
            if isinstance(answer, LogLost):
                first = max(left.first, first_lsn(answer.first))
                last = min(left.last, last_lsn(answer.last))
                queues.lost(queue, left, LostItem(first, last, answer.error))
                return
            assert isinstance(answer, EntriesRead)
            items = [
                item
                for entry in answer.entries
                for item in of_left(route(entry, effects_of, lambda: [name], excluded), name)
            ]
            to = answer.entries[-1].lsn if answer.entries else left.last
            if not queues.takes(queue, left, to, items):
                self._end()

        self.begin([], lambda run: ReadLog(run, left.first - 1, left.last + 1, (name,)), read)

    def failed(self, failure: Failure) -> None:
        state, name = self.state, self._queue.name
        begin = self._queue.begin
        wait_s = table_failed(state, name, begin or 0, failure)
        self._end(state.now + wait_s)

    def _end(self, not_before: float = 0.0) -> None:
        self.state.queues.not_read(self._queue, not_before)
        self.ended = True


def lasting(failure: Failure, consumer: str) -> BinlogError:
    """Returns the error for a consumer that is no longer applied because of many failures in succession."""
    return BinlogError(ErrorKind.INTERNAL, failure.text, where=f"consumer {consumer}")
