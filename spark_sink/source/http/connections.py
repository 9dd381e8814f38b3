"""Opens HTTP connections to daemons, and keeps a pool of idle connections for the tasks of a Python process.

Spark runs one task after another in a Python worker, and each task reads one slice with its own client. With the pool,
these tasks use the same connection. Without the pool, each slice would need a new connection; with https, each slice
would also need a handshake, and would load the certificates. Each request contains its own token, so one connection can
serve all consumers and tokens of an address.
"""

from __future__ import annotations

import atexit
import http.client
import os
import select
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dispatcher.model.errors import ErrorKind, UserError

if TYPE_CHECKING:
    from dispatcher.model.api_addresses import ApiAddress
    from spark_sink.source.http.endpoint import DaemonEndpoint

# The daemon closes a connection after 75 s without a request. A firewall may drop an idle connection silently, usually
# after a longer time.
IDLE_MAX_S = 60.0
# A process usually runs one task at a time and reads from one daemon, so it has one idle connection.
IDLE_MAX = 4


# If the endpoint has several addresses, a host that is down must not delay the search for the leader for long.
CONNECT_S = 5.0


def open_connection(endpoint: DaemonEndpoint, address: ApiAddress) -> http.client.HTTPConnection:
    """Returns a connection object for one of the endpoint's addresses. The connection is not established yet. Raises
    `UserError` if the certificates of `ca_file` cannot be read."""
    timeout_s = endpoint.timeout_s
    if len(endpoint.addresses) > 1:
        timeout_s = min(CONNECT_S, timeout_s)
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file or None)
    except OSError as error:
        raise UserError(
            ErrorKind.SETTINGS,
            f"cannot read the certificates in {endpoint.ca_file}: {error.strerror}",
            remedy="set caFile to a PEM file that exists on the driver and on every executor",
        ) from None
    return http.client.HTTPSConnection(
        address.host, address.port, timeout=timeout_s, context=context
    )


class _Key(NamedTuple):
    """The properties of a connection that a request needs: connections with equal keys are interchangeable."""

    address: ApiAddress
    ca_file: str
    timeout_s: float

    @classmethod
    def of(cls, endpoint: DaemonEndpoint, address: ApiAddress) -> _Key:
        return cls(address, endpoint.ca_file, endpoint.timeout_s)


class _Idle(NamedTuple):
    key: _Key
    connection: http.client.HTTPConnection
    since: float


class ConnectionPool:
    """The idle connections of a process. The answer to the last request on each of these connections was read
    completely. Thread-safe. A forked process begins with an empty pool.

    Tests replace `clock` (seconds, monotonic).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: list[_Idle] = []  # in the order in which `give` added them
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def take(
        self, endpoint: DaemonEndpoint, address: ApiAddress
    ) -> http.client.HTTPConnection | None:
        """Removes an idle connection from the pool and returns it; returns None if no connection is idle. Skips
        connections that the daemon is known to have closed."""
        key = _Key.of(endpoint, address)
        with self._lock:
            self._close_all(lambda idle: self._clock() - idle.since > IDLE_MAX_S)
            while (at := self._newest(key)) is not None:
                connection = self._idle.pop(at).connection
                if _is_quiet(connection):
                    return connection
                connection.close()
        return None

    def give(
        self, endpoint: DaemonEndpoint, address: ApiAddress, connection: http.client.HTTPConnection
    ) -> None:
        """Add a connection to the pool. The caller has read its last answer to the end."""
        with self._lock:
            self._idle.append(_Idle(_Key.of(endpoint, address), connection, self._clock()))
            while len(self._idle) > IDLE_MAX:
                self._idle.pop(0).connection.close()

    def close_to(self, endpoint: DaemonEndpoint, address: ApiAddress) -> None:
        """Close the idle connections to an address."""
        key = _Key.of(endpoint, address)
        with self._lock:
            self._close_all(lambda idle: idle.key == key)

    def clear(self) -> None:
        """Close all idle connections."""
        with self._lock:
            self._close_all(lambda _: True)

    def __len__(self) -> int:
        return len(self._idle)

    def _newest(self, key: _Key) -> int | None:
        return next((i for i in reversed(range(len(self._idle))) if self._idle[i].key == key), None)

    def _close_all(self, wanted: Callable[[_Idle], bool]) -> None:
        for idle in self._idle:
            if wanted(idle):
                idle.connection.close()
        self._idle = [idle for idle in self._idle if not wanted(idle)]

    def _after_fork(self) -> None:
        # The sockets belong to the parent process. If the child closes its copies, the parent's connections stay open.
        self._lock = threading.Lock()
        self.clear()


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """False if the daemon has closed the connection, or has sent bytes without a request."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


PROCESS_POOL = ConnectionPool()
"""The pool that the tasks of this process share."""

atexit.register(PROCESS_POOL.clear)
