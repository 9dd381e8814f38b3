"""What other clients of a daemon observe while one client attacks it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.daemon.harness import Daemon, until

LIVEZ_MAX_S = 1.0


@dataclass
class Watch:
    """`rows`: how many rows of the other consumer were written and delivered."""

    daemon: Daemon
    rows: int = 0
    livez_s: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def probe(self) -> None:
        while not self.stopping.wait(0.05):
            self.livez_s.append(self.daemon.livez_s())
            self.resident.append(self.daemon.resident_bytes)

    def until_delivered(self) -> None:
        """Wait until two more rows are delivered to the other consumer."""
        wanted = self.rows + 3
        until(lambda: self.rows >= wanted, "delivery to the other consumer goes on")


@contextmanager
def watched(daemon: Daemon, read: Callable[[Watch], None], growth_max: int) -> Iterator[Watch]:
    """In the block, read the other consumer and send probes. Then assert that the block has not disturbed them.

    `read`: writes and reads rows of the other consumer, and counts them, until `stopping` is set. `growth_max`: by how
    many bytes the daemon's resident memory may grow.
    """
    seen = Watch(daemon)
    before = daemon.resident_bytes
    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(seen.probe), pool.submit(read, seen)]
        try:
            seen.until_delivered()
            yield seen
            seen.until_delivered()
        finally:
            seen.stopping.set()
        for each in working:
            each.result()
    assert max(seen.livez_s) < LIVEZ_MAX_S
    assert max(seen.resident) - before < growth_max
