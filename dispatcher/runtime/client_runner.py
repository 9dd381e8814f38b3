"""Executes what the rules decide: one `ClientRunner` per connection key, between sockets, store and waiting readers.

No rule is here. Each input (a login, a batch, a fault, an acknowledgement, the clock) goes through `Client.step`, and
the effects are carried out in their order. What blocks (PyMySQL's login, SQLite) runs in threads; everything else runs
on the loop, so the rules never see two things at once. Each dispatcher that the rules ask for is a `DispatcherRunner`
with a task of its own.

What is to be stored waits in one queue, and `flush` stores all of it at once: so acknowledgements that come together
cost one write to the disk, and an older progress of a consumer is never stored over a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from dispatcher.dispatch import seeking
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.effects import (
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
from dispatcher.dispatch.events import Acknowledged, Input, SeekRequested, ServerPolled, Tick
from dispatcher.dispatch.executed_position import ExecutedPosition, make_executed
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import Progress
from dispatcher.model.errors import Action, BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.runtime.dispatcher_task import DispatcherRunner
from dispatcher.runtime.lookup_queue import TableLookups
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.table_lookup import look_up, not_looked_up
from dispatcher.runtime.tasks import Tasks
from dispatcher.runtime.threads import in_thread
from dispatcher.runtime.waiters import Condition, Waiters
from dispatcher.source.protocols import Source

TICK_MAX_S, TICK_MIN_S = 1.0, 0.02
LOOK_UP_AGAIN_S = 1.0
SURVEY_EVERY_S = 30.0
SURVEY_AGAIN_S = 1.0
# A server sends a transaction a moment before it counts it as executed.
COMMIT_WAIT_S = 1.0


class Logger(Protocol):
    """As much of structlog's bound logger as is needed."""

    def log(self, level: int, event: str, **fields: Any) -> Any: ...


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass(slots=True)
class _ToStore:
    """What waits to be stored: the newest progress of each consumer."""

    progress: dict[str, Progress] = field(default_factory=dict)
    versions: StoreVersions | None = None

    def put_back(self, older: _ToStore) -> None:
        """`older` could not be stored."""
        self.progress = {**older.progress, **self.progress}
        self.versions = _both(older.versions, self.versions)


