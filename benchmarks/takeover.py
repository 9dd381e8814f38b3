"""Measures how long readers wait when the leader of two daemons ends.

A reader, which is the Spark source's client with the addresses of both daemons, reads rows that a program writes all
the time. The leader gets a signal at a random moment between two renewals of its lease, which has the default duration.
The measured time ends when the reader has received rows from the other daemon. Then the benchmark starts the daemon
that has ended again.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import cycle
from benchmarks.state_server import StateDatabase
from dispatcher.leadership.leadership import RENEWALS
from dispatcher.settings.model import StateSettings
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.http.endpoint import DaemonEndpoint
from tests.daemon.harness import Daemon, Json
from tests.daemon.pair import Pair, until_stands_by
from tests.servers import Instance

_RATE = 100  # transactions per second
_WRITE_S = 3600.0  # longer than any run
_RANGE_BYTES, _WAIT_MS = 1 << 20, 1000
_GIVE_UP_S = 60.0
_RENEW_S = StateSettings.model_fields["lease"].default / RENEWALS


@contextmanager
def measured_pair(
    server: Instance, state: StateDatabase, folder: Path, settings: Json
) -> Iterator[Pair]:
    """Two daemons that are started; `a` leads."""
    with ExitStack() as stack:
        a, b = (
            cycle.new_daemon(stack, folder / name, {**settings, "state": state.section})
            for name in ("a", "b")
        )
        pair = Pair(a, b, state.server, server).start()
        until_stands_by(b, a)
        yield pair


class _Reader:
    """Reads one range after the other from the daemon that leads, and acknowledges each range with the next call."""

    def __init__(self, *daemons: Daemon) -> None:
        urls = ",".join(daemon.url for daemon in daemons)
        self._daemons = daemons
        self._client = ConsumerClient(
            DaemonEndpoint(urls, retry_timeout_s=_GIVE_UP_S), cycle.CONSUMER
        )
        opened = self._client.open_session(None)
        self._session, self._after = opened.number, opened.position

    def read(self) -> Daemon | None:
        """Read the next range. Returns the daemon that has delivered its rows; None if there were none in time."""
        polled = self._client.poll(
            self._session, self._after, max_bytes=_RANGE_BYTES, wait_ms=_WAIT_MS
        )
        start, self._after = self._after, polled.end
        if not polled.transactions:
            return None
        self._client.binlog(self._session, SliceCut(start), SliceCut(polled.end))
        return self._daemons[self._client.address_number]

    def close(self) -> None:
        self._client.close()


def takeovers(pair: Pair, server: Instance, by: signal.Signals, count: int) -> list[float]:
    """Returns the seconds of each takeover, from the signal to the rows."""
    with ExitStack() as stack:
        writer = stack.enter_context(cycle.start_writer(server, _RATE, _WRITE_S))
        stack.callback(writer.kill)
        reader = _Reader(pair.a, pair.b)
        stack.callback(reader.close)
        return [_takeover(pair, reader, by) for _ in range(count)]


def _takeover(pair: Pair, reader: _Reader, by: signal.Signals) -> float:
    leader, standby = pair.a, pair.b
    while reader.read() is not leader:
        pass
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(_end, leader, by)
        while reader.read() is not standby:
            pass
        arrived = time.monotonic()
        signalled = ending.result()
    pair.a, pair.b = standby, leader
    leader.start()
    until_stands_by(leader, standby)
    return arrived - signalled


def _end(leader: Daemon, by: signal.Signals) -> float:
    """End the leader at a random moment between two renewals. Returns when it got the signal."""
    time.sleep(random.uniform(0.0, _RENEW_S))
    signalled = time.monotonic()
    if by is signal.SIGKILL:
        leader.kill()
    else:
        leader.stop()
    return signalled
