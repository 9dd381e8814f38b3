"""One dispatcher as it runs: connect, log in, ask for the log, read; again and again, until it is retired.

What the rules order is kept in an `_Attempt`, one for each `Connect`, and carried out by one task, so that there is one
connection at a time whatever is ordered meanwhile. After `Close` nothing of an attempt is stepped, though a login may
still be on its way in its thread: it cannot be called back, so what comes of it is closed, and only then the next
attempt begins. A dispatcher that has the number of a retired one waits for that one's end for the same reason: both
have one identity, and of two duplicates the server kills the older.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dispatcher.binlog.stream.batch import Closed
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.effects import StartDump
from dispatcher.dispatch.events import BatchReceived, Ended, Input, LoggedIn, Lost
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.errors import BinlogError
from dispatcher.runtime.threads import in_thread
from dispatcher.source.protocols import DumpStream, OpenedSource, Source, ViewRequest

JITTER = 0.25


class DispatcherOwner(Protocol):
    """What a dispatcher needs of its client's runner."""

    client: Client
    source: Source
    buffer_bytes: int

    def step(self, event: Input) -> None: ...

    def guarded(self, task: str) -> AbstractContextManager[None]:
        """For a block that reads the source: a defect in it becomes a BinlogError."""

    def logged_in(self, view: ServerView, findings: Sequence[BinlogError]) -> None:
        """A server was reached; `findings`: what is wrong with it."""

    async def flush(self) -> None:
        """Until what is to be stored is. Raises BinlogError."""


@dataclass(slots=True)
class _Attempt:
    """One connection, from the order to make it to its end."""

    after_s: float
    dump: StartDump | None = None
    paused: bool = False
    stream: DumpStream | None = None
    _closed: bool = False

    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nothing of it is stepped from now on."""
        self._closed = True


class DispatcherRunner:
    """See the module. The orders are given within a step, and carried out by the task of `run`."""

    def __init__(
        self, number: int, owner: DispatcherOwner, before: asyncio.Task[None] | None
    ) -> None:
        """`before`: the task of the last one with this number."""
        self.number = number
        self._owner = owner
        self._before = before
        self._attempt: _Attempt | None = None  # the newest
        self._retired = False
        self._changed = asyncio.Event()

    # -- orders ----------------------------------------------------------------------------------------------

    def connect(self, after_s: float) -> None:
        assert self._attempt is None or self._attempt.closed(), (
            "a second connection of one dispatcher"
        )
        self._attempt = _Attempt(after_s)
        self._changed.set()

    def dump(self, order: StartDump) -> None:
        self._open.dump = order
        self._changed.set()

    def pause(self, paused: bool) -> None:
        self._open.paused = paused
        self._changed.set()

    def close(self) -> None:
        """Nothing of the attempt is stepped from now on."""
        attempt = self._attempt
        if attempt is None or attempt.closed():
            return
        attempt.close()
        if attempt.stream:
            attempt.stream.interrupt()
        self._changed.set()

    def retire(self) -> None:
        self._retired = True
        self.close()
        self._changed.set()

    @property
    def _open(self) -> _Attempt:
        assert self._attempt is not None and not self._attempt.closed(), "no connection is open"
        return self._attempt

    # -- the task --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry the orders out until retired."""
        if self._before is not None:
            await asyncio.wait([self._before])
            self._before = None
        while (attempt := await self._next_attempt()) is not None:
            try:
                await self._backoff(attempt)
                await self._connection(attempt)
            except BinlogError as error:
                if not attempt.closed():
                    attempt.close()
                    self._owner.step(Lost(self.number, error))

    async def _next_attempt(self) -> _Attempt | None:
        """Wait until the rules order one; None when they have retired the dispatcher."""
        await self._until(
            lambda: self._retired or (self._attempt is not None and not self._attempt.closed())
        )
        return None if self._retired else self._attempt

    async def _backoff(self, attempt: _Attempt) -> None:
        if attempt.after_s:
            jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
            with suppress(TimeoutError):
                async with asyncio.timeout(attempt.after_s * jitter):
                    await self._until(attempt.closed)

    async def _connection(self, attempt: _Attempt) -> None:
        """Raises BinlogError."""
        if attempt.closed():
            return
        name, client = f"log in {self.number}", self._owner.client
        # What the server says must agree with what was read before it was asked, so that is noted first.
        files, places = client.files_to_probe(self.number), client.places_to_probe(self.number)
        open_ = partial(self._owner.source.open, self.number)
        with self._owner.guarded(name):
            opened = await in_thread(name, open_, lambda opened: opened.close())
        try:
            stream = await self._ask(attempt, opened, name, files, places)
        except BaseException:
            opened.close()
            raise
        if stream is None:
            opened.close()
            return
        attempt.stream = stream
        try:
            await self._read(attempt, stream)
        finally:
            attempt.stream = None
            stream.close()

    async def _ask(
        self,
        attempt: _Attempt,
        opened: OpenedSource,
        name: str,
        files: Sequence[str],
        places: Sequence[tuple[str, int]],
    ) -> DumpStream | None:
        """The log from where the rules say; None when the attempt was closed. Raises BinlogError."""
        if attempt.closed():
            return None
        owner, client = self._owner, self._owner.client
        starts = client.starts_to_find(self.number)
        with owner.guarded(name):
            view = await in_thread(name, partial(opened.view, ViewRequest(files, starts, places)))
        if attempt.closed():
            return None
        owner.logged_in(view, opened.findings)
        owner.step(LoggedIn(self.number, view))
        # Nothing is read before the places that were resolved just now are stored.
        await owner.flush()
        order = await self._dump_order(attempt)
        if order is None:
            return None
        ask = partial(opened.dump, order.mode, order.place, client.routes, owner.buffer_bytes)
        with owner.guarded(name):
            stream = await in_thread(name, ask, lambda stream: stream.close())
        stream.splitter.file = order.place.file
        stream.splitter.prepared = client.prepared
        return stream

    async def _dump_order(self, attempt: _Attempt) -> StartDump | None:
        """None when the attempt is closed instead."""
        await self._until(lambda: attempt.closed() or attempt.dump is not None)
        return None if attempt.closed() else attempt.dump

    async def _read(self, attempt: _Attempt, stream: DumpStream) -> None:
        owner, number, splitter = self._owner, self.number, stream.splitter
        while await self._may_read(attempt):
            with owner.guarded(f"stream {number}"):
                batches = await stream.batches()
            for batch in batches:
                if isinstance(batch, Closed):
                    raise stream.ended(batch)
                if not await self._may_read(attempt):
                    return
                owner.step(BatchReceived(number, batch, splitter.created.get(batch.file, 0)))
            if stream.over:
                self._over(attempt)
                return
            # One turn of the loop per buffer: readers and other dispatchers are served while this one streams.
            await asyncio.sleep(0)

    def _over(self, attempt: _Attempt) -> None:
        if not attempt.closed():
            attempt.close()
            self._owner.step(Ended(self.number))

    async def _may_read(self, attempt: _Attempt) -> bool:
        """Wait while reading is paused; False when the connection is to be closed instead."""
        await self._until(lambda: attempt.closed() or not attempt.paused)
        return not attempt.closed()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