class ClientRunner:
    """One client, its dispatchers, and those who wait for its consumers."""

    def __init__(
        self,
        client: Client,
        source: Source,
        store: StoreThread,
        *,
        key: str,
        tasks: Tasks,
        log: Logger,
        buffer_bytes: int,
    ) -> None:
        """`key`: under which what belongs to the client is stored; `tasks` are this client's alone."""
        self.client = client
        self.source = source
        self.buffer_bytes = buffer_bytes
        self.tip: ExecutedPosition | None = None  # the source's end of log, as last heard
        self._store = store
        self._key = key
        self._tasks = tasks
        self._log = log
        self._dispatchers: dict[int, DispatcherRunner] = {}
        self._running: dict[int, asyncio.Task[None]] = {}  # the newest of each number, ended or not
        self._to_store = _ToStore()
        self._storing = asyncio.Lock()
        self._acknowledging: dict[str, Progress] = {}
        self._look_ups: dict[int, FetchSchema] = {}  # the newest of each dispatcher
        self._ordered = asyncio.Event()
        self._hurried = asyncio.Event()
        self._stopped = False
        self._survey_ordered = asyncio.Event()
        self._surveys_begun = 0
        self._surveyed: ServerView | BinlogError | None = None  # the newest answer
        self._surveying = asyncio.Lock()
        self.waiters = Waiters()
        self.tables = TableLookups()
        self._sought_files: list[str] = []  # whose creation times readers that seek wait for

    def start(self) -> None:
        label = self.client.label
        self._tasks.start(f"clock {label}", self._tick())
        self._tasks.start(f"look-ups {label}", self._look_up())
        self._tasks.start(f"survey {label}", self._survey_now_and_then())
        self._execute(self.client.start())

    async def stop(self) -> None:
        """End all connections, then store what waits for it. Raises BinlogError."""
        self._stopped = True
        await self._tasks.cancel_all()
        await self.flush()

    # -- the rules -------------------------------------------------------------------------------------------

    def step(self, what: Input) -> None:
        """Raises BinlogError for what a reader asked for and that is refused."""
        if not self._stopped:
            self._execute(self.client.step(what, time.monotonic()))
            self.waiters.changed()

    def _execute(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake():
                    self.wake(effect.consumer)
                case Store():
                    self._store_progress(effect)
                case Note():
                    self._note(effect.level, effect.event, effect.fields)
                case StoreVersions():
                    self._to_store.versions = _both(self._to_store.versions, effect)
                case PollServer():
                    self._survey_ordered.set()
                case FetchSchema():
                    self._look_ups[effect.dispatcher] = effect
                    self._ordered.set()
                case _:
                    self._order(effect)

    def _store_progress(self, effect: Store) -> None:
        """Not under an acknowledgement that is on its way, which the rules do not know of yet; they say it again."""
        coming = self._acknowledging.get(effect.consumer)
        ours = effect.progress.acknowledged
        if coming is None or coming.acknowledged.order <= ours.order:
            self._to_store.progress[effect.consumer] = effect.progress

    def _order(self, effect: Connect | StartDump | Close | Retire | Pause | Resume) -> None:
        """What concerns one dispatcher's connection."""
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
                if effect.elsewhere:
                    self.source.move_on(number)
                self._note("info", "closed", {"dispatcher": number, "reason": effect.reason})
            case Retire():
                self._dispatchers.pop(number).retire()
                self._look_ups.pop(number, None)
                self._note("info", "retired", {"dispatcher": number, "reason": effect.reason})
        # The rules may want to be told the time earlier than they did.
        self._hurried.set()

    def _dispatcher(self, number: int) -> DispatcherRunner:
        known = self._dispatchers.get(number)
        if known is None:
            known = DispatcherRunner(number, self, self._running.get(number))
            self._dispatchers[number] = known
            name = f"dispatcher {number} of {self.client.label}"
            self._running[number] = self._tasks.start(name, known.run())
        return known

    def logged_in(self, view: ServerView, found: Sequence[BinlogError]) -> None:
        self._saw_tip(view)
        for error in found:
            self._note("warning", "server", {"finding": str(error)})

    def _saw_tip(self, view: ServerView) -> None:
        self.tip = make_executed(view.mode, view.executed, view.file, view.offset)
        self.waiters.changed()

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """For a block that reads the source: a defect of ours in it is logged with its traceback and becomes a
        `BinlogError` INTERNAL, which fails this client alone.

        What a source sends may find a defect that tests have not, so it must not stop the other clients. A defect in
        the rules is not caught here: what they hold of this client may be half changed, and only a restart from the
        store makes it whole.
        """
        try:
            yield
        except BinlogError:
            raise
        except Exception as error:
            self._log.log(
                _LEVELS["error"], "defect", client=self.client.label, task=what, exc_info=error
            )
            told = f"{what}: {type(error).__name__}: {error}"
            raise BinlogError(ErrorKind.INTERNAL, told, where=self.client.label) from error

    def _note(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        self._log.log(_LEVELS[level], event, client=self.client.label, **fields)

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Tell the rules the time when they asked for it, and store what need not be stored at once."""
        ticked = time.monotonic()
        while True:
            self._hurried.clear()
            wakeup = self.client.next_wakeup()
            due = ticked + TICK_MAX_S if wakeup is None else min(wakeup, ticked + TICK_MAX_S)
            pause_s = max(due, ticked + TICK_MIN_S) - time.monotonic()
            if pause_s > 0:
                try:
                    async with asyncio.timeout(pause_s):
                        await self._hurried.wait()
                    continue
                except TimeoutError:
                    pass
            ticked = time.monotonic()
            self.step(Tick())
            try:
                await self.flush()
            except BinlogError as error:
                self._note("error", "state not stored", {"error": str(error)})

    async def _look_up(self) -> None:
        """Carry out the look-ups that the rules order, the newest of each dispatcher only."""
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            again = False
            for number in list(self._look_ups):
                # It may have been replaced or taken back while another one was carried out.
                order = self._look_ups.pop(number, None)
                if order is not None:
                    again |= not await self._looked_up(order)
            if again:
                await asyncio.sleep(LOOK_UP_AGAIN_S)
                self._ordered.set()

    async def _looked_up(self, order: FetchSchema) -> bool:
        """Carry one out; False if it has to be asked again."""
        number = order.dispatcher
        dispatcher = self._dispatchers.get(number)
        try:
            with self.guarded("look up"):
                answer = await look_up(self.source.server(), order)
        except BinlogError as error:
            self._note("warning", "not looked up", {"error": str(error)})
            if error.action in (Action.RETRY, Action.OPERATOR):
                if self._dispatchers.get(number) is dispatcher:
                    self._look_ups.setdefault(number, order)
                return False
            answer = not_looked_up(order, error)
        if dispatcher is not None and self._dispatchers.get(number) is dispatcher:
            self.step(answer)
        return True

    async def _survey_now_and_then(self) -> None:
        """And when the rules order it, until they have what they wait for."""
        while True:
            pause_s = SURVEY_AGAIN_S if self.client.awaits_survey else SURVEY_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._survey_ordered.wait()
            self._survey_ordered.clear()
            await self.survey()

    async def survey(self) -> ServerView | BinlogError:
        """Ask the source what it holds; what it said just now, or why it cannot be asked.

        Those who ask while another one is being asked are answered together, by one that begins after they have asked.
        """
        wanted = self._surveys_begun + 1
        async with self._surveying:
            if self._surveys_begun < wanted:
                self._surveys_begun += 1
                self._surveyed = await self._survey()
        assert self._surveyed is not None, "one was made"
        return self._surveyed

    async def _survey(self) -> ServerView | BinlogError:
        try:
            files = {*self.client.files_to_survey(), *self._sought_files}
            places = self.client.places_to_survey()
            ask = partial(self.source.survey, sorted(files), (), places)
            with self.guarded("survey"):
                view, expire_s = await in_thread(f"survey {self.client.label}", ask)
        except BinlogError as error:
            self._note("debug", "not surveyed", {"error": str(error)})
            return error
        self._saw_tip(view)
        self.step(ServerPolled(view, expire_s))
        return view

    # -- readers that seek -----------------------------------------------------------------------------------

    async def find(
        self, consumer: str, position: Position, *, fresh: bool = False
    ) -> SeekRequested:
        """The order to move a consumer to its reader's position, of which the server was just asked.

        Raises BinlogError where the server does not have it (see `seeking.target`) or cannot be asked
        (RANGE_UNAVAILABLE); nothing is changed either way.
        """
        self._sought_files.append(position.file)
        try:
            return await self._find(consumer, position, time.monotonic() + COMMIT_WAIT_S, fresh)
        finally:
            self._sought_files.remove(position.file)

    async def _find(
        self, consumer: str, position: Position, until: float, fresh: bool
    ) -> SeekRequested:
        while True:
            view = await self._view_for(consumer, position)
            try:
                seeking.target(self.client.consumers[consumer], position, view, fresh=fresh)
            except BinlogError:
                late = time.monotonic() >= until
                if late or not seeking.may_be_committing(position, view):
                    raise
            else:
                return SeekRequested(consumer, position, view, fresh)
            await asyncio.sleep(COMMIT_WAIT_S / 5)

    async def _view_for(self, consumer: str, position: Position) -> ServerView:
        view = await self.survey()
        if not isinstance(view, BinlogError):
            starts = seeking.starts(self.client.consumers[consumer], position, view)
            if not starts:
                return view
            ask = partial(self.source.survey, [position.file], starts)
            try:
                with self.guarded("seek"):
                    return (await in_thread(f"seek {consumer}", ask))[0]
            except BinlogError as error:
                view = error
        what = f"the server cannot be asked whether it has the position: {view.kind}: {view.what}"
        raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what, where=view.where, remedy=view.remedy)

    # -- the store -------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Store everything that waits for it by now; raises BinlogError, and it goes on waiting."""
        async with self._storing:
            taken, self._to_store = self._to_store, _ToStore()
            try:
                if taken.versions is not None:
                    await self._store.save_versions(self._key, taken.versions)
                    taken.versions = None
                # Rows of prepared transactions alone can wait for the next progress, if there will be one.
                if taken.progress or (self._stopped and self.client.prepared.changes()):
                    progress = list(taken.progress.items())
                    await self._store.save(progress, self._key, self.client.prepared)
            except BaseException:
                self._to_store.put_back(taken)
                raise

    async def acknowledge(self, consumer: str, position: Position) -> None:
        """Store, then forget, what a reader acknowledged; one call at a time for a consumer.

        Raises BinlogError, UserError for a position that is none.
        """
        progress = self.client.progress_after(consumer, position)
        if progress is None:
            return
        self._to_store.progress[consumer] = self._acknowledging[consumer] = progress
        try:
            await self.flush()
        finally:
            del self._acknowledging[consumer]
        # It may have gone on behind a gap meanwhile.
        if self.client.consumers[consumer].queue.epoch == position.epoch:
            self.step(Acknowledged(consumer, progress.acknowledged, progress.covered))

    async def store(self, consumer: str) -> None:
        """Store where a consumer is now. Raises BinlogError."""
        self._execute([self.client.consumers[consumer].store()])
        await self.flush()

    async def stored(self, consumer: str) -> Progress | BinlogError | None:
        """What is stored of a consumer, when nothing of it waits to be stored; as `StoreThread.load`."""
        while True:
            async with self._storing:  # what is just being stored may be of it
                waits = consumer in self._to_store.progress
            if waits:
                await self.flush()
            progress = await self._store.load(consumer)
            if consumer not in self._to_store.progress:
                return progress

    # -- those who wait --------------------------------------------------------------------------------------

    def wake(self, consumer: str) -> None:
        self.waiters.wake(consumer)

    async def wait(self, consumer: str, timeout_s: float, until: Condition | None = None) -> bool:
        """Until the consumer has something new to tell, or `until` is True; False when the time is over."""
        return await self.waiters.wait(consumer, timeout_s, until)


def _both(older: StoreVersions | None, newer: StoreVersions | None) -> StoreVersions | None:
    """What remains to be stored of two: a mark alone goes with the versions that were to be stored before it."""
    if older is None or newer is None or newer.kept is not None:
        return newer or older
    return StoreVersions(newer.mark, older.kept)
