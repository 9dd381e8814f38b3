"""Appends claims and micro-batches to the mirror's log. Each append is one commit of the log's Delta table. The commit
records the number of the append.

Each start of a consumer's streaming query begins a *run*. A run first calls `claim`, which appends one entry under the
next number. From then on, `LogAppender` refuses every append of an older run, because the log's newest number is no
longer the one that the older run expects. The checkpoint of a query is not used for this decision.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.checkpoints import BACKSTOP
from spark_sink.mirror.lake.data_file import new_name
from spark_sink.mirror.lake.delta_commit import DeltaTransaction, append_once, create_table
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog, log_app_id, prepare_writing
from spark_sink.mirror.log.files import LostFileError, log_is_shorter
from spark_sink.mirror.log.slices import (
    COLUMNS,
    AppendedRows,
    LogAppend,
    file_in_memory,
    read_slices,
    slice_entries,
    write_local_file,
    write_slices,
)
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.entries import LogEnd, append_of
from spark_sink.source.raw_entries import EntryKind, end_row
from spark_sink.source.slices import Slice, slices_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from dispatcher.model.position import Position
    from spark_sink.source.options import SourceOptions

log = logging.getLogger("spark_sink.mirror")

# The driver reads and writes a batch up to this size, because workers must first load the kernels (compiled functions),
# which takes seconds.
DRIVER_BYTES_MAX = 32 << 20
CLAIM_ATTEMPTS = 20
_CONCURRENT = "DELTA_CONCURRENT_TRANSACTION"
# Several consumers may claim at the same time, but only one of them may create the log.
_CREATING = threading.Lock()
_FILE_COLUMNS = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
_PROPERTIES = {
    "delta.dataSkippingStatsColumns": "lsn",
    "delta.enableDeletionVectors": "false",
    **BACKSTOP,
}


class LogAppender:
    """Appends to the log of a target. Several threads may use one object, but only one thread appends for each
    consumer."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        """`target`: folder of the mirror, any path that Spark can write. The first `claim` creates the log's table."""
        self._spark = spark
        self.log = BinlogLog(spark, target)
        self._system = FileSystem(spark)
        self._runs: dict[str, str] = {}
        # By consumer, the number of changed rows that executors have read. If Spark repeats a task, its rows count
        # twice.
        self._counted: dict[str, Accumulator[int]] = {}

    def claim(
        self,
        consumer: str,
        *,
        applied: int = 0,
        behind_loss: Callable[[], Position] | None = None,
    ) -> LogEnd:
        """Begin a run of the consumer's query. Returns the number of the last append that this call makes, and the
        log's newest position.

        The batches of the run get the following numbers. If an older run commits the claim's number first, the claim is
        repeated with the next number. Raises `BinlogError` SESSION_FENCED after `CLAIM_ATTEMPTS` attempts.

        `applied`: the lsn up to which the consumer's tables are applied. If the log ends before this lsn, the log was
        deleted, or restored from an older copy. New entries would then get the numbers of applied entries, and would
        not be applied. For such a log, or for a log whose end cannot be read, this method raises `BinlogError`
        TARGET_FILES. With `behind_loss`, it appends a gap instead, and the log continues at the position that
        `behind_loss` returns.
        """
        last = self.log.last_append(consumer)
        loss: BinlogError | None = None
        if last < (needed := append_of(applied)):
            loss = log_is_shorter(consumer, self.log.path)
        if loss is not None and behind_loss is None:
            raise loss
        self._create()
        self._runs[consumer] = str(uuid.uuid4())
        number = self._append_claim(consumer, needed)
        end: LogEnd | None = None
        try:
            end = self.log.end(consumer)
        except LostFileError as error:
            loss = _has_no_end(consumer, self.log.path, error)
            if behind_loss is None:
                raise loss from error
        if loss is None or behind_loss is None:
            return LogEnd(number, end.position if end else None)
        log.warning(
            "%s: %s (%s): continues without the lost entries", consumer, loss.what, loss.where
        )
        return self.append_end(consumer, number + 1, behind_loss(), gap=True)

    def append_end(
        self, consumer: str, number: int, position: Position, *, gap: bool = False
    ) -> LogEnd:
        """Append an END entry, at which the run then continues. Raises the `BinlogError` of `append`."""
        self.append_entries([end_row(position, 0, gap=gap)], consumer, number)
        return LogEnd(number, position)

    def _append_claim(self, consumer: str, needed: int) -> int:
        """Append a claim with a number greater than `needed`, even if the log has no append with the number `needed`.
        Returns the number of the claim."""
        attempt = 0
        while True:
            attempt += 1
            last = self.log.last_append(consumer)
            number = max(last, needed) + 1
            claim = [{"entry": 0, "kind": EntryKind.CLAIM}]
            try:
                self.append_entries(claim, consumer, number, follows=last)
            except BinlogError as error:
                if error.kind is not ErrorKind.SESSION_FENCED or attempt == CLAIM_ATTEMPTS:
                    raise
            else:
                return number

    def append(self, batch: DataFrame, options: SourceOptions, consumer: str, number: int) -> int:
        """Append a micro-batch. Each of its rows describes a slice, the part of the micro-batch for one task, without
        the slice's bytes: this method reads the bytes from the daemon. Returns the number of changed rows.

        `options`: the options of the source. The driver itself reads and writes a small batch; the executors read and
        write a large one. If another job has claimed the consumer, this method appends nothing and raises `BinlogError`
        SESSION_FENCED; the caller must then not acknowledge the batch.
        """
        parts = slices_of(batch.collect())
        if not parts or parts[0].batch_bytes <= DRIVER_BYTES_MAX:
            return self.append_entries(slice_entries(options, parts), consumer, number)
        return self._append_by_workers(batch.sparkSession, options, parts, consumer, number)

    def append_entries(
        self,
        entries: Iterable[Mapping[str, Any]],
        consumer: str,
        number: int,
        *,
        follows: int | None = None,
    ) -> int:
        """Append entries. Each entry is one row in the schema of the raw stream (`spark_sink/source/schemas.py`). The
        driver writes all entries into one file. Returns the number of changed rows. Raises the `BinlogError` of
        `append`. `follows`: the number of the previous append, if it is not `number` - 1."""
        append = self._numbered(consumer, number)
        transaction = self._begin(append, number - 1 if follows is None else follows)
        made = AppendedRows(append)
        rows = made.of(entries)
        if (folder := self._system.local(self.log.path)) is not None:
            action = write_local_file(folder, append, rows)
        else:
            action = self._write_file(append, rows)
        added = [] if action is None else [action]
        self._commit(transaction, added, append)
        return made.changes

    def _write_file(
        self, append: LogAppend, rows: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any] | None:
        """Write rows into a file of any file system. Returns the file's `add` action; None if there are no rows."""
        made = file_in_memory(rows)
        if made is None:
            return None
        data, content = made
        name = new_name()
        self._system.write(f"{self.log.path}/{append.file(name)}", data)
        return append.add_action(name, len(data), content)

    def _append_by_workers(
        self,
        session: SparkSession,
        options: SourceOptions,
        parts: Sequence[Slice],
        consumer: str,
        number: int,
    ) -> int:
        append = self._numbered(consumer, number)
        numbers = session.range(0, len(parts), 1, len(parts))
        if (folder := self._system.local(self.log.path)) is None:
            if consumer not in self._counted:
                self._counted[consumer] = session.sparkContext.accumulator(0)
            counted = self._counted[consumer]
            before = counted.value
            read = partial(read_slices, append, options, parts, counted.add)
            self._append_by_spark(numbers.mapInArrow(read, _FILE_COLUMNS), append)
            return counted.value - before
        transaction = self._begin(append, number - 1)
        write = partial(write_slices, folder, append, options, parts)
        written = numbers.mapInArrow(write, "action string, changes bigint").collect()
        self._commit(transaction, [json.loads(row["action"]) for row in written], append)
        return sum(row["changes"] for row in written)

    def _append_by_spark(self, rows: DataFrame, append: LogAppend) -> None:
        """Append rows with Spark's own writer, because `write_slices` writes only to a local file system."""
        prepare_writing(rows.sparkSession)
        consumer, day = F.lit(append.consumer), F.lit(append.day)
        frame = rows.select("*", consumer.alias("consumer"), day.alias("day"))
        with _refusing(append):
            if not append_once(frame, self.log.path, log_app_id(append.consumer), append.number):
                raise _claimed(append)

    def _numbered(self, consumer: str, number: int) -> LogAppend:
        return LogAppend(consumer, number, self._runs[consumer], datetime.now(UTC).date())

    def _begin(self, append: LogAppend, follows: int) -> DeltaTransaction:
        """Begin the transaction of an append. The transaction begins before the data is read, so that Delta refuses the
        transaction's commit if another job commits a claim in between."""
        transaction = DeltaTransaction(self._spark, self.log.path)
        if max(0, transaction.recorded(log_app_id(append.consumer))) != follows:
            raise _claimed(append)
        return transaction

    def _commit(
        self, transaction: DeltaTransaction, added: Sequence[Mapping[str, Any]], append: LogAppend
    ) -> None:
        with _refusing(append):
            transaction.commit(added, recorded=(log_app_id(append.consumer), append.number))

    def _create(self) -> None:
        if delta_version(self._spark, self.log.path) >= 0:
            return
        table = DeltaTable.createIfNotExists(self._spark).location(self.log.path)
        for name, kind in (*COLUMNS, ("consumer", "string"), ("day", "date")):
            table = table.addColumn(name, kind)
        table = table.partitionedBy("consumer", "day")
        for key, value in _PROPERTIES.items():
            table = table.property(key, value)
        with _CREATING:
            create_table(self._spark, self.log.path, table)


@contextmanager
def _refusing(append: LogAppend) -> Iterator[None]:
    """Raise SESSION_FENCED in place of Delta's exception for a conflict with the claim of another job."""
    try:
        yield
    except PySparkException as error:
        if _CONCURRENT in str(error):
            raise _claimed(append) from None
        raise


def _claimed(append: LogAppend) -> BinlogError:
    return BinlogError(
        ErrorKind.SESSION_FENCED,
        f"another job has claimed append {append.number} of the log, so this one stops writing it",
        where=f"consumer {append.consumer}",
        remedy=remedies.of_two_jobs(),
    )


def _has_no_end(consumer: str, path: str, lost: LostFileError) -> BinlogError:
    return BinlogError(
        ErrorKind.TARGET_FILES,
        f"the end of the log of consumer {consumer} cannot be read: {lost.what}",
        where=path,
        remedy=remedies.of_lost_log(path),
    )
