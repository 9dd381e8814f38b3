"""The sources of the command `read`: a consumer of a running daemon, or a server or a folder of files, which the
program reads itself.

A source returns whole transactions. It acknowledges a range only after `acknowledge`, so a range whose lines were not
written is returned again by the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple, Protocol

from dispatcher.library.binlogs import Binlog
from dispatcher.library.transactions import joined
from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.terminal.output import say_progress

RANGE_BYTES = 8 << 20
WAIT_S = 20.0
RETRY_MAX_S = 10.0


class ReadRange(NamedTuple):
    """`data`: a delivered binlog, b"" without transactions; `at_end`: True if everything was returned that the log
    held when the source first knew its end."""

    data: bytes
    at_end: bool


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
    source repeats a call that failed for a reason that passes (the daemon restarts, another daemon takes over).
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
        self._target: tuple[int, int] | None = None

    async def open(self) -> None:
        """Open a reading session. Raises `BinlogError`."""
        after = None
        if self._start is not None:
            answer = await _in_thread(self._call, "resolve", {"to": self._start})
            after = answer["position"]
        body = {"after": after, "read_only": not self._acknowledges}
        answer = await _in_thread(self._call, "session", body)
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
        answer, data = await self._repeated("read", body)
        if answer["gap"]:
            say_progress("the server has purged changes that were not read; continuing after them")
        self._end = answer["end"]
        end = Position.from_dict(answer["end"]).order
        if self._target is None and answer["lag_bytes"] is not None:
            self._target = Position.from_dict(answer["head"]).order
        at_end = self._target is not None and end >= self._target
        return ReadRange(data if answer["transactions"] else b"", at_end)

    async def acknowledge(self) -> None:
        self._after = self._end

    async def close(self) -> None:
        """Store the last acknowledgement; the other ones are part of the next `read`."""
        if self._acknowledges and self._after is not None:
            body = {"session": self._session, "position": self._after}
            await _in_thread(self._call, "ack", body)

    async def _repeated(self, call: str, body: dict[str, Any]) -> Any:
        pause_s = 1.0
        while True:
            try:
                return await _in_thread(self._call, call, body)
            except BinlogError as error:
                if not _passes(error):
                    raise
                say_progress(f"waiting {pause_s:g} s: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)


async def _in_thread(call: Call, operation: str, body: dict[str, Any]) -> Any:
    """Returns what the call returns. The program can end while the call waits for transactions: unlike with
    `asyncio.to_thread`, its thread is not awaited then."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        result, fault = None, None
        try:
            result = call(operation, body)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            fault = error
        with suppress(RuntimeError):  # the loop is closed: the program ends
            loop.call_soon_threadsafe(settle, result, fault)

    Thread(target=run, daemon=True).start()
    return await answer


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
        self._target: tuple[int, int] | None = None

    async def read(self) -> ReadRange:
        transactions = await self._binlog.read(max_bytes=RANGE_BYTES, wait_s=self._wait_s)
        if self._target is None and self._binlog.lag_bytes is not None:
            self._target = self._binlog.head.order
        reached = self._target is not None and self._binlog.position.order >= self._target
        at_end = self._binlog.ended or reached
        data = await asyncio.to_thread(joined, transactions) if transactions else b""
        return ReadRange(data, at_end)

    async def acknowledge(self) -> None:
        if self._acknowledges:
            await self._binlog.acknowledge()
