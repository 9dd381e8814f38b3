"""For `STORM_SECONDS`, very many consumers of a busy server are added and removed, and their readers are slow or
restart.

Queues have limits of one byte or more. Reloads of the settings add and remove consumers, readers pause or are replaced,
and the test sometimes kills the daemon. In the end, the copies of all readers equal the server's tables, and the daemon
has one connection.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Json, Reader, dumps, tip_seq, until
from tests.daemon.test_sharing import measured
from tests.faults.churn import Copy, busy, churn, create, read_all
from tests.faults.watch import watch
from tests.servers.plugin import ServerFactory

SECONDS = float(os.environ.get("STORM_SECONDS", "4"))
CONSUMERS = int(os.environ.get("STORM_CONSUMERS", "16"))
READERS = 6
DATABASES = [f"d{n}" for n in range(8)]
QUEUES = (1, 200, 5_000, 100_000, 2_000_000, 64 << 20)
MIB = 1 << 20
BASE_BYTES_MAX = 250 * MIB


@dataclass
class Guest:
    """A consumer. `lock`: one thread at a time reads or changes it."""

    name: str
    settings: Json
    copy: Copy
    declared: bool = True
    sleeps_until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Storm:
    def __init__(self, daemon: Daemon, seed: int) -> None:
        self.daemon = daemon
        self.rng = random.Random(seed)
        self.guests: list[Guest] = []
        self.counts = dict.fromkeys(("reloads", "restarts", "kills", "readers", "steps"), 0)
        self.ending = threading.Event()
        # Set while the daemon runs. While it does not run, readers ignore failed calls, and the test makes no other
        # disturbance.
        self.daemon_is_up = threading.Event()
        self.daemon_is_up.set()

    def read(self) -> None:
        """Runs in a thread: repeatedly, one of the readers makes a step."""
        rng = random.Random(self.rng.random())
        while not self.ending.is_set():
            self.daemon_is_up.wait(1)
            guest = rng.choice(self.guests)
            awake = guest.declared and guest.sleeps_until <= time.monotonic()
            if not awake:
                self.ending.wait(0.002)
            elif guest.lock.acquire(blocking=False):
                try:
                    if guest.declared:
                        self._step(guest, rng)
                finally:
                    guest.lock.release()

    def _step(self, guest: Guest, rng: random.Random) -> None:
        guest.copy.step(wait_ms=0, max_bytes=rng.choice((None, None, 1000)))
        self.counts["steps"] += 1
        if rng.random() < 0.02:
            guest.sleeps_until = time.monotonic() + rng.choice((0.2, 1.0, 5.0))
        if rng.random() < 0.01 and self.daemon_is_up.is_set():
            guest.copy.reopen()
            self.counts["readers"] += 1

    def disturb(self) -> None:
        """Disturb the daemon or change its settings."""
        choice = self.rng.random()
        if choice < 0.85:
            self._reload()
        else:
            self._restart(kill=choice < 0.95)

    def _reload(self) -> None:
        """Remove some of the consumers, and add some that were removed."""
        some = self.rng.sample(self.guests, max(1, len(self.guests) // 10))
        come = [guest for guest in some if not guest.declared]
        for guest in some:
            with guest.lock:
                guest.declared = False
        self._declare(come)
        self.counts["reloads"] += 1

    def _declare(self, come: list[Guest]) -> None:
        there = [guest for guest in self.guests if guest.declared or guest in come]
        self.daemon.settings["consumers"] = {guest.name: guest.settings for guest in there}
        self.daemon.reload()
        for guest in come:
            with guest.lock:
                guest.copy.reopen()
                guest.declared = True

    def _restart(self, *, kill: bool) -> None:
        self.daemon_is_up.clear()
        self.daemon.restart(kill=kill)
        self.daemon_is_up.set()
        self.counts["kills" if kill else "restarts"] += 1

    def calm(self) -> None:
        """Declare all consumers, and let all readers read."""
        for guest in self.guests:
            guest.sleeps_until = 0.0
        self._declare([guest for guest in self.guests if not guest.declared])


@pytest.mark.rotate(1, of="loads")
@pytest.mark.timeout(300 + 4 * SECONDS)
def test_very_many_consumers_come_and_go_without_a_loss(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory("mysql97", "--max-binlog-size=16M")
    create(server, [*DATABASES, "nobodys"])
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    settings = {
        f"c{n}": source(
            server,
            *rng.sample(DATABASES, rng.choice((1, 1, 2))),
            max_bytes_in_binlog_queue=rng.choice(QUEUES),
            max_milliseconds_to_wait_in_binlog_queue=rng.choice((0, 100, 1000)),
        )
        for n in range(CONSUMERS)
    }
    daemon = make_daemon(settings)
    daemon.start()
    storm = Storm(daemon, seed)
    for name, each in settings.items():
        copy = Copy(Reader(daemon, name).open(), each["databases"])
        storm.guests.append(Guest(name, each, copy))
    began = time.monotonic()
    try:
        with watch(server) as watching, ThreadPoolExecutor(READERS) as pool:
            with (
                busy(server, "nobodys"),
                churn(server, DATABASES, pause_s=CONSUMERS / 250) as writing,
            ):
                readers = [pool.submit(storm.read) for _ in range(READERS)]
                try:
                    while time.monotonic() < began + SECONDS:
                        for reader in readers:
                            if reader.done():
                                reader.result()
                        storm.disturb()
                finally:
                    storm.ending.set()
                    wait(readers)
                for reader in readers:
                    reader.result()
            storm.calm()
            calm = time.monotonic()
            copies = [guest.copy for guest in storm.guests]
            wanted = tip_seq(server)
            with measured(daemon) as sizes:
                parts = [copies[n::READERS] for n in range(READERS)]
                list(pool.map(lambda part: read_all(part, wanted, timeout_s=120 + SECONDS), parts))
            rows = sum(copy.check(server) for copy in copies)
            # A consumer that was detached often does not merge for a minute.
            until(lambda: len(dumps(server)) == 1, "one connection is left", timeout_s=100)
            took = time.monotonic() - calm
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    (others,) = server.execute("SELECT COUNT(*) FROM nobodys.busy")[0]
    print(
        f"\n{CONSUMERS} consumers for {calm - began:.0f} s: {storm.counts}, {writing.written} transactions for"
        f" them and {others} for no consumer, {sum(copy.transactions for copy in copies)} delivered, {rows} rows"
        f" equal; at most {sum(watching.most.values())} dumps at a time, one in the end, {took:.1f} s after it was"
        f" calm; resident then at most {max(sizes) / MIB:.0f} MiB (seed {seed})"
    )
