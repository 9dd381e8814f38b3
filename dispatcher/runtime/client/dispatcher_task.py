"""One dispatcher's task: connect, log in, request the dump and read, again and again until the rules retire the
dispatcher.

Each order `Connect` of the rules creates an `_Attempt`, which records the further orders for this connection. One task
executes the orders, so a dispatcher has only one connection at a time, even if the rules order the next connection
early. After `Close` the rules get no more events of that attempt. A login that runs in its thread cannot be cancelled:
the task waits until the login has ended, closes the connection, and only then begins the next attempt. A new dispatcher
may have the number of a retired dispatcher, and then both log in with the same identity. If two replicas log in with
one identity, the server ends the dump of the first. So the new dispatcher waits until the task of the retired
dispatcher has ended.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.effects import StartDump
from dispatcher.dispatch.messages.events import BatchReceived, Ended, Input, LoggedIn, Lost
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError
from dispatcher.model.timings import ConnectionTimings
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.source.protocols import DumpStream, OpenedSource, Source, ViewRequest
from dispatcher.stream.batch import Closed

JITTER = 0.25


KernelsLoaded = Callable[[], Awaitable[None]]
"""Waits until the kernels are loaded. Without them, the first batch would compile them on the loop."""


class DispatcherOwner(Protocol):
    """The part of `ClientRunner` that a dispatcher uses."""

    client: Client
    source: Source
    buffer_bytes: int
    timings: ConnectionTimings
    kernels_loaded: KernelsLoaded

    def step(self, event: Input) -> None: ...

    def guarded(self, task: str) -> AbstractContextManager[None]:
        """Return a context for a block that reads the source: the context turns an unexpected exception into a
        BinlogError."""

    def logged_in(self, view: ServerView, findings: Sequence[BinlogError]) -> None:
        """Record that a login has reached a server. `findings`: what is wrong with the server."""

    async def flush(self) -> None:
        """Store everything that the store queue contains now. Raises BinlogError."""


@dataclass(slots=True)
class _Attempt:
    """One connection, from the order `Connect` until the connection is closed."""

    after_s: float
    dump: StartDump | None = None
    paused: bool = False
    stream: DumpStream | None = None
    _closed: bool = False

    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Mark the attempt as closed. From then on the rules get no events of this attempt."""
        self._closed = True


class DispatcherRunner:
    """See the module. A step of the rules only records its orders here; the task of `run` executes the orders."""

    def __init__(
        self, number: int, owner: DispatcherOwner, before: asyncio.Task[None] | None
    ) -> None:
        """`before`: the task of the previous dispatcher with this number, None if there was none."""
        self.number = number
        self._owner = owner
        self._before = before
        self._attempt: _Attempt | None = None  # the newest attempt
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
        """Close the open attempt, if there is one. After that, the rules get no events of this attempt."""
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
    def format(self) -> FormatDescription | None:
        """The FORMAT_DESCRIPTION that the source has sent last over the present connection."""
        stream = self._attempt.stream if self._attempt else None
        return stream.splitter.format if stream else None

    @property
    def dumps(self) -> bool:
        """True while a dump is requested and open. Before the request, the first positions of consumers may not be
        stored yet."""
        return self._attempt is not None and self._attempt.stream is not None

    @property
    def _open(self) -> _Attempt:
        assert self._attempt is not None and not self._attempt.closed(), "no connection is open"
        return self._attempt

    async def run(self) -> None:
        """Execute the orders until the rules retire the dispatcher."""
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
                    self._owner.timings.faults[error.kind.name] += 1
                    self._owner.step(Lost(self.number, error))

    async def _next_attempt(self) -> _Attempt | None:
        """Wait for a `Connect`. Returns None when the dispatcher is retired."""
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
        """Log in, request the dump and read it until the attempt is closed. Raises BinlogError."""
        if attempt.closed():
            return
        name, client = f"log in {self.number}", self._owner.client
        # Ask the rules what to probe before the login, because the rules compare the server's answer with the positions
        # that the consumers had before the login.
        files, places = client.files_to_probe(self.number), client.offsets_to_probe(self.number)
        open_ = partial(self._owner.source.open, self.number)
        with self._owner.guarded(name):
            opened = await in_thread(name, open_, lambda opened: opened.close())
        try:
            await self._owner.kernels_loaded()
            stream = await self._request_dump(attempt, opened, name, files, places)
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

    async def _request_dump(
        self,
        attempt: _Attempt,
        opened: OpenedSource,
        name: str,
        files: Sequence[str],
        places: Sequence[tuple[str, int]],
    ) -> DumpStream | None:
        """Request the dump that the rules order. Returns None if the attempt was closed. Raises BinlogError."""
        if attempt.closed():
            return None
        owner, client = self._owner, self._owner.client
        starts = client.starts_to_search(self.number)
        with owner.guarded(name):
            view = await in_thread(name, partial(opened.view, ViewRequest(files, starts, places)))
        if attempt.closed():
            return None
        owner.timings.logins += 1
        owner.logged_in(view, opened.findings)
        owner.step(LoggedIn(self.number, view))
        # Before the first read, store the positions that the rules have just resolved.
        await owner.flush()
        order = await self._dump_order(attempt)
        if order is None:
            return None
        ask = partial(opened.dump, order.mode, order.executed, client.routes, owner.buffer_bytes)
        with owner.guarded(name):
            stream = await in_thread(name, ask, lambda stream: stream.close())
        stream.splitter.file = order.executed.file
        stream.splitter.prepared = client.prepared
        return stream

    async def _dump_order(self, attempt: _Attempt) -> StartDump | None:
        """Wait for a `StartDump`. Returns None if the attempt is closed instead."""
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
            if batches:
                owner.timings.flush.add(time.monotonic() - stream.received_at)
            if stream.over:
                if not attempt.closed():
                    attempt.close()
                    owner.step(Ended(number))
                return
            # Let the loop run other tasks after each buffer, so that readers and other dispatchers do not wait for this
            # dispatcher.
            await asyncio.sleep(0)

    async def _may_read(self, attempt: _Attempt) -> bool:
        """Wait while the rules pause reading. Returns False if the attempt is closed."""
        await self._until(lambda: attempt.closed() or not attempt.paused)
        return not attempt.closed()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
