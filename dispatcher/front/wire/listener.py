"""Accepts connections, logs their clients in, and passes each client to the caller's handler. Bounds the number of
connections.

At most a quarter of the `connections_max` connections may not be logged in yet. For each further connection, the
listener closes the oldest connection that is not logged in. So a program that opens connections and sends nothing does
not block other clients. A client cannot cause messages in the daemon's log: only an error of the handler or of the
rules is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from socket import socket

from dispatcher.front.wire.channel import Channel, ClientGone, TlsFailed
from dispatcher.front.wire.errors import (
    WireError,
    error_packet,
    internal_fault,
    too_many_connections,
)
from dispatcher.front.wire.login import LOGIN_BYTES_MAX, FrontLogin, LoginRules, log_in
from dispatcher.front.wire.packets import Capability

_BACKLOG = 512


class Refusal(StrEnum):
    """Why a connection ended without a login."""

    FULL = "too many connections"
    SHARE = "too many connections of a consumer or token"
    REPLACED = "closed for a newer one"
    LATE = "did not log in in time"
    GONE = "closed by the client"
    TLS_FAILED = "handshake of TLS failed"
    DENIED = "wrong password"
    INSECURE = "no TLS"
    NOT_ADMITTED = "not admitted"
    MALFORMED = "bad handshake"
    FAULT = "internal error"


_BY_NUMBER = {
    1043: Refusal.MALFORMED,
    1045: Refusal.DENIED,
    1153: Refusal.MALFORMED,
    1156: Refusal.MALFORMED,
    1203: Refusal.SHARE,
    1251: Refusal.MALFORMED,
    3159: Refusal.INSECURE,
}


@dataclass(slots=True)
class FrontCounts:
    """Counts for the metrics. `open`: the current number of connections. `waiting`: the current number of connections
    that are not logged in yet or are being closed. `logged_in` and `refused` count since the start."""

    open: int = 0
    waiting: int = 0
    logged_in: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)


class FrontListener:
    """Listens for connections. `serve` handles a client that has logged in. The connection is closed when `serve`
    returns or raises an error. Errors other than WireError, ConnectionError and TimeoutError, from `serve` or from a
    function of `rules`, are passed to `failed`."""

    def __init__(
        self,
        rules: LoginRules,
        serve: Callable[[Channel, FrontLogin], Awaitable[None]],
        failed: Callable[[Exception], None],
        *,
        connections_max: int,
    ) -> None:
        self.rules = rules
        self.counts = FrontCounts()
        self._serve = serve
        self._failed = failed
        self._connections_max = connections_max
        self._waiting_max = max(connections_max // 4, 1)
        self._servers: list[asyncio.Server] = []
        self._tasks: dict[Channel, asyncio.Task[None]] = {}
        self._open: set[Channel] = set()
        self._waiting: dict[Channel, None] = {}  # not logged in yet, or being closed; oldest first
        self._last_id = 0

    async def listen(self, sockets: Sequence[socket]) -> int:
        """Listen on bound sockets. Returns the port of the first."""
        for each in sockets:
            server = await asyncio.get_running_loop().create_server(
                lambda: Channel(LOGIN_BYTES_MAX, self._accept), sock=each, backlog=_BACKLOG
            )
            self._servers.append(server)
        return int(sockets[0].getsockname()[1])

    async def close(self, grace_s: float = 1.0) -> None:
        """Close the listener, cancel the handlers, and close all connections. A connection with unsent bytes is closed
        after at most `grace_s`."""
        for server in self._servers:
            server.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if closing := [channel.closed for channel in self._open]:
            await asyncio.wait(closing, timeout=grace_s)
        for channel in list(self._open):
            channel.abort()

    def _accept(self, channel: Channel) -> None:
        full = len(self._open) >= self._connections_max
        if full and not self._waiting:
            self.counts.refused[Refusal.FULL] += 1
            _tell(channel, too_many_connections(), Capability(0))  # before the greeting
            channel.close()
            return
        if full or len(self._waiting) >= self._waiting_max:
            self._replace_oldest()
        self._last_id += 1
        task = asyncio.get_running_loop().create_task(self._run(channel, self._last_id))
        self._tasks[channel] = task
        task.add_done_callback(lambda _: self._tasks.pop(channel, None))
        self._open.add(channel)
        self._waiting[channel] = None
        channel.closed.add_done_callback(lambda _: self._forget(channel))
        self._count()

    def _replace_oldest(self) -> None:
        """Close the oldest of the connections in `_waiting`."""
        oldest = next(iter(self._waiting))
        if (task := self._tasks.get(oldest)) is not None:
            self.counts.refused[Refusal.REPLACED] += 1
            task.cancel()
        oldest.abort()
        self._forget(oldest)

    def _forget(self, channel: Channel) -> None:
        self._open.discard(channel)
        self._waiting.pop(channel, None)
        self._count()

    def _count(self) -> None:
        self.counts.open, self.counts.waiting = len(self._open), len(self._waiting)

    async def _run(self, channel: Channel, connection_id: int) -> None:
        """Serve one connection from its greeting to its close."""
        try:
            login = await self._log_in(channel, connection_id)
            if login is not None:
                await self._handle(channel, login)
        finally:
            if channel in self._open:
                self._waiting.setdefault(channel)  # the connection may still have bytes to send
                self._count()
            channel.close()

    async def _log_in(self, channel: Channel, connection_id: int) -> FrontLogin | None:
        """Log the client in. Returns None if the login failed."""
        try:
            login = await log_in(channel, connection_id, self.rules)
        except WireError as error:
            refusal = _BY_NUMBER.get(error.number, Refusal.NOT_ADMITTED)
            _tell(channel, error, Capability.PROTOCOL_41)
        except TimeoutError:
            refusal = Refusal.LATE
        except TlsFailed:
            refusal = Refusal.TLS_FAILED
        except ConnectionError:
            refusal = Refusal.GONE
        except Exception as error:  # noqa: BLE001 - of a function of the rules
            refusal = Refusal.FAULT
            self._report(channel, error)
        else:
            self._waiting.pop(channel, None)
            self.counts.logged_in += 1
            self._count()
            return login
        self.counts.refused[refusal] += 1
        return None

    async def _handle(self, channel: Channel, login: FrontLogin) -> None:
        try:
            await self._serve(channel, login)
        except WireError as error:
            _tell(channel, error, login.capabilities)
        except (ConnectionError, TimeoutError):
            pass  # the client has disconnected, or was silent for too long
        except Exception as error:  # noqa: BLE001 - of the handler
            self._report(channel, error)

    def _report(self, channel: Channel, error: Exception) -> None:
        self._failed(error)
        _tell(channel, internal_fault(), Capability.PROTOCOL_41)


def _tell(channel: Channel, error: WireError, capabilities: Capability) -> None:
    """Send an error to the client before its connection is closed. Does nothing if the client has disconnected."""
    with contextlib.suppress(ClientGone):
        channel.send([error_packet(error, capabilities)])
