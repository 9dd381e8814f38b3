"""The applier: applies the entries (rows and statements) of the mirror's log to the tables. It treats each table
independently of the other tables.

One thread (`run`) makes all decisions. It passes each event to the rules of the event's consumer (`rules.mirror`). The
rules return works (`rules.effects`). The thread passes these works to pools of threads, which execute works of several
tables at the same time. The answer of a work is a new event.

Crash safety. The rules begin a work only after the records on which the work relies are stored. A consumer's watermark
is an lsn, the number of an entry. The rules store it only after all entries up to this lsn were committed, or were left
in the log on purpose. So after a crash, some entries are read again, but no entry is missed. The lsn that the Delta
table records, or the record's `from_lsn`, shows whether a step was committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.control_rows import ClaimedStage
from spark_sink.mirror.rules.events import Event
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.omitted import changed_masks
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.catalog import CatalogEntries, catalog_entries
from spark_sink.mirror.runtime.catalog_turns import CatalogTurns
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.runtime.consumer import AppliedConsumer, mirror_options
from spark_sink.mirror.runtime.copies import Copies, TableCopier
from spark_sink.mirror.runtime.look import Look, LookedAt
from spark_sink.mirror.runtime.maintenance import MaintainedTables, Maintenance
from spark_sink.mirror.runtime.misnamed_columns import MisnamedColumns
from spark_sink.mirror.runtime.pools import Pools
from spark_sink.mirror.runtime.progress import ConsumerProgress, ProgressCounter
from spark_sink.mirror.runtime.works import ConsumerWorks
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.mirror.verify.range_prover import RangeProver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_sink.mirror")


class Applier:
    """Applies the log of a target's consumers. An application has one applier, and calls `run` once."""

    def __init__(
        self,
        spark: SparkSession,
        options: ApplyOptions,
        copier: TableCopier | None = None,
        claims: Claims | None = None,
        prover: Callable[[str, BinlogLog], RangeProver] | None = None,
    ) -> None:
        """`copier`: copies tables from the server; if it is None, a table that needs a copy waits for a job with a
        copier. `claims`: the claims of the job; if it is None, the applier claims its consumers itself. `prover`:
        returns the object that compares the tables of a consumer with the server; without it, no table is compared."""
        self._spark, self._prover = spark, prover
        # The rules ask for the policy of a table at each event. The settings find the policy by a search through
        # patterns, so the result is cached.
        self._options = replace(
            options,
            policy=cache(options.policy),
            excludes=cache(options.excludes),
            own_columns=cache(options.own_columns),
        )
        self._misnamed = MisnamedColumns(self._options.own_columns)
        self._claims = claims or Claims(
            ControlTable(spark, options.target), options.consumers, [ClaimedStage.APPLY]
        )
        self._control = self._claims.control
        # Events, each with its consumer; None in place of an event means that the log may have grown.
        self._inbox: SimpleQueue[tuple[str, Event] | None] = SimpleQueue()
        self._busy = BusyFolders()
        self._maintenance = Maintenance(spark, self._options, self._control, self._post, self._busy)
        self._maintaining: Future[None] | None = None
        self._catalog: CatalogEntries | None = None
        if options.catalog is not None:
            self._catalog = catalog_entries(spark, options, self._busy, self._post)
        self._pools = Pools(spark, options.parallel, len(options.consumers), self._post)
        self._turns = CatalogTurns(self._catalog, self._pools.submit)
        self._consumers = {name: self._consumer(name, copier) for name in options.consumers}
        self._all = list(self._consumers.values())

    def _consumer(self, name: str, copier: TableCopier | None) -> AppliedConsumer:
        options = self._options
        counter = ProgressCounter(name)
        binlog_log = BinlogLog(self._spark.newSession(), options.target)
        works = ConsumerWorks(
            self._spark,
            name,
            options,
            self._control,
            binlog_log,
            Copies(copier, counter),
            self._busy,
            self._misnamed,
            self._prover(name, binlog_log) if self._prover else None,
        )
        at = LookedAt(binlog_log, self._claims)
        look = Look(name, options, at, self._pools.look, partial(self._post, name))
        can = {"copies": copier is not None, "proves": self._prover is not None}
        mirror = Mirror(mirror_options(name, options, **can))
        return AppliedConsumer(works, mirror, counter, look, self._turns.submit)

    def run(self, stop: threading.Event, drain: bool = False) -> int:
        """Apply the log until `stop` is set. With `drain`, also end as soon as each entry that the log contained at the
        call is either applied, or left in the log for a stopped table.

        Returns the exit code: 1 if a consumer has failed, or if, with `drain`, a table is stopped, not copied, failing
        or not in the catalog; otherwise 0.
        """
        try:
            self._start(drain)
            self._loop(stop, drain)
        finally:
            self._finish()
        failed = [c for c in self._all if c.failure or (drain and c.unfinished())]
        unregistered = drain and self._catalog is not None and self._catalog.failing
        return 1 if failed or unregistered else 0

    def wake(self) -> None:
        """Make the applier check the log now. Called when the log may have new entries."""
        self._inbox.put(None)

    def progress(self) -> list[ConsumerProgress]:
        """Returns how far each consumer is applied."""
        return [consumer.progress() for consumer in self._all]

    def watermark(self, consumer: str) -> int:
        """Returns the lsn up to which the consumer's log is applied. Other threads may call this method."""
        return next(each.snapshot.watermark for each in self._all if each.name == consumer)

    def consumers(self) -> list[AppliedConsumer]:
        """Returns the consumers. Only the thread of `run` may call methods of them, except `progress`."""
        return self._all

    def _post(self, consumer: str, event: Event) -> None:
        """Add an event. Any thread may call this."""
        self._inbox.put((consumer, event))

    # -- the loop ----------------------------------------------------------------------------------------------

    def _start(self, drain: bool) -> None:
        self._claims.take()
        rows = self._control.rows()
        log.info("applying: %d tables are known", len(rows.records))
        for record in rows.records.values():
            if record.consumer not in self._options.consumers or not record.is_live:
                continue
            if masks := changed_masks(record.signature, self._options.policy(record.name)):
                log.warning(remedies.of_changed_masks(record.label, masks))
            self._misnamed.of_signature(record, record.signature)
        for consumer in self._all:
            consumer.start(rows, drain=drain)

    def _loop(self, stop: threading.Event, drain: bool) -> None:
        look_at = time.monotonic() + self._options.poll_s
        while not stop.is_set():
            now = time.monotonic()
            for consumer in self._all:
                if now >= look_at:
                    consumer.look()
                consumer.tick(now)
            look_at = now + self._options.poll_s if now >= look_at else look_at
            active = [c for c in self._all if c.failure is None]
            if not active:
                return
            at_rest = drain and all(consumer.at_rest() for consumer in active)
            records = {c.name: c.snapshot.records for c in active}
            if self._turns.forward(records, at_rest=at_rest) and at_rest:
                return
            self._maintain(active)
            times = [look_at, *(c.wakeup for c in active if c.wakeup is not None)]
            if self._take(max(0.0, min(times) - time.monotonic())):
                look_at = 0.0

    def _take(self, timeout_s: float) -> bool:
        """Handle the events that were added since the last call; if no event was added, wait for an event. Returns True
        if the log may have grown."""
        woken = False
        # The next call handles the events that are added during this loop, because `_loop` must check the log, too.
        for _ in range(max(1, self._inbox.qsize())):
            try:
                message = self._inbox.get(timeout=timeout_s)
            except Empty:
                break
            timeout_s = 0.0
            if message is None:
                woken = True
            else:
                self._step(*message)
        return woken

    def _take_all(self) -> None:
        while not self._inbox.empty():
            self._take(0.0)

    def _step(self, name: str, event: Event) -> None:
        self._turns.answered(name, event)
        self._consumers[name].step(event)

    # -- maintenance -------------------------------------------------------------------------------------------

    def _maintain(self, active: Sequence[AppliedConsumer]) -> None:
        """Begin a round of maintenance if it is due, and if no round is running."""
        running = self._maintaining is not None and not self._maintaining.done()
        if running or not self._maintenance.is_due():
            return
        tables = [MaintainedTables(c.name, c.snapshot.records, c.needed) for c in active]
        self._maintaining = self._pools.maintain(partial(self._maintenance.run, tables))

    # -- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Wait for the works that are running, and store their results."""
        for consumer in self._all:
            consumer.stop()
        self._pools.finish()
        if self._catalog is not None:
            self._catalog.close()
        self._take_all()
        for consumer in self._all:
            consumer.store_watermark()
        while self._pools.wait_for_stores():
            self._take_all()
        self._pools.close()
