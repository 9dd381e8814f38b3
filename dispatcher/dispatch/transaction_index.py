"""Which transactions a queue holds, and the places between them: small, and found by bisection.

A stuck consumer may hold a hundred thousand tiny transactions, each from a batch of its own. So rows of numbers, one
per transaction, are gathered from many batches into a `GtidRun`, and nothing of a batch is kept.

A place is added up from GTIDs when somebody asks for it: a run has its *base*, the consumer's set before its first
transaction, and a *trail*, the intervals that were added to it since, in order, with those of transactions that are not
the consumer's own. Each row knows how far along the trail it lies. Intervals of one source that follow each other are
one, so that with one source a trail has one entry, however long it is. With several that take turns, what lies between
two transactions of the consumer's own (the *gap*) is put in order by source before it counts, so a trail is not longer
than the rows and a few.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.stream.consumer_log import AppendResult
from dispatcher.dispatch.executed_position import BatchGtids, ExecutedPosition, Gtids

# Of a transaction: logical end, seq, offset after it, events, commit time in microseconds since 1970 UTC; and how far
# along the trail it lies: index of the interval (-1 = before all), and the number up to which that is in.
_END, _SEQ, _OFFSET, _EVENTS, _COMMIT_US, _AT, _GNO_END = _COLUMNS = range(7)

Rows = NDArray[np.int64]  # one row per column, one column per transaction
FEW = 8  # runs of a batch that are looked at one by one
_Interval = tuple[str, int, int]  # source, first number, last number + 1


class GtidRun:
    """Transactions of one file. `number`: of its first transaction, counted from the queue's first."""

    __slots__ = ("base", "count", "file", "number", "rows", "trail")

    def __init__(self, base: Gtids, file: str, number: int) -> None:
        self.base = base
        self.file = file
        self.number = number
        self.trail: list[_Interval] = []
        self.rows: Rows = np.empty((len(_COLUMNS), 0), dtype=np.int64)
        self.count = 0

    def column(self, which: int) -> NDArray[np.int64]:
        return self.rows[which, : self.count]

    def go(self, source: str, start: int, end: int) -> None:
        """Add an interval to the trail."""
        if self.trail and self.trail[-1][0] == source and self.trail[-1][2] == start:
            self.trail[-1] = source, self.trail[-1][1], end
        else:
            self.trail.append((source, start, end))

    def room(self, n: int) -> Rows:
        """Columns for `n` more transactions."""
        need = self.count + n
        if need > self.rows.shape[1]:
            rows: Rows = np.empty((len(_COLUMNS), max(need, 2 * self.count)), dtype=np.int64)
            rows[:, : self.count] = self.rows[:, : self.count]
            self.rows = rows
        self.count = need
        return self.rows[:, need - n : need]

    def place(self, index: int) -> ExecutedPosition:
        gtids, at = self.base, int(self.rows[_AT, index])
        for source, start, end in self.trail[: max(at, 0)]:
            gtids = gtids.add(source, start, end)
        if at >= 0:
            source, start, _ = self.trail[at]
            gtids = gtids.add(source, start, int(self.rows[_GNO_END, index]))
        offset = int(self.rows[_OFFSET, index]) if self.file else 0
        return ExecutedPosition(gtids, self.file, offset, self.seq(index))

    def seq(self, index: int) -> int:
        return int(self.rows[_SEQ, index])


