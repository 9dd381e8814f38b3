"""The index of the transactions that a queue holds, and of the positions between them. The index takes little memory,
and is searched by bisection.

A queue without a reader may hold a hundred thousand tiny transactions, each from another batch. So a `GtidRun` collects
the numbers that describe the transactions of many batches, in one column per transaction, and keeps no reference to a
batch.

A run does not store the positions after its transactions. It computes a position when one is needed. A run has a
*base*: the consumer's GTID set before the run's first transaction. A run also has an *interval log*: the intervals that
were added to the set after the base, in order, including the intervals of transactions that the consumer does not get.
For each transaction, the run records its place in that log.

Consecutive intervals of one source are joined, so with one source the interval log has one entry, whatever the length
of the run. Between two transactions of the consumer may lie transactions that it does not get: their intervals are the
*gap*. The intervals of a gap are sorted by source before they are added, so the log is hardly longer than the run even
if several sources alternate.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from dispatcher.dispatch.values.executed_position import BatchGtids, ExecutedPosition, Gtids
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.copying import Appended

# The fields of a transaction's column. The first fields come from the consumer's log: logical end, seq, offset after
# the transaction, events, commit time in microseconds since 1970 UTC. Then follows the place in the interval log: the
# index of the interval (-1 = before all intervals), and the number up to which that interval counts.
_AT, _GNO_END = k.TX, k.NUMBER_END
_FIELDS = k.DONE_SIZE

Columns = NDArray[np.int64]  # one row per field, one column per transaction
FEW = 8  # if a batch has at most this many runs, they are handled one by one
_Interval = tuple[str, int, int]  # source, first number, last number + 1


class GtidRun:
    """Transactions of one file. `number`: the number of the run's first transaction in the queue."""

    __slots__ = ("base", "columns", "count", "file", "intervals", "number")

    def __init__(self, base: Gtids, file: str, number: int) -> None:
        self.base = base
        self.file = file
        self.number = number
        self.intervals: list[_Interval] = []
        self.columns: Columns = np.empty((_FIELDS, 0), dtype=np.int64)
        self.count = 0

    def field(self, index: int) -> NDArray[np.int64]:
        return self.columns[index, : self.count]

    def add_interval(self, source: str, start: int, end: int) -> None:
        intervals = self.intervals
        if intervals and intervals[-1][0] == source and intervals[-1][2] == start:
            intervals[-1] = source, intervals[-1][1], end
        else:
            intervals.append((source, start, end))

    def add_columns(self, n: int) -> Columns:
        """Returns the columns of `n` more transactions, to be filled."""
        need = self.count + n
        if need > self.columns.shape[1]:
            columns: Columns = np.empty((_FIELDS, 2 * need), dtype=np.int64)
            columns[:, : self.count] = self.columns[:, : self.count]
            self.columns = columns
        self.count = need
        return self.columns[:, need - n : need]

    def executed_after(self, index: int) -> ExecutedPosition:
        """Returns the position after a transaction."""
        gtids, at = self.base, int(self.columns[_AT, index])
        for source, start, end in self.intervals[: max(at, 0)]:
            gtids = gtids.add(source, start, end)
        if at >= 0:
            source, start, _ = self.intervals[at]
            gtids = gtids.add(source, start, int(self.columns[_GNO_END, index]))
        offset = int(self.columns[k.OFFSET, index]) if self.file else 0
        return ExecutedPosition(gtids, self.file, offset, self.seq(index))

    def seq(self, index: int) -> int:
        return int(self.columns[k.SEQ, index])


