"""Executes what the rules decide: one `ClientRunner` per connection key, between sockets, store and waiting readers.

No rule is here. Each input (a login, a batch, a fault, an acknowledgement, the clock) goes through `Client.step`, and
the effects are carried out in their order. What blocks (PyMySQL's login, SQLite) runs in threads; everything else runs
on the loop, so the rules never see two things at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

from dispatcher.binlog.batch import Closed
from dispatcher.binlog.prepared import Changes
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.history import Place, make_place
from dispatcher.dispatch.inputs import (
    Acknowledged,
    Arrived,
    Close,
    Connect,
    Dump,
    Effect,
    Ended,
    Input,
    LoggedIn,
    LookUp,
    Lost,
    Note,
    Pause,
    Progress,
    Resume,
    Store,
    StoreVersions,
    Tick,
    Wake,
)
from dispatcher.model.errors import Action, BinlogError, Kind
from dispatcher.model.position import Position
from dispatcher.net.lookups import look_up, not_looked_up
from dispatcher.net.source import Dump as DumpStream
from dispatcher.net.source import Source

TICK_MAX_S = 1.0
LOOK_UP_AGAIN_S = 1.0


class Log(Protocol):
    """As much of structlog's bound logger as is needed."""

    def log(self, level: int, event: str, **fields: Any) -> Any: ...


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Save = Callable[[Sequence[tuple[str, Progress]], Changes | None], None]
SaveVersions = Callable[[StoreVersions], None]


@dataclass(slots=True)
class _Orders:
    """What the rules want of the connection that is open, or to be opened next."""

    connect_after_s: float | None = None
    dump: Dump | None = None
    pause: bool = False
    close: bool = False

    @property
    def settled(self) -> bool:
        return self.close or not self.pause


