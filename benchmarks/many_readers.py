"""Readers of very many consumers, in one process. Each reader has a connection of its own.

In a lap, each reader makes one call. The calls of a lap are made all at the same time, or at a given rate.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Self

from benchmarks.cycle import Connection, parse_read
from tests.daemon.harness import Json

_CALLERS = 16  # the number of threads that make the calls of a lap at a rate
_WAIT_MS = 10_000


class ManyReaders:
    """`with ManyReaders(port, names) as readers:` opens a session for each consumer."""

    def __init__(self, port: int, names: Sequence[str]) -> None:
        self._port = port
        self._names = names
        self._connections: list[Connection] = []
        self._sessions: list[int] = []
        self._positions: list[Json] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name in self._names:
                connection = stack.enter_context(closing(Connection(self._port, name)))
                self._connections.append(connection)
            opened = list(map(json.loads, self._at_once("session", lambda _: {"after": None})))
            self._sessions = [answer["session"] for answer in opened]
            self._positions = [answer["position"] for answer in opened]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def read(self) -> None:
        """Read the next transaction of each consumer."""
        answers = self._at_once("read", lambda n: self._poll(n, _WAIT_MS))
        ranges = [parse_read(answer) for answer in answers]
        assert all(data for _, data in ranges), "there is a transaction for each consumer"
        self._positions = [end for end, _ in ranges]

    def acknowledge(self) -> None:
        """Acknowledge what was read, for all consumers at once."""
        self._at_once("ack", self._acknowledgement)

    def acknowledge_at_rate(self, rate: int) -> list[float]:
        """Acknowledge what was read, for `rate` consumers per second. Returns for each consumer the milliseconds from
        the time at which its call was due to the answer."""
        began = time.monotonic()

        def acknowledge(n: int) -> float:
            due = began + n / rate
            if (pause_s := due - time.monotonic()) > 0:
                time.sleep(pause_s)
            self._connections[n].call("ack", self._acknowledgement(n))
            return (time.monotonic() - due) * 1e3

        with ThreadPoolExecutor(_CALLERS) as pool:
            return list(pool.map(acknowledge, range(len(self._connections))))

    def wait(self, seconds: float) -> None:
        """Let all readers wait for a transaction that does not come."""
        answers = self._at_once("poll", lambda n: self._poll(n, round(seconds * 1000)))
        assert not any(json.loads(answer)["transactions"] for answer in answers)

    def _poll(self, n: int, wait_ms: int) -> Json:
        return {
            "session": self._sessions[n],
            "after": self._positions[n],
            "max_transactions": 1,
            "wait_ms": wait_ms,
        }

    def _acknowledgement(self, n: int) -> Json:
        return {"session": self._sessions[n], "position": self._positions[n]}

    def _at_once(self, name: str, body: Callable[[int], Json]) -> list[bytes]:
        for n, connection in enumerate(self._connections):
            connection.send(name, body(n))
        return [connection.answer(name) for connection in self._connections]
