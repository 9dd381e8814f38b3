"""Executes the effects of one client's rules on the client's connections, its data in the store, and its waiting
readers.

This module has no rules. It passes each event (a login, a batch, a fault, an acknowledgement, a tick of the clock) to
`Client.step`, and executes the returned effects in their order. Blocking calls (PyMySQL's login, SQLite) run in
threads. Everything else runs on the event loop, so the rules handle one event at a time. Each dispatcher has a
`DispatcherRunner` with its own task.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.effects import (
    Close,
    Connect,
    Effect,
    FetchSchema,
    Note,
    Pause,
    PollServer,
    Resume,
    Retire,
    StartDump,
    Store,
    StoreVersions,
    Wake,
)
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    Input,
    LookUpDelayed,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.values.executed_position import ExecutedPosition, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import Action, BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.model.server_picture import Picture
from dispatcher.model.timings import ConnectionTimings
from dispatcher.runtime.client.dispatcher_task import DispatcherRunner, KernelsLoaded
from dispatcher.runtime.client.lookup_queue import LookUps
from dispatcher.runtime.client.table_lookup import look_up, look_up_failed
from dispatcher.runtime.client.waiters import Waiters
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.runtime.store.store_queue import StoreQueue
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.source.protocols import SURVEY, Source, ViewRequest
from dispatcher.stream.segments import SEGMENT_POOL

TICK_MAX_S, TICK_MIN_S = 1.0, 0.02
LOOK_UP_AGAIN_S = 1.0
SURVEY_EVERY_S = 30.0
SURVEY_AGAIN_S = 1.0
_MORE_MEMORY = "give the daemon more memory or threads (systemd: MemoryMax, TasksMax); it connects again by itself"


class Logger(Protocol):
    """The part of structlog's bound logger that this module uses."""

    def log(self, level: int, event: str, **fields: Any) -> Any: ...


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class ClientRunner:
    """One client, its dispatchers, its store queue, and the calls of readers that wait for its consumers."""

    def __init__(  # noqa: PLR0913 - one for each part of the daemon that it uses
        self,
        client: Client,
        source: Source,
        store: StoreThread,
        *,
        key: str,
        tasks: Tasks,
        log: Logger,
        buffer_bytes: int,
        kernels_loaded: KernelsLoaded,
    ) -> None:
        """`key`: the client's key in the state store; `tasks`: the tasks of this client only."""
        self.kernels_loaded = kernels_loaded
        self.client = client
        self.source = source
        self.buffer_bytes = buffer_bytes
        self.tip: ExecutedPosition | None = None  # the end of the log at the last survey
        self.timings = ConnectionTimings()
        self.store_queue = StoreQueue(store, client, key)
        self._tasks = tasks
        self._log = log
        self._dispatchers: dict[int, DispatcherRunner] = {}
        # By dispatcher number: the newest task with this number, which may have ended.
        self._running: dict[int, asyncio.Task[None]] = {}
        # By dispatcher number: the newest `FetchSchema`.
        self._look_ups: dict[int, FetchSchema] = {}
        self._look_up_ordered = asyncio.Event()
        self._wakeup_changed = asyncio.Event()
        self._stopped = False
        self._survey_ordered = asyncio.Event()
        self._surveys_begun = 0
        self._surveyed: ServerView | BinlogError | None = None  # the newest answer of a survey
        self._surveying = asyncio.Lock()
        self._searching = asyncio.Lock()
        self.waiters = Waiters()
        self.look_ups = LookUps()
        self.picture: Picture | None = None  # the newest picture of the server, for the front
        self._seek_files: list[str] = []  # files whose creation times the pending seeks need

    def start(self) -> None:
        label = self.client.label
        self._tasks.start(f"clock {label}", self._tick())
        self._tasks.start(f"look-ups {label}", self._look_up())
        self._tasks.start(f"survey {label}", self._survey_regularly())
        self._execute(self.client.start(time.monotonic()))

    async def stop(self) -> None:
        """End all connections, and then store the queued writes. Raises BinlogError."""
        self._stopped = True
        await self._tasks.cancel_all()
        await self.store_queue.flush(final=True)

    # -- the rules -------------------------------------------------------------------------------------------

    def step(self, event: Input) -> None:
        """Pass an event to the rules, and execute the returned effects. Raises BinlogError if the event is a reader's
        call that the rules refuse."""
        if not self._stopped:
            self._execute(self.client.step(event, time.monotonic()))
            self.waiters.changed()

    def _execute(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake():
                    self.waiters.wake(effect.consumer)
                case Store():
                    self.store_queue.put_progress(effect.consumer, effect.progress)
                case Note():
                    self._note(effect.level, effect.event, effect.fields)
                case StoreVersions():
                    self.store_queue.put_versions(effect)
                case PollServer():
                    self._survey_ordered.set()
                case FetchSchema():
                    self._look_ups[effect.dispatcher] = effect
                    self._look_up_ordered.set()
                case _:
                    self._order(effect)

    def _order(self, effect: Connect | StartDump | Close | Retire | Pause | Resume) -> None:
        """Execute an effect on one dispatcher's connection."""
        number = effect.dispatcher
        match effect:
            case Connect():
                self._dispatcher(number).connect(effect.after_s)
            case StartDump():
                self._dispatchers[number].dump(effect)
            case Pause() | Resume():
                self._dispatchers[number].pause(isinstance(effect, Pause))
            case Close():
                self._dispatchers[number].close()
                if effect.next_host:
                    self.source.next_host(number)
                self._note("info", "closed", {"dispatcher": number, "reason": effect.reason})
            case Retire():
                self._dispatchers.pop(number).retire()
                self._look_ups.pop(number, None)
                self._note("info", "retired", {"dispatcher": number, "reason": effect.reason})
        # The rules may have asked for an earlier tick.
        self._wakeup_changed.set()

    def _dispatcher(self, number: int) -> DispatcherRunner:
        runner = self._dispatchers.get(number)
        if runner is None:
            runner = DispatcherRunner(number, self, self._running.get(number))
            self._dispatchers[number] = runner
            name = f"dispatcher {number} of {self.client.label}"
            self._running[number] = self._tasks.start(name, runner.run())
        return runner

    def logged_in(self, view: ServerView, findings: Sequence[BinlogError]) -> None:
        self._update_tip(view)
        for error in findings:
            self._note("warning", "server", {"finding": str(error)})

    def _update_tip(self, view: ServerView) -> None:
        self.tip = make_executed(view.mode, view.executed, view.file, view.offset)
        self.waiters.changed()

    @contextlib.contextmanager
    def guarded(self, task: str) -> Iterator[None]:
        """Return a context manager for code that reads the source. It logs an unexpected exception with its traceback
        and raises BinlogError (INTERNAL) instead, which fails only this client. If the host has no memory or no thread
        left, it raises CONNECTION_LOST instead, so that the rules connect again.

        Data from a source may trigger an unknown defect in the code. Such a defect must not stop the other clients.
        This context must not contain calls of the rules: a defect there may leave the client's state half changed, and
        only a restart from the store makes the state consistent again.
        """
        try:
            yield
        except BinlogError:
            raise
        except Exception as error:
            label = self.client.label
            if _is_shortage(error):
                what = f"{task}: the daemon's host has no memory or no thread left: {error}"
                raise BinlogError(
                    ErrorKind.CONNECTION_LOST, what, where=label, remedy=_MORE_MEMORY
                ) from error
            self._log.log(_LEVELS["error"], "defect", client=label, task=task, exc_info=error)
            what = f"{task}: {type(error).__name__}: {error}"
            raise BinlogError(ErrorKind.INTERNAL, what, where=label) from error

    def _note(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        self._log.log(_LEVELS[level], event, client=self.client.label, **fields)

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Pass a `Tick` to the rules at the times that the rules request, and store the queued writes after each
        `Tick`."""
        ticked = time.monotonic()
        unstored_since: float | None = None
        while True:
            self._wakeup_changed.clear()
            wakeup = self.client.next_wakeup()
            due = ticked + TICK_MAX_S if wakeup is None else min(wakeup, ticked + TICK_MAX_S)
            pause_s = max(due, ticked + TICK_MIN_S) - time.monotonic()
            if pause_s > 0:
                try:
                    async with asyncio.timeout(pause_s):
                        await self._wakeup_changed.wait()
                    continue
                except TimeoutError:
                    pass
            ticked = time.monotonic()
            SEGMENT_POOL.trim(ticked)
            self.step(Tick())
            unstored_since = await self._store_queued(unstored_since)

    async def _store_queued(self, unstored_since: float | None) -> float | None:
        """Store the queued writes. `unstored_since`: the time since which storing has failed (s of the monotonic
        clock), None if the last attempt succeeded. Returns the new value of `unstored_since`."""
        try:
            await self.flush()
        except BinlogError as error:
            self._note("error", "state not stored", {"error": str(error)})
            return time.monotonic() if unstored_since is None else unstored_since
        if unstored_since is not None:
            after_s = round(time.monotonic() - unstored_since, 1)
            self._note("info", "state stored again", {"after_s": after_s})
        return None

    async def _look_up(self) -> None:
        """Execute the look-ups that the rules order. For each dispatcher, only the newest order is executed."""
        while True:
            await self._look_up_ordered.wait()
            self._look_up_ordered.clear()
            again = False
            for number in list(self._look_ups):
                # While another look-up ran, the rules may have replaced or dropped the order.
                order = self._look_ups.pop(number, None)
                if order is not None:
                    again |= not await self._looked_up(order)
            if again:
                await asyncio.sleep(LOOK_UP_AGAIN_S)
                self._look_up_ordered.set()

    async def _looked_up(self, order: FetchSchema) -> bool:
        """Execute one look-up. Returns False if it must be repeated."""
        number = order.dispatcher
        dispatcher = self._dispatchers.get(number)
        try:
            with self.guarded("look up"):
                answer = await look_up(self.source.server(), order)
        except BinlogError as error:
            self._note("warning", "not looked up", {"error": str(error)})
            if error.action in (Action.RETRY, Action.OPERATOR):
                if self._dispatchers.get(number) is not dispatcher:
                    return True
                self.step(LookUpDelayed(order, error))
                if not self.client.awaits_look_up(order):
                    return True
                self._look_ups.setdefault(number, order)
                return False
            answer = look_up_failed(order, error)
        if dispatcher is not None and self._dispatchers.get(number) is dispatcher:
            self.step(answer)
        return True

    def format(self) -> FormatDescription | None:
        """Return the FORMAT_DESCRIPTION of a dispatcher's present connection; None if no connection has received
        one."""
        formats = (dispatcher.format for dispatcher in self._dispatchers.values())
        return next((format_ for format_ in formats if format_ is not None), None)

    def dumps(self, dispatcher: int | None) -> bool:
        """True if the dispatcher with this number has an open dump; see `DispatcherRunner.dumps`."""
        runner = None if dispatcher is None else self._dispatchers.get(dispatcher)
        return runner is not None and runner.dumps

    async def _survey_regularly(self) -> None:
        """Survey the source regularly, and whenever the rules order a survey."""
        while True:
            pause_s = SURVEY_AGAIN_S if self.client.awaits_poll else SURVEY_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._survey_ordered.wait()
            self._survey_ordered.clear()
            await self.survey()

    async def survey(self) -> ServerView | BinlogError:
        """Ask the source for its present state. Returns the source's answer, or the error if the source cannot be
        asked.

        All calls that begin while a survey runs share the next survey, because the answer must not be older than the
        call.
        """
        needed = self._surveys_begun + 1
        async with self._surveying:
            if self._surveys_begun < needed:
                self._surveys_begun += 1
                self._surveyed = await self._survey()
        assert self._surveyed is not None, "a survey was made"
        return self._surveyed

    async def _survey(self) -> ServerView | BinlogError:
        try:
            files = {*self.client.files_to_poll(), *self._seek_files}
            request = ViewRequest(sorted(files), places=self.client.offsets_to_poll())
            view, expire_s = await self.ask("survey", request)
        except BinlogError as error:
            self._note("debug", "not surveyed", {"error": str(error)})
            self._survey_next_host()
            return error
        self._update_tip(view)
        self.step(ServerPolled(view, expire_s))
        self._survey_next_host()
        if (duplicate := self.client.duplicate) is not None:
            self.timings.faults[duplicate.kind.name] += 1
        return view

    def _survey_next_host(self) -> None:
        """Let the next survey ask the next host if the client has no dispatcher and one of its consumers waits for its
        own server to come back."""
        if self.client.awaits_other_server:
            self.source.next_host(SURVEY)

    async def ask(self, task: str, request: ViewRequest) -> tuple[ServerView, int | None]:
        """Survey the source in a thread. Raises BinlogError.

        A search for a start reads files of the log. Only one search runs at a time. So many readers that seek at the
        same time take the memory and the connection of one search only.
        """
        async with self._searching if request.starts else contextlib.nullcontext():
            with self.guarded(task):
                survey = partial(self.source.survey, request)
                return await in_thread(f"{task} {self.client.label}", survey)

    # -- readers that seek -----------------------------------------------------------------------------------

    async def find(
        self, consumer: str, position: Position, *, fresh: bool = False
    ) -> SeekRequested:
        """Ask the server whether it has a reader's position, and return the event that moves the consumer to the
        position.

        Changes nothing. Raises BinlogError if the server does not have the position (see `seeking.seek_target`), or if
        the server cannot be asked (RANGE_UNAVAILABLE).
        """
        view = await self._view_for(consumer, position)
        seeking.seek_target(self.client.consumers[consumer], position, view, fresh=fresh)
        return SeekRequested(consumer, position, view, fresh)

    async def survey_with(self, file: str, what: str) -> ServerView:
        """Do what `survey` does. The view contains the creation time of `file`, if the source has this file. Raises
        BinlogError (RANGE_UNAVAILABLE) if the source cannot be asked whether it has `what`."""
        self._seek_files.append(file)
        try:
            view = await self.survey()
        finally:
            self._seek_files.remove(file)
        if isinstance(view, BinlogError):
            raise cannot_ask(what, view)
        return view

    async def _view_for(self, consumer: str, position: Position) -> ServerView:
        view = await self.survey_with(position.file, "the position")
        starts = seeking.seek_starts(self.client.consumers[consumer], position, view)
        if not starts:
            return view
        try:
            return (await self.ask("seek", ViewRequest([position.file], starts)))[0]
        except BinlogError as error:
            raise cannot_ask("the position", error) from error

    # -- the store -------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Store all writes that are queued now. If this method raises BinlogError, the writes stay queued."""
        await self.store_queue.flush()

    async def acknowledge(self, consumer: str, position: Position) -> None:
        """Store a reader's acknowledgement, and then drop the acknowledged data from the queue. Only one call per
        consumer may run at a time.

        Raises BinlogError. Raises UserError for a position that the consumer does not have.
        """
        progress = self.client.progress_after(consumer, position)
        if progress is None:
            return
        await self.store_queue.acknowledge(consumer, progress)
        # During the write to the store, the consumer may have skipped a purge gap.
        if self.client.consumers[consumer].queue.epoch == position.epoch:
            self.step(Acknowledged(consumer, progress.acknowledged, progress.covered))

    async def store(self, consumer: str) -> None:
        """Store the current progress of a consumer. Raises BinlogError."""
        self._execute([self.client.consumers[consumer].store_progress()])
        await self.flush()


def cannot_ask(what: str, error: BinlogError, where: str = "") -> BinlogError:
    """Return the error RANGE_UNAVAILABLE for a server that cannot be asked whether it has `what`."""
    reason = f"the server cannot be asked whether it has {what}: {error.kind}: {error.what}"
    return BinlogError(
        ErrorKind.RANGE_UNAVAILABLE, reason, where=where or error.where, remedy=error.remedy
    )


def _is_shortage(error: Exception) -> bool:
    """True if the host has refused memory or a thread."""
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)  # CPython has no type for this error
    return isinstance(error, MemoryError)