class ClientRunner:
    """One client, its connection, and those who wait for its consumers."""

    def __init__(
        self,
        client: Client,
        source: Source,
        *,
        save: Save,
        save_versions: SaveVersions,
        store_thread: Executor,
        log: Log,
        buffer_bytes: int,
    ) -> None:
        """`save` and `save_versions` make durable and block; they are called in `store_thread` only, in order."""
        self.client = client
        self.source = source
        self.tip: Place | None = None  # the source's end of log, as last heard
        self._save = save
        self._save_versions = save_versions
        self._store_thread = store_thread
        self._log = log
        self._buffer_bytes = buffer_bytes
        self._orders = _Orders()
        self._stream: DumpStream | None = None
        self._changed = asyncio.Event()  # a connection is wanted, or one is resumed or closed
        self._to_store: dict[str, Progress] = {}
        self._versions_to_store: StoreVersions | None = None
        self._look_ups: asyncio.Queue[LookUp] = asyncio.Queue()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {
            name: set() for name in client.consumers
        }

    # -- tasks -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the client connected until cancelled."""
        self._execute(self.client.start())
        try:
            while True:
                after_s = await self._order_to_connect()
                if after_s:
                    await asyncio.sleep(after_s * random.uniform(0.75, 1.25))  # noqa: S311
                try:
                    await self._connection()
                except BinlogError as error:
                    self.step(Lost(error))
        finally:
            if self._stream:
                self._stream.close()

    async def tick(self) -> None:
        """Tell the rules the time when they asked for it, and store what need not be stored at once."""
        while True:
            wakeup = self.client.next_wakeup()
            pause_s = (
                TICK_MAX_S
                if wakeup is None
                else min(max(wakeup - time.monotonic(), 0.0), TICK_MAX_S)
            )
            await asyncio.sleep(max(pause_s, 0.02))
            self.step(Tick())
            try:
                await self.flush()
            except BinlogError as error:
                self._execute([Note("error", "state not stored", {"error": str(error)})])

    async def look_up(self) -> None:
        """Carry out the look-ups that the rules order, the newest first and only, until cancelled."""
        while True:
            order = await self._look_ups.get()
            while not self._look_ups.empty():
                order = self._look_ups.get_nowait()
            try:
                answer = await look_up(self.source.server(), order)
            except BinlogError as error:
                self._note("warning", "not looked up", {"error": str(error)})
                if error.action in (Action.RETRY, Action.OPERATOR):
                    await asyncio.sleep(LOOK_UP_AGAIN_S)
                    if self._look_ups.empty():
                        self._look_ups.put_nowait(order)
                    continue
                answer = not_looked_up(order, error)
            self.step(answer)

    async def flush(self) -> None:
        """Store what is waiting to be stored."""
        if self._versions_to_store is not None:
            versions, self._versions_to_store = self._versions_to_store, None
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._store_thread, self._save_versions, versions)
            except BinlogError:
                self._versions_to_store = _both(versions, self._versions_to_store)
                raise
        while self._to_store:
            progress, self._to_store = list(self._to_store.items()), {}
            try:
                await self.store(progress)
            except BinlogError:
                self._to_store = {**dict(progress), **self._to_store}
                raise

    async def acknowledge(self, consumer: str, position: Position) -> None:
        """Store, then forget, what a reader acknowledged. Raises BinlogError, UserError for a position that is none."""
        progress = self.client.progress_after(consumer, position)
        if progress is None:
            return
        await self.store([(consumer, progress)])
        # Progress that could not be stored earlier must not be stored over this.
        self._to_store.pop(consumer, None)
        self.step(Acknowledged(consumer, position, progress.covered))

    async def store(self, progress: Sequence[tuple[str, Progress]]) -> None:
        """Make progress durable, and the prepared transactions that it may lead past; raises BinlogError."""
        loop = asyncio.get_running_loop()
        changes = self.client.prepared.changes()
        await loop.run_in_executor(self._store_thread, self._save, progress, changes)
        if changes:
            self.client.prepared.stored(changes)

    # -- the connection --------------------------------------------------------------------------------------

    async def _connection(self) -> None:
        orders = self._orders = _Orders()
        logged_in = await asyncio.to_thread(self.source.open, 1)
        try:
            view = await asyncio.to_thread(logged_in.view, self.client.files_to_probe())
            self.tip = make_place(view.mode, view.executed, view.file, view.offset)
            self._warn(logged_in.found)
            self.step(LoggedIn(view))
            # Nothing is read before the places that were resolved just now are stored.
            await self.flush()
            dump = orders.dump
            if dump is None or orders.close:
                logged_in.close()
                return
            stream = self._stream = await asyncio.to_thread(
                logged_in.dump, dump.mode, dump.place, self.client.routes, self._buffer_bytes
            )
        except BaseException:
            logged_in.close()
            raise
        try:
            await self._read(stream, dump.place.file, orders)
        finally:
            self._stream = None
            stream.close()

    async def _read(self, stream: DumpStream, file: str, orders: _Orders) -> None:
        stream.splitter.file = file
        stream.splitter.prepared = self.client.prepared
        while not orders.close:
            for batch in await stream.batches():
                if isinstance(batch, Closed):
                    raise stream.ended(batch)
                if not await self._may_read(orders):
                    return
                self.step(Arrived(batch, stream.splitter.created.get(batch.file, 0)))
            if stream.over:
                self.step(Ended())
                return
            # One turn of the loop per buffer: readers are served while the log streams.
            await asyncio.sleep(0)

    def _warn(self, found: Sequence[BinlogError]) -> None:
        for error in found:
            self._execute([Note("warning", "server", {"finding": str(error)})])

    # -- the rules -------------------------------------------------------------------------------------------

    def step(self, what: Input) -> None:
        self._execute(self.client.step(what, time.monotonic()))

    def _execute(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake():
                    self.wake(effect.consumer)
                case Store():
                    self._to_store[effect.consumer] = effect.progress
                case StoreVersions():
                    self._versions_to_store = _both(self._versions_to_store, effect)
                case LookUp():
                    self._look_ups.put_nowait(effect)
                case Pause() | Resume():
                    self._orders.pause = isinstance(effect, Pause)
                    self._changed.set()
                case Connect():
                    self._orders.connect_after_s = effect.after_s
                    self._changed.set()
                case Dump():
                    self._orders.dump = effect
                case Close():
                    self._orders.close = True
                    if self._stream:
                        self._stream.interrupt()
                    self._changed.set()
                    self._note("info", "closed", {"reason": effect.reason})
                case Note():
                    self._note(effect.level, effect.event, effect.fields)

    def _note(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        self._log.log(_LEVELS[level], event, client=self.client.label, **fields)

    async def _order_to_connect(self) -> float:
        await self._until(lambda: self._orders.connect_after_s is not None)
        return self._orders.connect_after_s or 0.0

    async def _may_read(self, orders: _Orders) -> bool:
        """Wait while reading is paused; False when the connection is to be closed instead."""
        await self._until(lambda: orders.settled)
        return not orders.close

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # -- those who wait --------------------------------------------------------------------------------------

    def wake(self, consumer: str) -> None:
        for waiting in self._waiting[consumer]:
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, consumer: str, timeout_s: float) -> bool:
        """Until the consumer has something new to tell; False when the time is over."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[consumer].add(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._waiting[consumer].discard(waiting)
        return True

    async def ask_tip(self) -> Place | None:
        """The source's end of log just now; the last one heard of where it cannot be asked."""
        try:
            view, _ = await asyncio.to_thread(self.source.survey)
            self.tip = make_place(view.mode, view.executed, view.file, view.offset)
        except BinlogError as error:
            if error.kind is Kind.INTERNAL:
                raise
        return self.tip


def _both(older: StoreVersions | None, newer: StoreVersions | None) -> StoreVersions | None:
    """What remains to be stored of two: a mark alone goes with the versions that were to be stored before it."""
    if older is None or newer is None or newer.kept is not None:
        return newer or older
    return StoreVersions(newer.mark, older.kept)
