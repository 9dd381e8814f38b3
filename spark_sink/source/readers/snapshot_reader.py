"""The reader of a stream that begins with a snapshot: `startingOffsets=snapshot`. `spark_sink.source.snapshot.rules`
describes such a stream.

This reader extends the reader of changes by batches of rows. Until the snapshot is over, an offset is a position with
an additional key, `snapshot`; later an offset is a position, as in any other stream. The initial offset has no
position, and its `snapshot` is `{}`. The first batch goes from the initial offset to the server's newest position. This
batch has no rows, and fixes where the stream begins. So if a query is killed before its first commit, it begins again
at the same initial offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.source.data_loss import position_text
from spark_sink.source.options import SourceOptions
from spark_sink.source.places import LATEST
from spark_sink.source.readers.checkpoint_offset import (
    SNAPSHOT,
    checkpoint_offset,
    checkpoint_position,
)
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.slices import Slice
from spark_sink.source.snapshot.planner import SnapshotPlanner
from spark_sink.source.snapshot.row_range import RowRange
from spark_sink.source.snapshot.rules import Backlog, Bound, KeyPart, SnapshotState, TableName
from spark_sink.source.spark_abilities import ReadAllAvailable, ReadLimit

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_sink.source.snapshot.server import SnapshotServer
    from spark_sink.source.table_rows.chunks import Chunk

log = logging.getLogger("spark_sink.source")

_BEGIN: dict[str, Any] = {SNAPSHOT: {}}
_READ_ALL_BYTES = 1 << 30  # a chunk without a limit
_NAMES_LOGGED = 20


def offset_of(position: Position, state: SnapshotState | None) -> dict[str, Any]:
    return position.as_dict() | ({} if state is None else {SNAPSHOT: state.as_json()})


def parsed_offset(offset: dict[str, Any]) -> tuple[Position, SnapshotState | None]:
    """Returns (position, state); the state is None if the snapshot is over. Raises `UserError` for an offset of a query
    with other options, and for an object that is no offset."""
    given = checkpoint_offset(offset, SNAPSHOT)
    state = SnapshotState.of_json(given[SNAPSHOT]) if SNAPSHOT in given else None
    return checkpoint_position({k: v for k, v in given.items() if k != SNAPSHOT}), state


class SnapshotStreamReader(BinlogStreamReader):
    """Plans the batches on the driver, and reads rows and slices on the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planner = SnapshotPlanner(self)
        self._server: SnapshotServer | None = None
        self._limit: ReadLimit | None = None
        # The chunk that was planned last: its table, the key after which it begins, and its ranges.
        self._ranges: tuple[TableName, Bound | None, list[Chunk]] | None = None
        self._due_at = 0.0  # when the next chunk may be read, by the monotonic clock
        self._ends_at_target = False
        self._warned_of: set[TableName] = set()  # tables that the options no longer select

    # -- planning, in one process on the driver --------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        super().prepareForTriggerAvailableNow()
        self._ends_at_target = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _BEGIN

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start == _BEGIN:
            return self._begin()
        position, state = parsed_offset(start)
        if state is None:
            return super().latestOffset(start, limit)
        self._limit = limit
        # A snapshot continues to its end, even if the run has the target of Trigger.AvailableNow.
        target, self._target = self._target, None
        needs_target, self._needs_target = self._needs_target, False
        try:
            began = time.monotonic()
            while (planned := self._planner.next(position, state)) is None:
                if not self._ends_at_target:
                    return start
                self._require_time(began, target or self._head or position)
            if planned[1] is not None and planned[1].rows:
                self._planned = None  # the batch has no changes, so there are no numbers to report
            return offset_of(*planned)
        finally:
            self._target, self._needs_target = target, needs_target

    def _require_time(self, began: float, target: Position) -> None:
        """Raise `BinlogError` if the snapshot has waited too long for changes from the daemon. The time during which
        the limit of rows per second delays the snapshot does not count. `began`: when the source began to wait, by the
        monotonic clock."""
        waited_s = time.monotonic() - max(began, self._due_at)
        if waited_s > self._options.address.retry_timeout_s:
            raise self._not_reached(target)

    def _begin(self) -> dict[str, Any]:
        names = self._tables().check()
        position = self._client_now().resolve(LATEST)
        self._session = self._open(position)
        self._anchored = True
        if self._needs_target:
            self._target, self._needs_target = self._session.head, False
        if self._target is not None and position.order > self._target.order:
            self._target = position
        log.info(
            "consumer %s: a snapshot of %d tables begins; its changes follow from %s on: %s%s",
            self._options.consumer,
            len(names),
            position_text(position),
            ", ".join(map(".".join, names[:_NAMES_LOGGED])),
            "" if len(names) <= _NAMES_LOGGED else " ...",
        )
        return offset_of(position, SnapshotState())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == _BEGIN:
            return []
        first, _ = parsed_offset(start)
        last, state = parsed_offset(end)
        if state is not None and state.rows:
            return self._row_ranges(last, state)
        slices = super().partitions(first.as_dict(), last.as_dict())
        if state is None:
            return slices
        return [replace(part, snapshot=state) for part in slices if isinstance(part, Slice)]

    def _row_ranges(self, position: Position, state: SnapshotState) -> list[RowRange]:
        assert state.table is not None
        if not self._planner.reads(position, state):
            if not self.selects(state.table):
                return []
            log.warning(
                "consumer %s: rows of %s.%s that were planned before are read again later: their changes since then"
                " do not fit into the consumer's queue",
                self._options.consumer,
                *state.table,
            )
            return []
        self._tables().wait_until_executed(position)
        chunks = self._ranges_of(state)
        return [
            RowRange(
                number, position, state.table, state.key, chunk, self._client_now().address_number
            )
            for number, chunk in enumerate(chunks)
        ]

    def _ranges_of(self, state: SnapshotState) -> list[Chunk]:
        if self._ranges is not None and state.chunk is not None:
            table, after, chunks = self._ranges
            if (table, after, chunks[-1].upper) == (state.table, state.after, state.chunk.upper):
                return chunks
        return self._tables().chunks(state, self._chunk_bytes())

    # -- reading, in any number of processes -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RowRange):
            from spark_sink.source.snapshot.range_reader import read_range  # noqa: PLC0415 - loads pyarrow

            return read_range(self._options, self._schema, partition)
        return super().read(partition)

    # -- what the planner asks for ---------------------------------------------------------------------------

    def _tables(self) -> SnapshotServer:
        if self._server is None:
            from spark_sink.source.snapshot.server import SnapshotServer  # noqa: PLC0415 - loads PyMySQL

            self._server = SnapshotServer(self._options)
        return self._server

    def session_at(self, position: Position) -> int:
        return self._session_at(position).number

    def backlog(self, position: Position) -> Backlog:
        session = self._session_at(position)
        if session.gap and position.epoch != session.position.epoch:
            return Backlog(
                True, servable=False, quiet_to=position
            )  # the batch of the gap comes first
        polled = self._client_now().poll(
            session.number, position, max_bytes=None, wait_ms=0, markers=True
        )
        self._note(polled)
        # The server has newer transactions, and the daemon does not deliver them: the consumer may be paused, or the
        # daemon may not reach the server. Then tasks could not fetch the changes that are committed while they read
        # rows.
        is_stuck = polled.end == position and polled.head.order > position.order
        if polled.gap or (is_stuck and not polled.transactions):
            return Backlog(True, servable=False, quiet_to=position)
        behind = polled.lag.bytes
        if behind is None:
            behind = 0 if polled.end.order >= polled.head.order else 1 << 62
        room = session.max_bytes_in_binlog_queue // 2
        changes = polled.transactions > 0
        quiet_to = position if changes else polled.end
        return Backlog(changes, servable=polled.bytes + behind <= room, quiet_to=quiet_to)

    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def changes(self, position: Position) -> Position:
        assert self._limit is not None
        return Position.from_dict(super().latestOffset(position.as_dict(), self._limit))

    def tables(self, after: TableName | None) -> list[TableName]:
        for name in self._tables().tables():
            if (after is None or name > after) and self._is_read(name):
                return [name]
        return []

    def _is_read(self, name: TableName) -> bool:
        """True if the consumer reads the table. Only then will the stream get the table's changes after its rows."""
        try:
            self._client_now().table(".".join(name))
        except BinlogError as error:
            if error.kind is not ErrorKind.UNKNOWN_TABLE:
                raise
            log.warning("%s.%s: its rows are left out of the snapshot: %s", *name, error.what)
            return False
        return True

    def selects(self, table: TableName) -> bool:
        selected = self._tables().selects(table)
        if not selected and table not in self._warned_of:
            self._warned_of.add(table)
            log.warning(
                "%s.%s: the options no longer select it, so the snapshot leaves out its remaining rows",
                *table,
            )
        return selected

    def key(self, table: TableName) -> tuple[KeyPart, ...]:
        return self._tables().key(table)

    def upper(self, table: TableName, after: Bound | None) -> Bound | None:
        chunks, rows = self._tables().next_chunks(
            table, after, self._chunk_bytes(), self._options.max_partitions
        )
        per_second = self._options.snapshot.rows_per_second if self._options.snapshot else 0
        if per_second:
            self._due_at = time.monotonic() + len(chunks) * rows / per_second
        self._ranges = table, after, chunks
        return chunks[-1].upper

    def head(self) -> tuple[int, int]:
        return self._head_now().order

    def _chunk_bytes(self) -> int:
        """Returns the approximate number of bytes of rows that one task reads."""
        assert self._session is not None
        limit = self._limit
        if limit is None or isinstance(limit, ReadAllAvailable):
            most = self._options.max_bytes or _READ_ALL_BYTES
        else:
            most = self._max_bytes(limit, self._session) or _READ_ALL_BYTES
        return max(1, most // self._options.max_partitions)
