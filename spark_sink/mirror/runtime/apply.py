"""The applier: brings each table forward on its own with what the log holds.

One thread (`run`) reads the log's new entries into the queues of the tables, starts steps, and writes watermarks; a
pool of threads executes the steps, several tables at a time. A table that cannot go on is stopped alone: its record
says why and since when, and its entries stay in the log.

What happens to a step that fails:

* a fault of the table's data: the entries of the step are tried one by one; at the one that fails the table is STOPPED;
* a conflict with another writer of the Delta table: it is tried again at once, a few times;
* anything else, such as storage or executors that do not answer: it is tried again with backoff, and the record says
  with which error.

Crash safety. The watermark of a consumer is written after all that it covers, so entries are read again, never left
out. A step that was committed is known by the lsn that its Delta table records, or by the record's `from_lsn`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ClaimedStage
from spark_sink.mirror.runtime.catalog import CatalogEntries, catalog_entries
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.runtime.consumer_tables import ConsumerTables
from spark_sink.mirror.runtime.maintenance import Maintenance
from spark_sink.mirror.runtime.pools import Pools
from spark_sink.mirror.runtime.progress import ConsumerProgress
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.values.policies import ApplyOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.runtime.copy_track import TableCopier

log = logging.getLogger("spark_sink.mirror")


class Applier:
    """Applies the log of a target's consumers. One per application."""

    def __init__(
        self,
        spark: SparkSession,
        options: ApplyOptions,
        copier: TableCopier | None = None,
        claims: Claims | None = None,
    ) -> None:
        """`copier`: copies tables from the server; without it a table that needs a copy waits for one that has it;
        `claims`: of the job, without them it claims its consumers itself."""
        self._spark = spark
        self._options = options
        self._control = ControlTable(spark, options.target)
        self._wake = threading.Event()
        self._sessions: SimpleQueue[StepSession] = SimpleQueue()
        for _ in range(options.parallel):
            self._sessions.put(StepSession(spark))
        self._claims = claims or Claims(self._control, options.consumers, [ClaimedStage.APPLY])
        self._maintenance = Maintenance(spark, options, self._control)
        self._consumers: list[ConsumerTables] = []
        self._copier = copier
        self._catalog: CatalogEntries | None = None
        if options.catalog is not None:
            self._catalog = catalog_entries(spark, options.catalog, options.target)

    def run(self, stop: threading.Event, drain: bool = False) -> int:
        """Apply until `stop` is set; with `drain`, until all that the log held at the call is applied or stopped.

        Returns the exit code: 1 if a consumer failed or, with `drain`, a table is stopped, failing or not in the
        catalog.
        """
        pools = Pools(self._options.parallel)
        try:
            self._start(pools, drain)
            self._loop(stop, drain, pools)
        finally:
            for tables in self._consumers:
                tables.stop()
            pools.close()
            if self._catalog is not None:
                self._catalog.close()
            for tables in self._consumers:
                tables.write_watermark(time.monotonic(), last=True)
        failed = [t for t in self._consumers if t.failure or (drain and t.standing())]
        unregistered = drain and self._catalog is not None and self._catalog.failing
        return 1 if failed or unregistered else 0

    def wake(self) -> None:
        """The log may have new entries: look now."""
        self._wake.set()

    def progress(self) -> list[ConsumerProgress]:
        """Returns how far each consumer is applied."""
        return [tables.progress() for tables in self._consumers]

    # -- the loop --------------------------------------------------------------------------------------------

    def _start(self, pools: Pools, drain: bool) -> None:
        self._claims.take()
        for consumer in self._options.consumers:
            tables = ConsumerTables(self._spark, consumer, self._control, self._options, self)
            self._consumers.append(tables)
            if (taken_over := self._claims.lost(consumer)) is not None:
                tables.give_up(taken_over)
                continue
            try:
                tables.start(pools, self._copier, drain=drain)
            except BinlogError as error:
                tables.fail(error)

    def _loop(self, stop: threading.Event, drain: bool, pools: Pools) -> None:
        maintenance: Future[None] | None = None
        goals = {t.consumer: t.log_end() for t in self._consumers if drain and not t.failure}
        while not stop.is_set():
            self._wake.clear()  # what comes from here on is not looked at yet
            active = [tables for tables in self._consumers if not tables.failure]
            progress = False
            for tables in active:
                progress |= tables.attempt(partial(self._forward, tables), drain=drain)
                tables.start_histories(pools.histories)
            if not active:
                return
            applied = drain and all(t.at_rest(goals[t.consumer]) for t in active if not t.failure)
            registered = self._catalog is None or self._catalog.forward(self._consumers)
            if applied and registered:
                return
            if self._maintenance.is_due() and (maintenance is None or maintenance.done()):
                maintenance = pools.maintenance.submit(self._maintenance.run, self._consumers)
            if not progress:
                self._wake.wait(self._options.poll_s)

    def _forward(self, tables: ConsumerTables) -> bool:
        """Read requests and new entries, start steps. Returns True if anything was done."""
        if tables.requests_changed(self._control.rows()):
            if (taken_over := self._claims.lost(tables.consumer)) is not None:
                tables.give_up(taken_over)
                return False
            tables.read_requests()
        found = tables.read()
        started = tables.start_steps()
        tables.tell_recovered()
        tables.write_watermark(time.monotonic(), last=False)
        return found or started

    # -- for the tables of a consumer --------------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[StepSession]:
        """A session for one step."""
        session = self._sessions.get()
        try:
            yield session
        finally:
            self._sessions.put(session)
