"""The state store for the event loop: one thread makes all calls, in their order.

`fault` is the error of the newest write that failed; None after a later write has succeeded. `timings` measures
commits, and counts waiting calls and errors.

Once a minute, when no call waits, the thread moves what was stored from SQLite's write-ahead log into the database
file. If the write-ahead log is damaged or removed, at most the positions of one minute are lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar
from uuid import UUID

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.model.timings import StoreTimings
from dispatcher.stream.xa_store import BYTES_MAX, XaChanges, XaEntry, XaStore

CHECKPOINT_EVERY_S = 60.0
_RETRY_S = 5.0  # the wait after a checkpoint that failed
_VERSIONS = "save_versions"

T = TypeVar("T")
_Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class StoreProtocol(Protocol):
    """A state store. Every method waits for the disk and raises BinlogError (STATE_STORE)."""

    @property
    def installation_id(self) -> UUID: ...

    @property
    def epoch(self) -> int:
        """The epoch in which consumers without stored progress begin."""

    def load(self, consumer: str) -> Progress | None: ...

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str,
        prepared: XaChanges | None,
    ) -> None: ...

    def load_prepared(self, client: str) -> list[XaEntry]: ...

    def load_versions(self, client: str) -> StoredVersions | None: ...

    def save_versions(self, client: str, versions: StoreVersions) -> None: ...

    def session(self, consumer: str) -> int: ...

    def next_session(self, consumer: str) -> int: ...

    def paused(self, consumer: str) -> bool: ...

    def set_paused(self, consumer: str, paused: bool) -> None: ...

    def forget(self, consumer: str) -> None: ...

    def check(self) -> None:
        """Raises BinlogError if the store's file was deleted or replaced."""

    def checkpoint(self) -> None:
        """Move what was stored from the write-ahead log into the file."""


@dataclass(frozen=True, slots=True)
class StoredConsumer:
    """What is stored of one consumer. `session`: the number of the newest session, 0 if there was none; `progress`:
    None if no progress is stored, a BinlogError (STORED_POSITION) if the progress cannot be read."""

    session: int
    progress: Progress | BinlogError | None
    paused: bool


