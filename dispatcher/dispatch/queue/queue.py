"""A consumer's queue as its readers see it: ranges of complete transactions that are not acknowledged, as bytes.

The module `queue_contents` describes what the queue holds, how it is filled, and how much memory it takes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter

from dispatcher.binlog.event.header import MAGIC, FormatDescription
from dispatcher.dispatch.queue.queue_contents import FoundPosition, QueueContents
from dispatcher.dispatch.queue.queue_ranges import (
    RangeCut,
    RangeEnd,
    balanced_cuts,
    formatted_bytes,
    inside_end,
)
from dispatcher.dispatch.queue.transaction_index import GtidRun
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    without_file,
)
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position

_seq = attrgetter("seq")


@dataclass(frozen=True, slots=True)
class QueuedTransaction:
    """One transaction. The object stays valid when the queue changes. The transaction's bytes are `format`, then
    `parts`."""

    server: str
    epoch: int
    run: GtidRun
    index: int
    format: FormatDescription
    parts: list[memoryview]

    @property
    def seq(self) -> int:
        return self.run.seq(self.index)

    @property
    def position(self) -> Position:
        """The position after the transaction."""
        return self.run.executed_after(self.index).position(self.server, self.epoch)


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """What a reader can read next: the position at the end of the range, its bytes and its number of transactions."""

    end: Position
    bytes: int
    transactions: int


@dataclass(frozen=True, slots=True)
class HeldRange:
    """What a queue holds: the transactions between two positions. `anchored`: True if all transactions up to
    `acknowledged` lie before the file and offset of `acknowledged`, see `QueueFiles`."""

    mode: Mode
    acknowledged: ExecutedPosition
    queued: ExecutedPosition
    anchored: bool


class Queue(QueueContents):
    """A queue with the operations that readers need."""

    @property
    def held(self) -> HeldRange:
        anchored = self.files.is_anchored(self.acknowledged)
        return HeldRange(self.mode, self.acknowledged, self.queued, anchored)

    def position(self, executed: ExecutedPosition) -> Position:
        return executed.position(self.server, self.epoch)

    def locate(self, position: Position) -> FoundPosition:
        """Returns the place of a position that was returned to a reader and is not yet acknowledged.

        The result contains the executed position that the queue has recorded at the position's seq. If the queue has
        recorded no position at this seq, the result contains the nearest recorded position before it; no transaction of
        the consumer lies between the two. The queue finds the place by the seq alone, and only checks the position's
        other fields.

        Raises UserError if the position is older than the acknowledged one, is ahead of what is queued
        (`RANGE_UNAVAILABLE`), or belongs to another history.
        """
        return self._remembered(position) or self._locate(position)

    def _locate(self, position: Position) -> FoundPosition:
        self.check_history(position)
        if not self.acknowledged.seq <= position.seq <= self.queued.seq:
            self.executed_of(position)
        if position.seq < self.acknowledged.seq:
            raise _unknown(
                f"seq {position.seq} is older than the acknowledged {self.acknowledged.seq}"
            )
        if position.seq > self.queued.seq:
            raise UserError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"the daemon has not read seq {position.seq} yet, only up to seq {self.queued.seq}",
            )
        count = self._index.count_seq(position.seq)
        queued = count > self._index.dropped
        executed = self._recorded(position.seq, count - 1 if queued else None)
        self._check_parts(position, executed)
        offset = self._index.end(count - 1) if queued else self._acknowledged_end
        return FoundPosition(position, executed, count, offset)

    def _recorded(self, seq: int, number: int | None) -> ExecutedPosition:
        """Returns the newest recorded position up to a seq. `number`: the number of the last transaction up to that
        seq."""
        positions = [self.acknowledged, self.covered, self.queued, *self._delivered]
        best = max((executed for executed in positions if executed.seq <= seq), key=_seq)
        if number is not None and best.seq < seq and best.seq < self._index.seq(number):
            return self._index.executed_after(number)
        return best

    def _check_parts(self, position: Position, recorded: ExecutedPosition) -> None:
        """Raises UserError if a position contradicts `recorded`, whose seq is not greater than the position's."""
        exact = position.seq == recorded.seq
        if exact and position.gtid == str(recorded.gtids) and self.mode.by_gtid:
            return
        named = self.executed_of(position)
        if not self.mode.by_gtid:
            if exact and named.file != recorded.file:
                raise _unknown(f"at its offset the log is in the file {recorded.file}")
        elif exact and named.gtids != recorded.gtids:
            raise _unknown("its GTID set is not what this consumer has read up to its seq")
        elif not (named.contains(recorded) and self.queued.contains(named)):
            raise _unknown("its GTID set is not part of what this consumer has read")

    def check_history(self, position: Position) -> None:
        """Raises UserError for a position of another epoch or, without GTIDs, of another server.

        With GTIDs another server is accepted, because a set means the same on every replica.
        """
        if position.server != self.server and not self.mode.by_gtid:
            raise _unknown(
                f"it belongs to server {position.server[:64]!r}; this consumer reads {self.server!r}"
            )
        self.check_epoch(position)

    def check_epoch(self, position: Position) -> None:
        """Raises UserError for a position of another epoch."""
        if position.epoch != self.epoch:
            raise _unknown(
                f"it belongs to epoch {position.epoch}; this consumer reads epoch {self.epoch}"
            )

    def executed_of(self, position: Position) -> ExecutedPosition:
        """Returns a position as an executed position. Raises UserError unless the position belongs to this history and
        its parts fit each other."""
        self.check_history(position)
        executed = executed_of(self.mode, position)
        if not executed.seq_fits(self.mode):
            parts = "GTID set" if self.mode.by_gtid else "file and offset"
            raise _unknown(f"its seq does not fit its {parts}")
        if self.mode.by_gtid and position.server != self.server:
            return without_file(executed)
        return executed

    def readable(
        self, after: Position, bytes_max: int, transactions_max: int | None = None
    ) -> ReadableRange:
        """Returns what can be read after a position: whole transactions, and at least one if the queue has any."""
        start, index = self.locate(after), self._index
        first, last = start.number, index.count
        if first == last:
            return ReadableRange(self.position(self.queued), 0, 0)
        if start.offset + bytes_max < self.log.committed:
            last = index.count_to(start.offset + bytes_max)
        if transactions_max is not None:
            last = min(last, first + transactions_max)
        last = max(last, first + 1)
        # If the range contains the queue's last transaction, the range also contains the markers after that
        # transaction.
        end = self.queued if last == index.count else index.executed_after(last - 1)
        range_end = FoundPosition(self.position(end), end, last, index.end(last - 1))
        self._found = start, range_end
        return ReadableRange(range_end.position, range_end.offset - start.offset, last - first)

    def deliver(self, end: Position) -> None:
        """Record that `end` of the newest readable range was returned to a reader."""
        self.delivered_seq = max(self.delivered_seq, end.seq)
        # For a position after markers, this is the only record.
        recorded = self._delivered[-1].seq if self._delivered else -1
        if recorded < end.seq == self.queued.seq:
            self._delivered.append(self.queued)

    def cut_points(
        self, start: Position, end: Position, n: int, *, inside: bool = False
    ) -> list[RangeCut]:
        """Returns at most n - 1 places between `start` and `end` that divide the range into parts of similar size: at
        transaction boundaries and, with `inside`, also inside large transactions."""
        lo, hi = self.locate(start).offset, self.locate(end).offset
        cuts = balanced_cuts(self._index, self.log, lo, hi, n, inside=inside)
        return [
            RangeCut(
                self.position(self._index.executed_after(cut.number)),
                cut.point.value if cut.point else None,
            )
            for cut in cuts
        ]

    def range_bytes(self, start: Position, end: Position) -> int:
        """Returns the number of bytes in (start, end]."""
        return self.locate(end).offset - self.locate(start).offset

    def range_transactions(self, start: Position, end: Position) -> int:
        """Returns the number of transactions in (start, end]."""
        return self.locate(end).number - self.locate(start).number

    def _range_end(self, position: Position, inside: EventPoint | None) -> RangeEnd:
        """Returns an end of a range. Raises UserError as `locate` does, or if the transaction that ends at the position
        has no such point."""
        offset = self.locate(position).offset
        if inside is None:
            return RangeEnd(offset)
        return inside_end(
            self._index, self.log, self._acknowledged_end, position.seq, offset, inside
        )

    def read(
        self,
        start: Position,
        end: Position,
        start_event: EventPoint | None = None,
        end_event: EventPoint | None = None,
    ) -> list[bytes | memoryview]:
        """Returns the binlog of (start, end]: magic, then FORMAT_DESCRIPTION wherever it changes, and the
        transactions.

        With `start_event`, the range begins inside the transaction that ends at `start`, at this point. The returned
        binlog then begins with the events that a reader needs to decode the rest of the transaction. With `end_event`,
        the range ends inside the transaction that ends at `end`, at this point.
        """
        begin = self._range_end(start, start_event)
        lo, hi = begin.offset, self._range_end(end, end_event).offset
        if hi < lo:
            raise _unknown("the range ends before it starts")
        return [MAGIC, *formatted_bytes(self._formats, self.log, begin, hi)]

    def transactions_in(self, start: Position, end: Position) -> list[QueuedTransaction]:
        """Returns the transactions in (start, end]."""
        begins, ends = self.locate(start), self.locate(end)
        at = begins.offset
        formats = [start for start, _ in self._formats]
        out = []
        for number in range(begins.number, ends.number):
            run, index = self._index.at(number)
            begin, at = at, self._index.end(number)
            format_ = self._formats[bisect_right(formats, begin) - 1][1]
            parts = self.log.read(begin, at)
            out.append(QueuedTransaction(self.server, self.epoch, run, index, format_, parts))
        return out

    def acknowledge(self, position: Position) -> None:
        """Drop everything up to a position that `locate` has found and that has been stored since."""
        _, executed, number, end = self.locate(position)
        if executed.seq < position.seq:
            # The queue moved on while the position was being stored, and has no recorded position at this seq any more.
            executed = self.executed_of(position)
        self._acknowledged_end = end
        self.acknowledged = executed
        transactions, events = self._index.drop(number)
        self.transactions -= transactions
        self.events -= events
        while len(self._formats) > 1 and self._formats[1][0] <= end:
            self._formats.popleft()
        self.files.drop_before(executed.file)
        self.log.drop(end)
        while self._delivered and self._delivered[0].seq <= executed.seq:
            self._delivered.popleft()
        self.delivered_seq = max(self.delivered_seq, executed.seq)


def _unknown(why: str) -> UserError:
    return UserError(ErrorKind.POSITION_UNKNOWN, why)
