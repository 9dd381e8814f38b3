"""The stream reader for a Spark whose Python sources have no admission control, such as Apache Spark 4.0 and 4.1.

Such a Spark calls `latestOffset` without the end of the last batch and without a limit. This reader derives the
beginning of the next batch from the order of Spark's calls:

* A new query: `latestOffset`, `initialOffset`, `partitions(initial, end)`.
* A query with a checkpoint: first `partitions(E, E)`, where E is the newest end in the checkpoint. If the batch that
  ends at E is not committed, Spark plans it again with `partitions(S, E)`. Then Spark calls `latestOffset`. When Spark
  makes this call, everything up to E is committed.
* Each later batch: `latestOffset`, `partitions(E, end)`.

So each `latestOffset` acknowledges the `end` of the last call of `partitions`. `partitions(E, E)` opens no session,
because the batch that ends at E may not be committed.

With `Trigger.AvailableNow` or `Trigger.Once`, such a Spark makes only one batch in the whole run, and does not tell the
source about the trigger. So the first batch of each run ends at the server's newest position or, if the queue is full,
at the end of the queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import Position
from spark_sink.source.data_loss import position_text
from spark_sink.source.readers.checkpoint_offset import checkpoint_position
from spark_sink.source.readers.stream_reader import WAIT_MS, BinlogStreamReader
from spark_sink.source.spark_abilities import ReadMaxBytes

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from spark_sink.source.http.client import PolledRange, Session
    from spark_sink.source.options import SourceOptions
    from spark_sink.source.spark_abilities import ReadLimit

log = logging.getLogger("spark_sink.source")

_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class ReaderWithoutLimits(BinlogStreamReader):
    """Begins each batch at the end of the batch for which Spark called `partitions` last. The first batch of a new
    query begins at the initial offset."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._after: Position | None = None  # where the next batch begins; None: not known yet
        self._is_new = False  # True if the reader has assumed that the query has no checkpoint
        self._initial_asked_for = False  # True if Spark has asked for the initial offset
        self._first = True  # True if the next batch is the first one of this run

    def initialOffset(self) -> dict[str, str | int]:  # noqa: N802
        self._initial_asked_for = True
        return super().initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        if self._after is None:
            self._is_new = True
            self._after = Position.from_dict(super().initialOffset())
        # The first batch has a target: the server's newest position at the time when the batch is planned.
        self._needs_target, self._first = self._first, False
        end = super().latestOffset(self._after.as_dict(), ReadMaxBytes(0))
        target, self._target = self._target, None
        if target is not None and Position.from_dict(end).order < target.order:
            log.warning(
                "consumer %s: the first batch of this run ends at %s, because the queue has no room for more. The"
                " server's newest position is %s. With this Spark, a run with Trigger.AvailableNow is one batch: start"
                " it again for the rest",
                self._options.consumer,
                position_text(Position.from_dict(end)),
                position_text(target),
            )
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end and not self._initial_asked_for:
            if self._is_new:
                raise self._wrapped()
            self._after = checkpoint_position(end)
            return []
        planned = super().partitions(start, end)
        self._after = Position.from_dict(end)
        return planned

    def _wrapped(self) -> UserError:
        """Returns the error for a run in which Spark has called `latestOffset` before any call that shows where the run
        begins."""
        return UserError(
            ErrorKind.SETTINGS,
            f"this Spark makes runs of Trigger.AvailableNow with the setting {_WRAPPER}, which does not tell a source"
            " where the run begins",
            where=f"consumer {self._options.consumer}",
            remedy=f"set {_WRAPPER} to false",
        )

    def _poll(self, session: Session, after: Position, limit: ReadLimit) -> PolledRange:
        """Returns the next range. For the first batch of a run, waits until the range reaches the target, or until it
        cannot grow."""
        target = self._target
        if target is None:
            return super()._poll(session, after, limit)
        most = self._options.max_bytes or session.max_bytes_in_binlog_queue
        deadline = time.monotonic() + self._options.address.retry_timeout_s
        while True:
            ready = self._polled(session, after)
            if ready.gap or ready.end.order >= target.order:
                return ready
            # The daemon answers this poll with transactions when the range cannot grow any more, or after `WAIT_MS`
            # without transactions.
            whole = self._polled(session, after, min_bytes=most, wait_ms=WAIT_MS)
            if whole.gap or whole.transactions:
                return whole
            if time.monotonic() > deadline:
                if ready.end == after:
                    raise self._not_reached(target)
                return ready

    def _polled(
        self, session: Session, after: Position, min_bytes: int = 0, wait_ms: int = 0
    ) -> PolledRange:
        polled = self._client_now().poll(
            session.number,
            after,
            max_bytes=self._options.max_bytes,
            wait_ms=wait_ms,
            markers=not min_bytes,
            min_bytes=min_bytes,
            max_transactions=self._options.max_transactions,
        )
        self._note(polled)
        if polled.gap:
            self._skip_gap(after, polled.end)
        return polled
