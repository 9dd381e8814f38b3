"""Batches: `spark.read.format("binlog")` reads what a consumer's queue holds, in a read-only session.

A read-only session fences no reader and acknowledges nothing, so a batch can be read while a stream runs, and any
number of times. The batch returns the content of the queue. It begins at the position that the consumer's reader has
acknowledged, and ends with the newest transaction that fits into the queue. If the reader acknowledges changes while a
batch is being read, the batch can no longer read these changes.

Spark plans a batch again for each action, so two actions may see different ends of the log. The option `endingOffsets`
prevents this.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from spark_sink.source.cut_transactions import with_cut_transactions
from spark_sink.source.data_loss import position_text
from spark_sink.source.http.client import ConsumerClient, Session, SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.places import EARLIEST, LATEST, Place
from spark_sink.source.planning import range_cuts, range_slices
from spark_sink.source.slice_reader import slice_batches
from spark_sink.source.slices import Slice, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("spark_sink.source")

WAIT_MS = 1000
# If a queue is more than half full, and gets nothing for this time, the daemon waits until the queue has room.
FULL_AFTER_S = 5.0


class BinlogBatchReader(DataSourceReader):
    """Plans a batch on the driver, and reads its slices on the executors. The constructor opens no connection."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.start == LATEST:
            raise UserError(
                ErrorKind.SETTINGS,
                "source \"binlog\": option 'startingOffsets' cannot be latest for a batch, which would hold nothing",
                remedy="leave it out for everything that the queue holds, or name a position or a time",
            )
        self._options = options
        self._schema = schema

    def partitions(self) -> list[Slice]:
        options = self._options
        if options.max_bytes or options.max_transactions or options.min_bytes:
            log.warning(
                "consumer %s: the options ...PerTrigger are for streams; a batch ends at endingOffsets",
                options.consumer,
            )
        client = ConsumerClient(options.address, options.consumer)
        try:
            return self._plan(client)
        finally:
            client.close()

    def _plan(self, client: ConsumerClient) -> list[Slice]:
        options = self._options
        start = _position(client, None if options.start == EARLIEST else options.start)
        end = _position(client, None if options.end == LATEST else options.end)
        # Open the session last, so that its head is not older than the positions that the daemon has determined for
        # `start` and `end`.
        session = client.open_session(None, read_only=True)
        first = self._first(start or session.position, session)
        if end is not None and (
            end.epoch != session.position.epoch or end.order > session.head.order
        ):
            raise self._wrong_end(
                end,
                f"is not in the server's log, whose newest position is {position_text(session.head)}",
            )
        if end is not None and end.order < first.order:
            raise self._wrong_end(end, f"lies before the batch's beginning, {position_text(first)}")
        last = self._read_up_to(client, session, first, end)
        if last.order <= first.order:
            return []
        cuts, size = range_cuts(client, options, session.number, first, last, None)
        if not size and not options.raw:
            return []  # the range holds only transactions of other consumers' tables
        slices = range_slices(
            options,
            session.number,
            [SliceCut(first), *cuts, SliceCut(last)],
            size,
            markers=not size,
            address=client.address_number,
        )
        return with_cut_transactions(client, options, self._schema, slices)

    def _first(self, start: Position, session: Session) -> Position:
        """Returns the position at which the batch begins: `start`, or the queue's first position if the queue no longer
        has all changes after `start`."""
        if start.epoch == session.position.epoch and start.order >= session.position.order:
            return start
        self._skip(start, session.position)
        return session.position

    def _skip(self, after: Position, begins: Position, *, inside: bool = False) -> None:
        """Report the changes that the queue lacks: raise `BinlogError` if `failOnDataLoss` is true, else log a warning.
        `inside`: True if these changes begin inside of the transaction that ends at `after`."""
        place = position_text(after)
        if inside:
            place = f"a place in the transaction that ends at {place}"
        loss = BinlogError(
            ErrorKind.POSITION_PURGED,
            f"changes after {place} are not in the queue, which begins at {position_text(begins)}:"
            " they were acknowledged, or the server has purged them",
            where=f"consumer {self._options.consumer}",
            remedy="read them with a consumer of their own, which no stream acknowledges; or set the option"
            " failOnDataLoss to false to read what there is",
        )
        if self._options.fail_on_data_loss:
            raise loss
        log.warning("%s: %s", loss.where, loss.what)

    def _wrong_end(self, end: Position, what: str) -> UserError:
        return UserError(
            ErrorKind.SETTINGS,
            f"the end of the batch, {position_text(end)}, {what}",
            where=f"consumer {self._options.consumer}",
            remedy="name another end, or none for the newest change",
        )

    def _read_up_to(
        self, client: ConsumerClient, session: Session, first: Position, end: Position | None
    ) -> Position:
        """Wait until the daemon has read up to `end` or, if `end` is None, up to the server's newest position. Returns
        the position at which the batch ends. If `end` is None and the queue is full, this is the end of the queue."""
        target, at = end or session.head, first
        moved = time.monotonic()
        while at.order < target.order:
            polled = client.poll(session.number, at, max_bytes=None, wait_ms=WAIT_MS, markers=True)
            if polled.gap:
                self._skip(at, polled.end)
            waited_s = time.monotonic() - moved
            if polled.end != at:
                at, moved = polled.end, time.monotonic()
            elif end is None and waited_s >= FULL_AFTER_S and self._is_full(client, session, at):
                log.warning(
                    "consumer %s: the queue is full, so the batch ends at %s, before the server's newest change at %s",
                    self._options.consumer,
                    position_text(at),
                    position_text(target),
                )
                return at
            elif waited_s >= self._options.address.retry_timeout_s:
                why, remedy = (
                    "",
                    (
                        "read the state of the consumer at GET /v1/binlogs; a full queue gets room when its reader"
                        " acknowledges"
                    ),
                )
                if polled.paused:
                    why, remedy = ": the delivery is paused", client.resume_remedy
                raise BinlogError(
                    ErrorKind.RANGE_UNAVAILABLE,
                    f"the daemon has read up to {position_text(at)} and gets no further, the batch ends at"
                    f" {position_text(target)}{why}",
                    where=f"consumer {self._options.consumer}",
                    remedy=remedy,
                )
        return min(at, target, key=lambda position: position.order)

    def _is_full(self, client: ConsumerClient, session: Session, at: Position) -> bool:
        """True if the queue is more than half full: the daemon fills a detached queue again once it is half empty."""
        held = client.slices(session.number, session.position, at, 1).bytes
        return held > session.max_bytes_in_binlog_queue // 2

    # -- reading, in any number of processes -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return iter(())  # for a batch without slices, Spark itself makes a partition
        return slice_batches(self._options, self._schema, partition, self._bytes)

    def _bytes(self, options: SourceOptions, part: Slice) -> tuple[Slice, memoryview]:
        """Calls `read_bytes`. If the beginning of the slice was acknowledged after the batch was planned, returns only
        the rest."""
        while True:
            try:
                return read_bytes(options, part)
            except BinlogError as error:
                if error.kind is not ErrorKind.POSITION_UNKNOWN:
                    raise
                begins = self._queue_begin()
                at = part.start.position
                # If a slice begins inside of a transaction, its start is the position after this transaction. When this
                # position is acknowledged, the daemon no longer has the rest of the transaction.
                inside = part.start.inside is not None
                if begins.epoch == at.epoch and (
                    begins.order < at.order or (begins.order == at.order and not inside)
                ):
                    raise
                self._skip(at, begins, inside=inside)
                end = part.end.position
                if begins.epoch != end.epoch or begins.order >= end.order:
                    return replace(part, gap=True), memoryview(b"")
                part = replace(part, start=SliceCut(begins), gap=True)

    def _queue_begin(self) -> Position:
        client = ConsumerClient(self._options.address, self._options.consumer)
        try:
            return client.open_session(None, read_only=True).position
        finally:
            client.close()


def _position(client: ConsumerClient, place: Position | Place | None) -> Position | None:
    return client.resolve(place) if isinstance(place, Place) else place
