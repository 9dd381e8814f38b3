"""The reader of a stream: one consumer of the daemon as a stream of changes.

Spark constructs a reader in two Python processes on the driver. In one process, Spark only pickles the reader for the
executors. In the other process, the planner, the reader plans batches as long as the query runs. The constructor opens
no session, for two reasons: a reader cannot know in which process it is, and after a crash, `partitions` is the first
method of the planner that Spark calls. The first call that needs a session opens it, at the offset that Spark passes
with this call. Each `Slice` contains the session's number: an executor reads in the session of the batch, and fails if
that session was fenced.

`latestOffset` acknowledges its argument `start`: this is the end of the last batch that Spark has entered in its commit
log. Spark calls `commit` later, and never for the last batch of a run, so `commit` does nothing. A range can be read
repeatedly: each action on a batch, and each retried task, reads the same range again.

A query with `Trigger.AvailableNow` has a target: the server's newest position when the query starts. If the consumer
has failed, the daemon does not know that position. In this case, if the options name a place where the stream begins,
or if the stream begins with a snapshot, the reader opens the session at this place; the daemon then restarts the failed
consumer, and the session's head becomes the target. Spark ends the query when `latestOffset` returns its argument
`start`. So `latestOffset` waits until there are changes to read or the target is reached. If a batch would end after
the target, `latestOffset` returns the target.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.errors import Action, BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.source.cut_transactions import with_cut_transactions
from spark_sink.source.data_loss import data_loss, position_text
from spark_sink.source.http.client import ConsumerClient, PolledRange, Session, SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.places import Place
from spark_sink.source.planning import range_cuts, range_slices
from spark_sink.source.readers.checkpoint_offset import checkpoint_position
from spark_sink.source.slice_reader import slice_batches
from spark_sink.source.slices import Slice, newest_form, read_bytes
from spark_sink.source.spark_abilities import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from spark_sink.source.stream_progress import NOT_KNOWN, latest_offset

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("spark_sink.source")

WAIT_MS = 1000


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query on the driver, and reads their slices on the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client: ConsumerClient | None = None
        self._session: Session | None = None
        self._anchored = False
        self._target: Position | None = None
        self._needs_target = False  # True if the head of the next session becomes the target
        self._head: Position | None = None
        self._planned: tuple[Position, PolledRange] | None = None
        self._batched_at = (
            -math.inf
        )  # when the last batch with data was planned, by the monotonic clock
        self._gap_at: Position | None = None  # the position after the newest gap
        self._initial: Position | None = None  # the position of the place that the options name
        self._paused = False  # True if the newest poll has answered that the delivery is paused

    def __getstate__(self) -> dict[str, Any]:
        # The pickled reader contains the options, but neither this process's connection nor its session.
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_schema"])  # type: ignore[misc]

    # -- planning, in one process on the driver --------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        try:
            self._target = self._head = self._head_now()
        except BinlogError as error:
            names_place = self._options.start is not None or self._options.snapshot is not None
            if not names_place or error.action is not Action.FATAL:
                raise
            self._needs_target = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark calls this before a session is open, so the queue's limit is not known yet; 0 means the default.
        return ReadMaxBytes(self._options.max_bytes or 0)

    def initialOffset(self) -> dict[str, str | int]:  # noqa: N802
        """Spark calls this twice for a new query; the second call must not change anything.

        If the start lies before a gap, this method returns the start unchanged. The first batch then begins at this
        start and ends at the position at which the consumer continues after the gap. So the gap is a separate batch,
        even if there is no change after the gap yet.

        If the options name a place, such as `latest`, this method opens no session; `latestOffset` does. After a crash
        Spark calls `partitions` instead, for a batch that an earlier process has planned.
        """
        start = self._options.start
        if isinstance(start, Place):
            if self._initial is None:
                self._initial = self._client_now().resolve(start)
            return self._initial.as_dict()
        session = self._session or self._open(start)
        before_gap = session.gap and start is not None
        return (start if before_gap and start else session.position).as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        after = checkpoint_position(start)
        if after == self._initial:
            self._session_at(
                after
            )  # makes the daemon store where the query begins, even if there is nothing to read yet
        if self._needs_target:
            self._target, self._needs_target = self._session_at(after).head, False
        if self._target is not None and after.order >= self._target.order:
            if after.order > self._target.order:
                self._check_ahead(after)
            return start
        session = self._session_at(after)
        if session.gap and after.epoch != session.position.epoch:
            polled = PolledRange(session.position, session.head, 0, 0, gap=True)
        else:
            polled = self._poll(session, after, limit)
        end = polled.end
        if polled.gap:
            # The batch ends where the consumer continues after the gap. It does not end at the target, because the
            # target may have an older epoch.
            end = newest_form(end, polled.head)
        elif self._target is not None and end.order >= self._target.order:
            end = self._target
        self._planned = (after, polled) if end == polled.end else None
        return start if end == after else end.as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Returns the server's newest position, with what is known about the batch that is being planned."""
        if self._head is None:
            return None
        polled = self._planned[1] if self._planned else None
        batch = None if polled is None else (polled.transactions, polled.bytes)
        lag = NOT_KNOWN if polled is None else polled.lag
        return latest_offset(self._head, self._options.consumer, batch, lag, paused=self._paused)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = checkpoint_position(start), checkpoint_position(end)
        if self._session is None and self._initial is not None:
            # An earlier process has planned this batch, and was killed before Spark committed the batch. By now, the
            # place that the options name may have another position. The batch began where that process opened its
            # session, and the daemon has stored that position.
            self._session = self._open(None)
            first, self._anchored = self._session.position, True
            if first.epoch != last.epoch:
                self._skip_gap(last, first)
        session = self._session_at(first)
        # A new query that was killed before its first commit asks for its initial offset again. Because of markers, the
        # new initial offset may lie past the planned end, but only if the range between the two is empty.
        if first.order >= last.order:
            return []
        polled: PolledRange | None = None
        if self._planned and (self._planned[0], self._planned[1].end) == (first, last):
            polled = self._planned[1]
        # No range contains a gap, so a gap is always a separate batch, even if an earlier process has planned it.
        is_gap = first.epoch != last.epoch
        markers = is_gap or (polled is not None and polled.transactions == 0)
        if markers and not self._options.raw:
            return []
        cuts: list[SliceCut] = []
        size = 0
        client = self._client_now()
        if not markers:
            known = polled.bytes if polled else None
            cuts, size = range_cuts(client, self._options, session.number, first, last, known)
        slices = range_slices(
            self._options,
            session.number,
            [SliceCut(first), *cuts, SliceCut(last)],
            size,
            markers=markers,
            address=client.address_number,
        )
        return with_cut_transactions(client, self._options, self._schema, slices)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing; `latestOffset` acknowledges."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- reading, in any number of processes -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return slice_batches(self._options, self._schema, partition, read_bytes)

    # -- the session -----------------------------------------------------------------------------------------

    def _client_now(self) -> ConsumerClient:
        if self._client is None:
            self._client = ConsumerClient(self._options.address, self._options.consumer)
        return self._client

    def _head_now(self) -> Position:
        """Returns the server's newest position, by opening a read-only session, because such a session fences no other
        reader."""
        return self._client_now().open_session(None, read_only=True).head

    def _open(self, after: Position | None) -> Session:
        session = self._opened_at(after)
        if session is None:
            assert after is not None
            # A person has moved the consumer (`consumers seek`). As after a purge, the query does not get the changes
            # between the two positions.
            self._skip_gap(after, self._client_now().open_session(None, read_only=True).position)
            session = replace(self._client_now().open_session(None), gap=True)
        if session.gap and after is not None:
            self._skip_gap(after, session.position)
        target, at = self._target, session.position
        if target is not None and at == after and at.epoch < target.epoch:
            # The daemon had lost its state when the target was determined, so the target has a new epoch. Then the
            # first session set the consumer back to the checkpoint's epoch. The target's place in the log stays the
            # same.
            self._target = replace(target, epoch=at.epoch)
        self._session, self._head = session, session.head
        return session

    def _opened_at(self, after: Position | None) -> Session | None:
        """Returns a new session at a position; None if the consumer has another epoch than this position."""
        try:
            return self._client_now().open_session(after)
        except BinlogError as error:
            if after is None or error.kind is not ErrorKind.POSITION_UNKNOWN:
                raise
            now = self._client_now().open_session(None, read_only=True).position
            if now.epoch == after.epoch:
                raise
        # Return after the handler, not inside of it: otherwise an error that the caller raises would be chained to the
        # handled error. Spark reports the texts of all chained exceptions, but the code that parses these texts expects
        # one exception.
        return None

    def _check_ahead(self, after: Position) -> None:
        """Raise `BinlogError` if `after`, which is ahead of this run's target, is not in the server's log."""
        self._session_at(after)  # the daemon refuses a position of another history
        # The session may be old, because a snapshot may take long.
        head = self._head_now()
        if after.order > head.order:
            raise BinlogError(
                ErrorKind.POSITION_UNKNOWN,
                f"the checkpoint is at {position_text(after)}, ahead of the server's newest position"
                f" {position_text(head)}",
                where=f"consumer {self._options.consumer}",
                remedy="the server was restored or replaced: copy the tables afresh, and start with a new checkpoint",
            )

    def _skip_gap(self, after: Position, continues_at: Position) -> None:
        """If `failOnDataLoss` is true, raise `BinlogError` for a gap; else log a warning."""
        loss = data_loss(self._options.consumer, after, continues_at)
        if self._options.fail_on_data_loss:
            raise loss
        if self._gap_at != continues_at:
            self._gap_at = continues_at
            log.warning("%s: %s", loss.where, loss.what)

    def _session_at(self, start: Position) -> Session:
        """Returns the session. The first call with an offset from Spark opens the session at `start`.

        If `initialOffset` has already opened a session at another position, this call opens a new session at the
        checkpoint's offset.
        """
        session = self._session
        if (
            not self._anchored
            and self._options.start not in (None, start)
            and start != self._initial
        ):
            log.warning(
                "consumer %s: continues at the checkpoint, %s; startingOffsets (%s) is for a query without one",
                self._options.consumer,
                position_text(start),
                self._options.start,
            )
        if session is None or (not self._anchored and session.position != start):
            session = self._open(start)
        self._anchored = True
        return session

    def _poll(self, session: Session, after: Position, limit: ReadLimit) -> PolledRange:
        unlimited = isinstance(limit, ReadAllAvailable)
        max_bytes = self._max_bytes(limit, session)
        max_transactions = None if unlimited else self._options.max_transactions
        # The time that the batch may still wait for `min_bytes`. If there is a target, the batch does not wait.
        left_s = self._batched_at + self._options.max_trigger_delay_s - time.monotonic()
        waits = (
            self._options.min_bytes > 0 and not unlimited and self._target is None and left_s > 0
        )
        deadline = time.monotonic() + self._options.address.retry_timeout_s
        while True:
            polled = self._client_now().poll(
                session.number,
                after,
                max_bytes=max_bytes,
                wait_ms=max(1, min(WAIT_MS, int(left_s * 1000))) if waits else WAIT_MS,
                markers=self._target is not None,
                min_bytes=self._options.min_bytes if waits else 0,
                max_transactions=max_transactions,
            )
            if polled.transactions:
                self._batched_at = time.monotonic()
            self._note(polled)
            if polled.gap:
                self._skip_gap(after, polled.end)
            if self._target is None or polled.end != after:
                return polled
            if time.monotonic() > deadline:
                raise self._not_reached(self._target)

    def _note(self, polled: PolledRange) -> None:
        """Keep the server's newest position, and whether the delivery is paused. Log a warning when a pause begins."""
        self._head = polled.head
        if polled.paused and not self._paused:
            log.warning(
                "consumer %s: the delivery is paused, so the query gets no changes; %s",
                self._options.consumer,
                self._client_now().resume_remedy,
            )
        self._paused = polled.paused

    def _not_reached(self, target: Position) -> BinlogError:
        why, remedy = "", "read the state of the consumer at GET /v1/binlogs"
        if self._paused:
            why, remedy = ": the delivery is paused", self._client_now().resume_remedy
        return BinlogError(
            ErrorKind.RANGE_UNAVAILABLE,
            f"the daemon has not reached {target.file}:{target.offset}, the server's newest position when this run"
            f" began, in {self._options.address.retry_timeout_s:g} s{why}",
            where=f"consumer {self._options.consumer}",
            remedy=remedy,
        )

    def _max_bytes(self, limit: ReadLimit, session: Session) -> int | None:
        """Returns a limit of Spark in bytes. If the limit is in rows, returns the default, because rows cannot be
        counted before they are decoded."""
        if isinstance(limit, ReadAllAvailable):
            return None
        if isinstance(limit, ReadMaxBytes) and limit.max_bytes > 0:
            return limit.max_bytes
        return self._options.max_bytes or max(1, session.max_bytes_in_binlog_queue // 2)
