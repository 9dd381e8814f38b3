"""The threads that execute works. Each kind of work has its own threads, so that no work waits for works of another
kind. For instance, records are stored and tables are maintained while copies use all of their threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from spark_sink.mirror.rules.effects import (
    CompareKeyRange,
    CompareVersions,
    CopyTable,
    EndVersions,
    ReadKeyRange,
    ReadLog,
    RepairRows,
    StoreRecords,
    WriteVersions,
)
from spark_sink.mirror.rules.events import Event
from spark_sink.mirror.rules.mirror import COPIES, REPLAYS
from spark_sink.mirror.runtime.works import ConsumerWorks, Work, failed
from spark_sink.mirror.tables.delta import StepSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_sink.mirror")

READS = 2  # how many reads of the log run at the same time
LOOKS_MAX = 4  # how many consumers look for changes at the same time
STORES_MAX = 4  # how many consumers store records at the same time; they share commits


class Pools:
    """Executes works. The thread that has executed a work calls `post(consumer, event)` once, with the work's answer as
    the event."""

    def __init__(
        self,
        spark: SparkSession,
        steps: int,
        consumers: int,
        post: Callable[[str, Event], None],
    ) -> None:
        """`steps`: how many steps of tables run at the same time, not counting replays; `consumers`: the number of
        consumers."""

        def pool(name: str, threads: int) -> ThreadPoolExecutor:
            return ThreadPoolExecutor(threads, thread_name_prefix=name)

        self._spark, self._post = spark, post
        self._steps = pool("apply", steps + REPLAYS)
        self._reads = pool("read", READS)
        self._copies = pool("copy", COPIES)
        self._histories = pool("history", 1)
        self._proofs = pool("prove", 1)
        self._stores = pool("store", max(1, min(consumers, STORES_MAX)))
        self._maintenance = pool("maintenance", 1)
        self._looks = pool("look", max(1, min(consumers, LOOKS_MAX)))
        self._sessions: SimpleQueue[StepSession] = SimpleQueue()
        self._storing: list[Future[None]] = []
        self._finished = False

    def submit(self, works: ConsumerWorks, work: Work) -> None:
        """Let a thread execute a work of a consumer. After `finish`, all works except stores are dropped."""
        if self._finished and not isinstance(work, StoreRecords):
            return
        future = self._pool_of(work).submit(self._execute, works, work)
        if isinstance(work, StoreRecords):
            self._storing = [each for each in self._storing if not each.done()] + [future]

    def maintain(self, work: Callable[[], None]) -> Future[None]:
        """Let the maintenance thread execute a call."""
        return self._maintenance.submit(work)

    def look(self, call: Callable[[], None]) -> None:
        """Let a thread execute a call that looks for changes. After `finish`, the call is dropped."""
        if not self._finished:
            self._looks.submit(call)

    def finish(self) -> None:
        """Wait for all running works except stores. Works that have not begun are dropped, and not answered."""
        self._finished = True
        works = (
            self._reads,
            self._copies,
            self._maintenance,
            self._steps,
            self._histories,
            self._proofs,
        )
        every = (self._looks, *works)
        for executor in every:
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in every:
            executor.shutdown(wait=True)

    def wait_for_stores(self) -> bool:
        """Wait for the end of all stores. Returns False if no store was running or waiting."""
        storing, self._storing = self._storing, []
        for future in storing:
            future.exception()
        return bool(storing)

    def close(self) -> None:
        """Close the threads of stores. No more stores may follow."""
        self._stores.shutdown(wait=True, cancel_futures=True)

    def _pool_of(self, work: Work) -> ThreadPoolExecutor:
        match work:
            case ReadLog():
                return self._reads
            case CopyTable():
                return self._copies
            case StoreRecords():
                return self._stores
            case WriteVersions() | EndVersions() | CompareVersions():
                return self._histories
            case ReadKeyRange() | CompareKeyRange() | RepairRows():
                return self._proofs
        return self._steps

    def _execute(self, works: ConsumerWorks, work: Work) -> None:
        try:
            with self._session() as session:
                answer = works.do(work, session)
        except Exception as error:
            log.debug("%s: the whole error", works.consumer, exc_info=error)
            answer = failed(work, error)
        self._post(works.consumer, answer)

    @contextmanager
    def _session(self) -> Iterator[StepSession]:
        """A session for one thread at a time."""
        try:
            session = self._sessions.get_nowait()
        except Empty:
            session = StepSession(self._spark)
        try:
            yield session
        finally:
            self._sessions.put(session)
