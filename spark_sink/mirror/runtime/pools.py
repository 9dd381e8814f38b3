"""The threads of an applier. Each kind of work has its own, so that none waits for work of another kind: a person's
request is answered while all copies of a target are waiting, and maintenance goes on beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from spark_sink.mirror.runtime.catch_up import CatchUps

COPIES = 2  # tables that are copied at a time
REPLAYS = 2  # tables that are brought forward aside at a time


class Pools:
    """`steps`: how many steps are executed at a time."""

    def __init__(self, steps: int) -> None:
        def pool(name: str, threads: int) -> ThreadPoolExecutor:
            return ThreadPoolExecutor(threads, thread_name_prefix=name)

        self.steps = pool("apply", steps)
        self.requests = pool("request", 1)
        self.replays = pool("catch-up", REPLAYS)
        self.copies = pool("copy", COPIES)
        self.histories = pool("history", 1)
        self.maintenance = pool("maintenance", 1)
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self, executor: Executor, work: Callable[..., None], *arguments: Any
    ) -> Future[None] | None:
        """Let `executor` do some work; None if the pools are closed, as work that submits other work may find them."""
        with self._lock:
            return None if self._closed else executor.submit(work, *arguments)

    def close(self) -> None:
        """Wait for what runs; what has not begun is left out."""
        with self._lock:
            self._closed = True
        every = (self.requests, self.replays, self.copies, self.maintenance)
        for executor in (*every, self.steps, self.histories):
            executor.shutdown(wait=True, cancel_futures=True)


class CatchUpRuns:
    """Starts the catch-ups of one consumer in the threads of their kinds."""

    def __init__(self, catch_ups: CatchUps, pools: Pools) -> None:
        self._catch_ups, self._pools = catch_ups, pools
        self._lock = threading.Lock()
        self._copiers = (
            0  # works of the pool, each of which makes a copy and lets the next one follow
        )

    def start(self) -> None:
        """Start what can be started. A copy waits in its record, not in the pool, so a request about it is answered."""
        for table_id in self._catch_ups.requests():
            self._pools.submit(self._pools.requests, self._answer, table_id)
        for table_id in self._catch_ups.replays():
            self._pools.submit(self._pools.replays, self._catch_ups.run, table_id)
        with self._lock:
            free, self._copiers = COPIES - self._copiers, COPIES
        for _ in range(free):
            self._pools.submit(self._pools.copies, self._copy)

    def _answer(self, table_id: str) -> None:
        self._catch_ups.answer(table_id)
        self.start()

    def _copy(self) -> None:
        table_id = None if self._catch_ups.stopping else self._catch_ups.next_copy()
        if table_id is None:
            with self._lock:
                self._copiers -= 1
            return
        try:
            self._catch_ups.copy(table_id)
        finally:
            # Behind the copies of other consumers.
            self._pools.submit(self._pools.copies, self._copy)