class TransactionIndex:
    """A queue's transactions, numbered from its first on; those below `dropped` are forgotten, `count` is the next."""

    ROWS_MAX = 1024  # of a run that more is added to
    TRAIL_MAX = 4096

    def __init__(self) -> None:
        self.dropped = self.count = 0
        self._runs: list[GtidRun] = []
        self._gap: dict[str, list[_Interval]] = {}
        self._gap_is_lost = False  # it was too long: the next transaction begins a run

    def __bool__(self) -> bool:
        return self.count > self.dropped

    # -- filling ---------------------------------------------------------------------------------------------

    def add(
        self, steps: BatchGtids, base: Gtids, taken: AppendResult, commit_us: NDArray[np.int64]
    ) -> None:
        """What was taken of a batch, at least one transaction. `base`: the consumer's GTIDs before the batch."""
        n = len(taken.tx)
        run = self._runs[-1] if self else None
        if run is None or not self._fits(run, steps, n):
            self._forget_gap()  # the base has it
            run = GtidRun(base, steps.file, self.count)
            self._runs.append(run)
        self._close_gap(run)
        at, gno_end, last = self._walk(run, steps, taken.tx)
        rows = run.room(n)
        rows[_END], rows[_SEQ], rows[_EVENTS] = taken.end, taken.seq, taken.events
        rows[_OFFSET], rows[_COMMIT_US] = steps.end[taken.tx], commit_us
        rows[_AT], rows[_GNO_END] = at, gno_end
        self.count += n
        self._widen_gap(steps, last + 1, len(steps.runs))

    def pass_over(self, steps: BatchGtids) -> None:
        """A batch without anything of the consumer's own, which moved its place."""
        if not self or self._gap_is_lost:
            return
        self._widen_gap(steps, 0, len(steps.runs))
        if self._gap_size() > self.TRAIL_MAX:
            self._gap.clear()
            self._gap_is_lost = True

    def _gap_size(self) -> int:
        return sum(map(len, self._gap.values()))

    def _forget_gap(self) -> None:
        self._gap.clear()
        self._gap_is_lost = False

    def _fits(self, run: GtidRun, steps: BatchGtids, n: int) -> bool:
        trail = len(run.trail) + len(steps.runs) + self._gap_size()
        small = run.count + n <= self.ROWS_MAX and trail <= self.TRAIL_MAX
        return small and run.file == steps.file and not self._gap_is_lost

    def _widen_gap(self, steps: BatchGtids, lo: int, hi: int) -> None:
        """Runs [lo, hi) of a batch. By the last of each source: for MariaDB that is the one that counts of a domain."""
        if hi - lo <= FEW:
            found = [(0, source, start, end) for source, start, end, _ in steps.runs[lo:hi]]
        else:
            found = sorted(part for track in steps.tracks for part in track.between(lo, hi))
        for _, source, start, end in found:
            intervals = self._gap.pop(source, [])
            if intervals and intervals[-1][2] == start:
                intervals[-1] = source, intervals[-1][1], end
            else:
                intervals.append((source, start, end))
            self._gap[source] = intervals

    def _close_gap(self, run: GtidRun) -> None:
        for intervals in self._gap.values():
            for source, start, end in intervals:
                run.go(source, start, end)
        self._gap.clear()

    def _walk(
        self, run: GtidRun, steps: BatchGtids, tx: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Go along the trail to the last of the transactions: how far each lies, and the last of `steps.runs` used."""
        at, number = len(run.trail) - 1, run.trail[-1][2] if run.trail else 0
        if not steps.runs:
            return _same(len(tx), at), _same(len(tx), number), -1
        if len(steps.runs) == 1 and tx[0] >= steps.runs[0][3]:  # as nearly always
            source, start, end, first = steps.runs[0]
            run.go(source, start, end)
            gno_end = np.minimum(tx + np.int64(start - first + 1), end)
            return _same(len(tx), len(run.trail) - 1), gno_end, 0
        starts, ends, firsts = steps.columns
        which = np.searchsorted(firsts, tx, side="right") - 1
        gno_end = np.minimum(ends[which], starts[which] + tx - firsts[which] + 1)
        gno_end[which < 0] = number  # before the first of them
        used = np.unique(which[which >= 0])
        places = np.full(
            len(steps.runs) + 1, at
        )  # on the trail, by index among the runs; -1 is the last
        done = -1
        groups = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else []
        for group in groups:
            lo, hi = int(group[0]), int(group[-1]) + 1
            if lo > done + 1:
                self._widen_gap(steps, done + 1, lo)
                self._close_gap(run)
            run.go(*steps.runs[lo][:3])
            places[lo:hi] = np.arange(len(run.trail) - 1, len(run.trail) - 1 + hi - lo)
            run.trail += [interval[:3] for interval in steps.runs[lo + 1 : hi]]
            done = hi - 1
        return places[which], gno_end, done

    # -- finding ---------------------------------------------------------------------------------------------

    def count_to(self, end: int) -> int:
        """Number of the first transaction that ends behind a logical offset."""
        return self._find(_END, end)

    def count_seq(self, seq: int) -> int:
        """Number of the first transaction with a higher seq."""
        return self._find(_SEQ, seq)

    def _find(self, column: int, value: int) -> int:
        at = bisect_right(self._runs, value, key=lambda run: int(run.rows[column, run.count - 1]))
        if at == len(self._runs):
            return self.count
        run = self._runs[at]
        found = run.number + int(np.searchsorted(run.column(column), value, side="right"))
        return max(found, self.dropped)

    def at(self, number: int) -> tuple[GtidRun, int]:
        """The run that a transaction is in, and its index there."""
        run = self._runs[bisect_right(self._runs, number, key=_number) - 1]
        return run, number - run.number

    def end(self, number: int) -> int:
        """Logical end of a transaction."""
        run, index = self.at(number)
        return int(run.rows[_END, index])

    def seq(self, number: int) -> int:
        run, index = self.at(number)
        return run.seq(index)

    def place(self, number: int) -> ExecutedPosition:
        """The place after a transaction."""
        run, index = self.at(number)
        return run.place(index)

    def commit_us(self, number: int) -> int:
        run, index = self.at(number)
        return int(run.rows[_COMMIT_US, index])

    # -- forgetting ------------------------------------------------------------------------------------------

    def drop(self, end: int) -> tuple[int, int]:
        """Forget what ends at or before a logical offset; number of transactions and of events that were."""
        first, last = self.dropped, self.count_to(end)
        events = 0
        for run in self._runs:
            if run.number >= last:
                break
            lo, hi = max(first - run.number, 0), min(last - run.number, run.count)
            events += int(run.rows[_EVENTS, lo:hi].sum())
        self.dropped = last
        gone = bisect_right(self._runs, last, key=lambda run: run.number + run.count)
        del self._runs[:gone]
        if not self:
            self._forget_gap()
        return last - first, events

    def without_files(self) -> None:
        """The files that they came from are not those of the server any more."""
        for run in self._runs:
            run.file = ""

    def clear(self) -> None:
        self.dropped = self.count
        self._runs.clear()
        self._forget_gap()


def _number(run: GtidRun) -> int:
    return run.number


def _same(n: int, value: int) -> NDArray[np.int64]:
    return np.full(n, value, dtype=np.int64)