class StoreThread:
    """See the module. Every method raises BinlogError (STATE_STORE)."""

    def __init__(
        self,
        state: StoreProtocol,
        prepared_bytes_max: int = BYTES_MAX,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
        *,
        timings: StoreTimings | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepared_bytes_max`: the limit of the rows of prepared transactions, for each client; `on_refused` is called
        if this daemon may not write into the store, because another daemon leads."""
        self.fault: BinlogError | None = None
        self._fault_of = ""  # the name of the write that had the fault
        self.misplaced: BinlogError | None = None
        self.not_checkpointed: BinlogError | None = None
        self._checkpoint_every_s = checkpoint_every_s
        self.timings = timings or StoreTimings()
        self._on_refused = on_refused
        self._refusal: Callable[[], BinlogError] | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self.installation_id = state.installation_id
        self._state = state
        self._prepared_bytes_max = prepared_bytes_max
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    async def load(self, consumer: str) -> Progress | BinlogError | None:
        """Return the stored progress of a consumer, None if there is none, or the error STORED_POSITION if only that
        consumer's row is unreadable."""
        return await self.call(lambda: self._progress(consumer))

    async def save(
        self, progress: Sequence[tuple[str, Progress]], client: str, prepared: XaStore
    ) -> None:
        """Store progress, and in the same transaction the client's changed rows of prepared transactions."""
        rows = [(name, p.acknowledged, p.covered, p.created) for name, p in progress]
        changes = prepared.changes()
        began = time.monotonic()
        await self.write("save", lambda: self._state.save(rows, client, changes))
        self.timings.commits.add(time.monotonic() - began)
        if changes:
            prepared.stored(changes)

    async def load_prepared(self, client: str) -> XaStore:
        stored = await self.call(lambda: self._state.load_prepared(client))
        return XaStore(self._prepared_bytes_max, stored)

    async def load_versions(self, client: str) -> StoredVersions | None:
        return await self.call(lambda: self._state.load_versions(client))

    async def save_versions(self, client: str, versions: StoreVersions) -> None:
        await self.write(_VERSIONS, lambda: self._state.save_versions(client, versions))

    async def load_all(self, consumers: Sequence[str]) -> dict[str, StoredConsumer]:
        """Return what is stored of each consumer, with one call in the thread."""

        def load() -> dict[str, StoredConsumer]:
            return {name: self._load_one(name) for name in consumers}

        return await self.call(load)

    def _load_one(self, consumer: str) -> StoredConsumer:
        state = self._state
        return StoredConsumer(
            state.session(consumer), self._progress(consumer), state.paused(consumer)
        )

    def _progress(self, consumer: str) -> Progress | BinlogError | None:
        try:
            return self._state.load(consumer)
        except BinlogError as error:
            if error.kind is not ErrorKind.STORED_POSITION:
                raise
            return error

    async def session(self, consumer: str) -> int:
        return await self.call(lambda: self._state.session(consumer))

    async def next_session(self, consumer: str) -> int:
        return await self.write("next_session", lambda: self._state.next_session(consumer))

    async def paused(self, consumer: str) -> bool:
        return await self.call(lambda: self._state.paused(consumer))

    async def set_paused(self, consumer: str, paused: bool) -> None:
        await self.write("set_paused", lambda: self._state.set_paused(consumer, paused))

    async def forget(self, consumer: str) -> None:
        """Remove what is stored of a consumer that does not run."""
        await self.write("forget", lambda: self._state.forget(consumer))

    async def check(self) -> None:
        """Set `misplaced` to the error if the store's file was deleted or replaced, else to None."""
        try:
            await self.call(self._state.check)
        except BinlogError as error:
            self.misplaced = error
        else:
            self.misplaced = None

    @property
    def faults(self) -> tuple[BinlogError, ...]:
        """Why nothing can be stored; () if no reason is known."""
        faults = self.misplaced, self.fault, self.not_checkpointed
        by_text = {str(fault): fault for fault in faults if fault}
        return tuple(by_text.values())

    def new_epoch(self) -> int:
        """Returns the epoch in which consumers without stored progress begin."""
        return self._state.epoch

    async def close(self, last: Callable[[], None] = lambda: None) -> None:
        """Wait until all calls are done, make the call `last`, and end the thread."""
        try:
            await self.call(last)
        finally:
            self._calls.put(None)
        self._thread.join()

    def abandon(self, refusal: Callable[[], BinlogError], close: Callable[[], None]) -> None:
        """Fail all waiting and all later calls with errors that `refusal` makes. Does not wait: a call that the thread
        is making may take long. After that call the thread calls `close` and ends."""
        self._refusal = refusal
        for outcome in self._waiting:
            if not outcome.done():
                outcome.set_exception(refusal())
        self._calls.put((close, asyncio.get_running_loop().create_future()))
        self._calls.put(None)

    async def write(self, name: str, call: Callable[[], T]) -> T:
        """Make a call that writes into the store. Its error becomes the `fault`. `name`: the name of the store's
        method."""
        try:
            result = await self.call(call)
        except BinlogError as error:
            self.fault, self._fault_of = error, name
            raise
        # In a database, `save_versions` may succeed without a write: it stores a position with the next write. So its
        # success clears only a fault of `save_versions` itself.
        if name != _VERSIONS or self._fault_of == name:
            self.fault = None
        return result

    async def call(self, call: Callable[[], T]) -> T:
        """Make a call of the store in the thread, after the calls that already wait."""
        self.timings.waiting += 1
        try:
            return await self._in_thread(call)
        except BinlogError as error:
            # STORED_POSITION is not an error of the store: only one consumer's row cannot be read.
            self.timings.errors += error.kind is ErrorKind.STATE_STORE
            if error.kind is ErrorKind.NOT_LEADER and self._refusal is None:
                self._on_refused()
            raise
        finally:
            self.timings.waiting -= 1

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Does what `run_in_executor` does, but without the second future and the locks of an executor, which cost more
        than a small call."""
        if self._refusal is not None:
            raise self._refusal()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        self._calls.put((call, outcome))
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    def _run(self) -> None:
        """Runs in the thread: make one call after the other, until None comes."""
        due = time.monotonic() + self._checkpoint_every_s
        while True:
            try:
                waiting = self._calls.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                due = time.monotonic() + self._checkpoint()
                continue
            if waiting is None:
                return
            _make(*waiting)

    def _checkpoint(self) -> float:
        """Make a checkpoint. Returns the seconds until the next checkpoint."""
        try:
            self._state.checkpoint()
        except BinlogError as error:
            self.not_checkpointed = error
            return min(_RETRY_S, self._checkpoint_every_s)
        self.not_checkpointed = None
        return self._checkpoint_every_s


def _make(call: Callable[[], Any], outcome: asyncio.Future[Any]) -> None:
    """Make a call in the thread, unless its caller no longer waits, and pass its outcome to the loop."""
    if outcome.done():
        return
    result, error = None, None
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001 - the caller gets it
        error = raised
    with suppress(RuntimeError):  # the loop has ended
        outcome.get_loop().call_soon_threadsafe(_settle, outcome, result, error)


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():  # the caller no longer waits
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