class TransactionIndex:
    """A queue's transactions, numbered from the first transaction that it ever held. The transactions with numbers
    below `dropped` were dropped; the next transaction gets the number `count`."""

    RUN_MAX = 1024  # most transactions of a run; a batch that does not fit begins a new run
    INTERVALS_MAX = 4096

    def __init__(self) -> None:
        self.dropped = self.count = 0
        self._runs: list[GtidRun] = []
        self._gap: dict[str, list[_Interval]] = {}
        self._gap_is_lost = False  # the gap was too long, so the next transaction begins a run

    def __bool__(self) -> bool:
        return self.count > self.dropped

    # -- filling ---------------------------------------------------------------------------------------------

    def extend(self, gtids: BatchGtids, n: int) -> bool:
        """Add `n` transactions of a batch. The kernel has already appended their columns to the columns of the newest
        run. Returns False if the transactions do not continue this run; then the caller must call `add`."""
        if self.count == self.dropped or self._gap_is_lost or not gtids.is_one_run:
            return False
        run = self._runs[-1]
        if run.file != gtids.file or run.count + n > self.RUN_MAX:
            return False
        intervals = run.intervals
        places = len(intervals)
        if self._gap:
            self._close_gap(run)
        source, start, end, _ = gtids.runs[0]
        last = intervals[-1] if intervals else None
        if last is None or last[2] != start or last[0] != source or len(intervals) != places:
            return False
        intervals[-1] = source, last[1], end
        run.count += n
        self.count += n
        return True

    def add(self, gtids: BatchGtids, base: Gtids, appended: Appended) -> GtidRun:
        """Add the transactions, at least one, of a batch that were appended to the log. Returns the run that contains
        the last of these transactions. `base`: the consumer's GTIDs before the batch."""
        n = appended.columns.shape[1]
        run = self._runs[-1] if self.count > self.dropped else None
        if run is None or not self._fits(run, gtids, n):
            self._forget_gap()  # the base contains the gap
            run = GtidRun(base, gtids.file, self.count)
            self._runs.append(run)
        if self._gap:
            self._close_gap(run)
        columns = run.add_columns(n)
        columns[:] = appended.columns
        self.count += n
        if gtids.is_one_run:  # nearly always true
            source, start, end, _ = gtids.runs[0]
            run.add_interval(source, start, end)
            columns[_AT] = len(run.intervals) - 1
            return run
        columns[_AT], columns[_GNO_END], last = self._locate(run, gtids, appended.tx)
        self._widen_gap(gtids, last + 1, len(gtids.runs))
        return run

    def skip_batch(self, gtids: BatchGtids) -> None:
        """Pass over a batch that moves the consumer's position but has no transaction for the consumer."""
        if not self or self._gap_is_lost:
            return
        self._widen_gap(gtids, 0, len(gtids.runs))
        if self._gap_size() > self.INTERVALS_MAX:
            self._gap.clear()
            self._gap_is_lost = True

    def _gap_size(self) -> int:
        return sum(map(len, self._gap.values())) if self._gap else 0

    def _forget_gap(self) -> None:
        self._gap.clear()
        self._gap_is_lost = False

    def _fits(self, run: GtidRun, gtids: BatchGtids, n: int) -> bool:
        if run.count + n > self.RUN_MAX or self._gap_is_lost or run.file != gtids.file:
            return False
        return len(run.intervals) + len(gtids.runs) + self._gap_size() <= self.INTERVALS_MAX

    def _widen_gap(self, gtids: BatchGtids, lo: int, hi: int) -> None:
        """Add the runs [lo, hi) of a batch to the gap. The gap orders its sources by their last runs: a MariaDB
        position contains only the last GTID of each domain, so the interval that contains this GTID must be added
        last."""
        if hi - lo <= FEW:
            runs = [(0, source, start, end) for source, start, end, _ in gtids.runs[lo:hi]]
        else:
            runs = sorted(part for ranges in gtids.ranges for part in ranges.between(lo, hi))
        for _, source, start, end in runs:
            intervals = self._gap.pop(source, [])
            if intervals and intervals[-1][2] == start:
                intervals[-1] = source, intervals[-1][1], end
            else:
                intervals.append((source, start, end))
            self._gap[source] = intervals

    def _close_gap(self, run: GtidRun) -> None:
        for intervals in self._gap.values():
            for source, start, end in intervals:
                run.add_interval(source, start, end)
        self._gap.clear()

    def _locate(
        self, run: GtidRun, gtids: BatchGtids, tx: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Add the intervals up to the last of the transactions `tx`. Returns two arrays with the place of each
        transaction in the interval log (index, number), and the index of the last used run in `gtids.runs`."""
        at, number = len(run.intervals) - 1, run.intervals[-1][2] if run.intervals else 0
        if not gtids.runs:
            return _same(len(tx), at), _same(len(tx), number), -1
        starts, ends, firsts = gtids.columns
        which = np.searchsorted(firsts, tx, side="right") - 1
        gno_end = np.minimum(ends[which], starts[which] + tx - firsts[which] + 1)
        gno_end[which < 0] = number  # transactions before the first run
        used = np.unique(which[which >= 0])
        # `located[n]` is the index of run n in the interval log; `located[-1]` is the index for transactions before the
        # first run.
        located = np.full(len(gtids.runs) + 1, at)
        done = -1
        groups = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else []
        for group in groups:
            lo, hi = int(group[0]), int(group[-1]) + 1
            if lo > done + 1:
                self._widen_gap(gtids, done + 1, lo)
                self._close_gap(run)
            run.add_interval(*gtids.runs[lo][:3])
            located[lo:hi] = np.arange(len(run.intervals) - 1, len(run.intervals) - 1 + hi - lo)
            run.intervals += [interval[:3] for interval in gtids.runs[lo + 1 : hi]]
            done = hi - 1
        return located[which], gno_end, done

    # -- finding ---------------------------------------------------------------------------------------------

    def count_to(self, end: int) -> int:
        """Returns the number of the first transaction that ends after a logical offset."""
        return self._find(k.END, end)

    def count_seq(self, seq: int) -> int:
        """Returns the number of the first transaction with a higher seq."""
        return self._find(k.SEQ, seq)

    def _find(self, field: int, value: int) -> int:
        at = bisect_right(self._runs, value, key=lambda run: int(run.columns[field, run.count - 1]))
        if at == len(self._runs):
            return self.count
        run = self._runs[at]
        number = run.number + int(run.field(field).searchsorted(value, side="right"))
        return max(number, self.dropped)

    def at(self, number: int) -> tuple[GtidRun, int]:
        """Returns the run that contains a transaction, and its index in the run."""
        run = self._runs[bisect_right(self._runs, number, key=lambda run: run.number) - 1]
        return run, number - run.number

    def end(self, number: int) -> int:
        """Returns the logical end of a transaction."""
        run, index = self.at(number)
        return int(run.columns[k.END, index])

    def seq(self, number: int) -> int:
        run, index = self.at(number)
        return run.seq(index)

    def executed_after(self, number: int) -> ExecutedPosition:
        """Returns the position after a transaction."""
        run, index = self.at(number)
        return run.executed_after(index)

    def commit_us(self, number: int) -> int:
        run, index = self.at(number)
        return int(run.columns[k.COMMIT_US, index])

    # -- dropping --------------------------------------------------------------------------------------------

    def drop(self, last: int) -> tuple[int, int]:
        """Drop the transactions before the one with the number `last`. Returns how many transactions and how many
        events were dropped."""
        first = self.dropped
        events = 0
        for run in self._runs:
            if run.number >= last:
                break
            lo, hi = max(first - run.number, 0), min(last - run.number, run.count)
            events += int(run.columns[k.EVENTS, lo:hi].sum())
        self.dropped = last
        gone = bisect_right(self._runs, last, key=lambda run: run.number + run.count)
        del self._runs[:gone]
        if not self:
            self._forget_gap()
        return last - first, events

    def without_files(self) -> None:
        """Forget the files: another server has the same transactions in other files."""
        for run in self._runs:
            run.file = ""

    def clear(self) -> None:
        self.dropped = self.count
        self._runs.clear()
        self._forget_gap()


def _same(n: int, value: int) -> NDArray[np.int64]:
    return np.full(n, value, dtype=np.int64)
