"""Look-ups of tables take few connections, and no answer is out of date."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.runtime.client.lookup_queue import CONNECTIONS_MAX, WAITING_MAX, LookUps


class Server:
    """Counts the look-ups that run at the same time; they end when `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def look_up(self) -> dict[str, Any]:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(20)
        with self._lock:
            self.running -= 1
        return {"call": self.calls}

    def fail(self) -> dict[str, Any]:
        self.calls += 1
        raise BinlogError(ErrorKind.CONNECT_FAILED, "it is down")


async def test_one_look_up_answers_all_equal_calls() -> None:
    lookups, server = LookUps(), Server()
    server.go.set()
    asked = (lookups.ask(("shop", "d", "t"), (1, 7), server.look_up) for _ in range(300))
    assert await asyncio.gather(*asked) == [{"call": 1}] * 300
    assert await lookups.ask(("shop", "d", "t"), (1, 7), server.look_up) == {"call": 1}


async def test_newly_queued_data_makes_a_look_up_out_of_date() -> None:
    lookups, server = LookUps(), Server()
    server.go.set()
    for n, version in enumerate([(1, 7), (1, 8), (2, 8)], start=1):
        assert await lookups.ask(("shop", "d", "t"), version, server.look_up) == {"call": n}


async def test_few_look_ups_run_some_wait_and_the_rest_is_refused() -> None:
    lookups, server = LookUps(), Server()
    loop = asyncio.get_running_loop()
    asked = [
        loop.create_task(lookups.ask(("shop", "d", f"t{n}"), (1, 1), server.look_up))
        for n in range(CONNECTIONS_MAX + WAITING_MAX + 5)
    ]
    _, waiting = await asyncio.wait(asked, timeout=0.1)
    server.go.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    refused = [error for error in found if isinstance(error, UserError)]
    assert len(refused) == 5 and len(waiting) == CONNECTIONS_MAX + WAITING_MAX
    assert {error.kind for error in refused} == {ErrorKind.TOO_MANY_REQUESTS}
    assert (server.most, server.calls) == (CONNECTIONS_MAX, CONNECTIONS_MAX + WAITING_MAX)


async def test_an_error_is_raised_in_all_calls_and_not_kept() -> None:
    lookups, server = LookUps(), Server()
    asked = (lookups.ask(("shop", "d", "t"), (1, 1), server.fail) for _ in range(3))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(error, "kind", None) for error in found] == [ErrorKind.CONNECT_FAILED] * 3
    assert server.calls == 1
    with pytest.raises(BinlogError):
        await lookups.ask(("shop", "d", "t"), (1, 1), server.fail)
    assert server.calls == 2
