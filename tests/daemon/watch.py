"""What other clients of a daemon observe while one client attacks it.

The tests count answers and rows, and measure no time: a daemon whose event loop stands still answers no probe, and then
the wait for the next answers fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.daemon.harness import Daemon, until

ANSWERS = 3  # so many answers show that the event loop runs


@dataclass
class Probes:
    """Calls `/livez` again and again. `answered`: how many calls were answered. `resident_max`: the daemon's largest
    resident memory after an answer, in bytes."""

    daemon: Daemon
    answered: int = 0
    resident_max: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            assert self.daemon.api.text("/livez") == "ok\n"
            self.answered += 1
            self.resident_max = max(self.resident_max, self.daemon.resident_bytes)

    def until_answered(self) -> None:
        """Wait until the daemon has answered further probes."""
        wanted = self.answered + ANSWERS
        until(lambda: self.answered >= wanted, "the daemon answers /livez")


@contextmanager
def probed(daemon: Daemon) -> Iterator[Probes]:
    """Send probes while the block runs. At its end the daemon must still answer them."""
    probes = Probes(daemon)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(probes.run)
        try:
            yield probes
            probes.until_answered()
        finally:
            probes.stopping.set()
        running.result()


@dataclass
class Watch:
    """`rows`: how many rows of the other consumer were written and delivered."""

    probes: Probes
    rows: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    reading: Future[None] | None = None

    def until_undisturbed(self) -> None:
        """Wait until two more rows are delivered to the other consumer, and the daemon has answered further probes.
        Raises the error that has ended the reading of the other consumer."""
        wanted = self.rows + 3
        until(lambda: self._has_ended() or self.rows >= wanted, "delivery to the other consumer")
        self._raise_ended()
        self.probes.until_answered()

    def _has_ended(self) -> bool:
        return self.reading is not None and self.reading.done()

    def _raise_ended(self) -> None:
        if self.reading is not None and self._has_ended():
            self.reading.result()
            raise AssertionError("the reader of the other consumer has ended")


@contextmanager
def watched(daemon: Daemon, read: Callable[[Watch], None], growth_max: int) -> Iterator[Watch]:
    """In the block, read the other consumer and send probes. Then assert that the block has not disturbed them.

    `read`: writes and reads rows of the other consumer, and counts them, until `stopping` is set. `growth_max`: by how
    many bytes the daemon's resident memory may grow.
    """
    before = daemon.resident_bytes
    with probed(daemon) as probes, ThreadPoolExecutor(1) as pool:
        seen = Watch(probes)
        seen.reading = reading = pool.submit(read, seen)
        try:
            seen.until_undisturbed()
            yield seen
            seen.until_undisturbed()
        finally:
            seen.stopping.set()
        reading.result()
    grown = probes.resident_max - before
    assert grown < growth_max, f"the resident memory has grown by {grown >> 20} MiB"
