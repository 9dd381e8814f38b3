"""Limits the look-ups that readers and the front ask for, and that the daemon makes on the server. A client uses at
most `CONNECTIONS_MAX` connections at a time for these look-ups. It uses no connection if it can reuse a recent answer.

An answer about a consumer's table, or to a statement, is reused only if nothing was put into the asking consumer's
queue since the look-up began. So a reader that has seen an ALTER TABLE never gets the columns from before the ALTER
TABLE.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.runtime.loop.threads import in_thread

CONNECTIONS_MAX = 2  # per client
WAITING_MAX = 64  # look-ups per client that wait for a connection
KEEP_S = 2.0
KEPT_MAX = 256

T = TypeVar("T")
Version = tuple[int, int]
"""Epoch and seq of the end of the asking consumer's queue."""


@dataclass(frozen=True, slots=True)
class _LookUp:
    version: Version
    answer: asyncio.Future[Any]
    expires_at: float  # s of a monotonic clock


class LookUps:
    """The look-ups of one client, of all kinds. The keys of different kinds must differ."""

    def __init__(self) -> None:
        self._connections = asyncio.Semaphore(CONNECTIONS_MAX)
        self._waiting = 0
        self._kept: dict[tuple[str, ...], _LookUp] = {}

    async def ask(self, key: tuple[str, ...], version: Version, look_up: Callable[[], T]) -> T:
        """Call `look_up` in a thread and return its answer, or the answer of a recent call with equal `key` and
        `version`.

        Raises BinlogError as `look_up` does, and UserError (TOO_MANY_REQUESTS) if too many calls wait already.
        """
        kept = self._kept.get(key)
        if kept is not None and kept.version == version and time.monotonic() < kept.expires_at:
            recent: T = await asyncio.shield(kept.answer)
            return recent
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # The entry does not expire before its look-up is answered.
        self._keep(key, _LookUp(version, answer, float("inf")))
        try:
            result = await self.ask_now(look_up)
        except BaseException as error:
            self._kept.pop(key, None)
            cancelled = BinlogError(
                ErrorKind.RANGE_UNAVAILABLE, "the look-up was cancelled; ask again"
            )
            answer.set_exception(error if isinstance(error, BinlogError) else cancelled)
            answer.exception()  # asyncio would log an exception that no call has retrieved
            raise
        answer.set_result(result)
        self._keep(key, _LookUp(version, answer, time.monotonic() + KEEP_S))
        return result

    def _keep(self, key: tuple[str, ...], entry: _LookUp) -> None:
        now = time.monotonic()
        if len(self._kept) >= KEPT_MAX:
            self._kept = {k: kept for k, kept in self._kept.items() if kept.expires_at > now}
        self._kept[key] = entry

    async def ask_now(self, look_up: Callable[[], T]) -> T:
        """Call `look_up` in a thread and return its answer. Raises as `ask` does."""
        if self._waiting >= WAITING_MAX:
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{self._waiting} look-ups of tables already wait for the server",
            )
        self._waiting += 1
        try:
            await self._connections.acquire()
        finally:
            self._waiting -= 1
        try:
            return await in_thread("table", look_up)
        finally:
            self._connections.release()
