"""Plans the batches of a stream that begins with a snapshot, by applying the rules to the answers of server and daemon.

The planner calls the server and the daemon through `Sources`. The simulation in the tests replaces `Sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dispatcher.model.position import Position
from spark_sink.source.snapshot import rules
from spark_sink.source.snapshot.rules import Backlog, Bound, KeyPart, SnapshotState, TableName


class Sources(Protocol):
    """The calls of the planner to the daemon and the server. Each of them may raise `BinlogError`."""

    def session_at(self, position: Position) -> int:
        """Returns the number of this process's session. Opens the session at the position if no session is open yet."""

    def backlog(self, position: Position) -> Backlog:
        """Returns the backlog after a position."""

    def is_due(self) -> bool:
        """True if the limit of rows per second allows the stream to read a chunk now."""

    def changes(self, position: Position) -> Position:
        """Returns the end of a batch of changes after `position`; returns `position` if there are no changes yet."""

    def tables(self, after: TableName | None) -> Sequence[TableName]:
        """Returns the server's tables that the stream selects and the consumer reads: at least the first one whose name
        is greater than `after`."""

    def selects(self, table: TableName) -> bool:
        """True if the stream selects the table. The answer can change when a query is started again with other
        options."""

    def key(self, table: TableName) -> tuple[KeyPart, ...]:
        """Returns the key of a table; () if the table has no key."""

    def upper(self, table: TableName, after: Bound | None) -> Bound | None:
        """Returns the end of the next chunk, None for the rest of the table."""

    def head(self) -> tuple[int, int]:
        """Returns the server's newest place."""


class SnapshotPlanner:
    """Plans the batches of one process."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._planned: SnapshotState | None = None  # with the chunk that this process planned last
        # The state with which a planned batch ends, and True if this batch has the rows of the state's chunk.
        self._read: tuple[SnapshotState, bool] | None = None

    def next(
        self, position: Position, state: SnapshotState
    ) -> tuple[Position, SnapshotState | None] | None:
        """Returns the position and the state at the end of the next batch; None if there is no batch to plan now.
        `position`, `state`: the end of the last committed batch. A returned state of None means that the snapshot is
        over."""
        session = self._sources.session_at(position)
        read_here = self._read[1] if self._read is not None and self._read[0] == state else None
        state = rules.settled(state, read=rules.is_settled(state, session, read_here))
        if state.table is not None and not state.whole and not self._sources.selects(state.table):
            state = rules.without_rest(state)
        start = position
        while not rules.is_over(state, position.order):
            backlog = self._sources.backlog(start)
            # Transactions without changes for the stream need no separate batch.
            position = backlog.quiet_to
            if rules.is_over(state, position.order):
                break
            step = rules.next_step(state, backlog, due=self._sources.is_due())
            if step is rules.Step.CHANGES:
                end = self._sources.changes(start)
                return None if end == start else (end, rules.with_changes(state))
            if state.chunk is None and (state.table is None or state.whole):
                names = self._sources.tables(state.table)
                table = rules.next_table(state, names)
                if table is None:
                    state = rules.all_read(state, self._sources.head())
                    continue
                state = rules.with_table(state, table, self._sources.key(table))
            return position, self._chunk(state, session)
        return position, None

    def _chunk(self, state: SnapshotState, session: int) -> SnapshotState:
        table = state.table
        assert table is not None
        rules.check_key(state, self._sources.key(table))
        upper = None if state.chunk else self._sources.upper(table, state.after)
        self._planned = rules.with_chunk(state, upper, session)
        return self._planned

    def reads(self, position: Position, state: SnapshotState) -> bool:
        """True if the batch at `position` gets the rows of the state's chunk. If an earlier process has planned the
        batch, the batch gets the rows only if the queue can hold all changes up to the server's newest position. The
        batch gets no rows of a table that the stream no longer selects."""
        self._sources.session_at(position)
        assert state.table is not None
        read = self._sources.selects(state.table) and (
            state == self._planned or self._sources.backlog(position).servable
        )
        self._read = state, read
        return read
