"""The sources of the command `read`: a consumer of a running daemon, or a server or a folder of files, which the
program reads itself.

A source returns whole transactions. It acknowledges a range only after `acknowledge`, so a range whose lines were not
written is returned again by the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from dispatcher.library.binlogs import Binlog
from dispatcher.library.transactions import joined
from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.runtime.consumer_sessions import NOT_REACHED
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.terminal.output import say_progress

RANGE_BYTES = 8 << 20
WAIT_S = 20.0
RETRY_MAX_S = 10.0


class ReadRange(NamedTuple):
    """`data`: a delivered binlog, b"" without transactions; `end`: the end of the range; `head`: the end of the log,
    None if it is not known; `ended`: True if no range can follow."""

    data: bytes
    end: tuple[int, int]
    head: tuple[int, int] | None
    ended: bool = False


class ChangeSource(Protocol):
    lower_case_table_names: int
    """The server's setting, by which names of tables are compared; 0 if it is not known."""

    async def read(self) -> ReadRange:
        """Wait for transactions, at most some seconds, and return them. Raises `BinlogError`."""

    async def acknowledge(self) -> None:
        """Acknowledge everything that was returned. Raises `BinlogError`."""


Call = Callable[[str, dict[str, Any]], Any]
"""Sends a call to the consumer (`session`, `read`, `ack`, `resolve`) and returns the answer; for `read` the answer and
the bytes. Blocks. Raises `BinlogError`."""


class DaemonConsumer:
    """A consumer of a running daemon.

    `acknowledges`: False to read without acknowledging, beside the consumer's own reader. After the first answer, the
    source repeats a call that failed for a temporary reason (the daemon restarts, another daemon takes over). It also
    waits for a daemon that has not reached the server yet.
    """

    def __init__(
        self, call: Call, *, acknowledges: bool, start: str | dict[str, Any] | None, wait_s: float
    ) -> None:
        self._call = call
        self._acknowledges = acknowledges
        self._start = start
        self._wait_ms = int(wait_s * 1000)
        self.lower_case_table_names = 0
        self._session = 0
        self._after: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None

    async def open(self) -> None:
        """Open a reading session. Raises `BinlogError`."""
        after = None
        if self._start is not None:
            answer = await self._repeated("resolve", {"to": self._start}, _is_early)
            after = answer["position"]
        body = {"after": after, "read_only": not self._acknowledges}
        answer = await self._repeated("session", body, _is_early)
        self._session, self._after = answer["session"], answer["position"]
        self._end = self._after
        self.lower_case_table_names = answer["lower_case_table_names"] or 0

    async def read(self) -> ReadRange:
        body = {
            "session": self._session,
            "after": self._after,
            "wait_ms": self._wait_ms,
            "max_bytes": RANGE_BYTES,
        }
        answer, data = await self._repeated("read", body, _passes)
        if answer["gap"]:
            say_progress("the server has purged changes that were not read; continuing after them")
        self._end = answer["end"]
        head = None if answer["lag_bytes"] is None else Position.from_dict(answer["head"]).order
        end = Position.from_dict(answer["end"]).order
        return ReadRange(data if answer["transactions"] else b"", end, head)

    async def acknowledge(self) -> None:
        self._after = self._end

    async def close(self) -> None:
        """Send the last acknowledgement. Each earlier acknowledgement was sent by the next call of `read`."""
        if self._acknowledges and self._after is not None:
            body = {"session": self._session, "position": self._after}
            await self._answer("ack", body)

    async def _answer(self, operation: str, body: dict[str, Any]) -> Any:
        return await in_thread(operation, partial(self._call, operation, body))

    async def _repeated(
        self, call: str, body: dict[str, Any], passes: Callable[[BinlogError], bool]
    ) -> Any:
        pause_s = 1.0
        while True:
            try:
                return await self._answer(call, body)
            except BinlogError as error:
                if not passes(error):
                    raise
                say_progress(f"waiting {pause_s:g} s: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)


def _is_early(error: BinlogError) -> bool:
    """True if the daemon compiles kernels, or connects to the server for the first time."""
    return error.kind is ErrorKind.RANGE_UNAVAILABLE and NOT_REACHED in error.what


def _passes(error: BinlogError) -> bool:
    kinds = (ErrorKind.NOT_LEADER, ErrorKind.TOO_MANY_REQUESTS, ErrorKind.STATE_STORE)
    if error.kind in kinds:
        return True
    return POLICY[error.kind].action is Action.RETRY and not isinstance(error, UserError)


class LibraryBinlog:
    """A server or a folder of files, read by the program itself. `acknowledges`: True if the client has a state."""

    lower_case_table_names = 0  # the client itself selects the tables

    def __init__(self, binlog: Binlog, *, acknowledges: bool, wait_s: float) -> None:
        self._binlog = binlog
        self._acknowledges = acknowledges
        self._wait_s = wait_s

    async def read(self) -> ReadRange:
        binlog = self._binlog
        transactions = await binlog.read(max_bytes=RANGE_BYTES, wait_s=self._wait_s)
        head = None if binlog.lag_bytes is None else binlog.head.order
        end, ended = binlog.position.order, binlog.ended
        data = await asyncio.to_thread(joined, transactions) if transactions else b""
        return ReadRange(data, end, head, ended)

    async def acknowledge(self) -> None:
        if self._acknowledges:
            await self._binlog.acknowledge()
