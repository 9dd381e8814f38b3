"""The position up to which a server's log has been read. The daemon computes all other kinds of positions from this
one.

A position has one of two forms. With GTIDs it is the set of executed transactions. With MySQL's GTIDs its `seq` is the
size of that set. So `seq` grows by one with every transaction and has the same meaning after a restart. With several
hosts of MariaDB the set is the newest GTID of each domain, and `seq` is the sum of their sequence numbers, which grows
with every transaction, too. In all other modes (MySQL with `gtid_mode` other than ON, one host of MariaDB) a position
is a file and an offset, and `seq` is one number that contains both. A position of one host of MariaDB also contains
MariaDB's GTIDs, which are shown to people.

A single host of MariaDB is not read by GTIDs, because without `gtid_strict_mode` the sequence numbers of a domain need
not ascend in its log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dispatcher.model.gtid import DomainGtids, ExecutedSet, GtidSet, MariadbGtids, domain_of
from dispatcher.model.position import Position, file_number, packed_seq
from dispatcher.stream.batch import ABORTED, OPEN, Batch


class Mode(StrEnum):
    GTID = "gtid"  # MySQL with gtid_mode=ON: positions are GTID sets
    FILE = "file"  # MySQL with another gtid_mode: positions are files and offsets
    MARIADB = "mariadb"  # positions as in FILE, which also contain MariaDB's GTIDs
    DOMAINS = "domains"  # several hosts of MariaDB: positions are the newest GTID of each domain

    @property
    def by_gtid(self) -> bool:
        """True if a position is a set of GTIDs, which means the same on every host. False: a file and an offset."""
        return self is Mode.GTID or self is Mode.DOMAINS

    @property
    def mariadb(self) -> bool:
        return self is Mode.MARIADB or self is Mode.DOMAINS


Gtids = GtidSet | MariadbGtids


@dataclass(frozen=True, slots=True)
class ExecutedPosition:
    """A position between two transactions: the GTIDs that were executed before the position, the file and offset where
    the next transaction begins, and the `seq`."""

    gtids: Gtids
    file: str
    offset: int
    seq: int

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}" if self.file else str(self.gtids) or "the beginning"

    @property
    def log_order(self) -> tuple[int, int]:
        return file_number(self.file), self.offset

    def position(self, server: str, epoch: int) -> Position:
        return Position(server, str(self.gtids), self.file, self.offset, self.seq, epoch)

    def contains(self, other: ExecutedPosition) -> bool:
        """True if this position's GTID set contains the other position's set. Only for positions by GTID."""
        return executed_set(self.gtids).contains(executed_set(other.gtids))

    def seq_fits(self, mode: Mode) -> bool:
        """True if `seq` equals the number that is computed from the GTID set or from the file and offset."""
        if mode.by_gtid:
            return self.seq == len(executed_set(self.gtids))
        return self.seq == packed_seq(self.file, self.offset)


def parse_gtids(mode: Mode, text: str) -> Gtids:
    return MariadbGtids.parse(text) if mode is Mode.MARIADB else parse_set(mode, text)


def parse_set(mode: Mode, text: str) -> ExecutedSet:
    return DomainGtids.parse(text) if mode is Mode.DOMAINS else GtidSet.parse(text)


def executed_set(gtids: Gtids) -> ExecutedSet:
    """Returns the GTIDs of a position by GTID."""
    assert isinstance(gtids, GtidSet | DomainGtids)
    return gtids


def executed_of(mode: Mode, position: Position) -> ExecutedPosition:
    """Converts a `Position` to an `ExecutedPosition`. The result has the `seq` of the position, which is not
    checked."""
    gtids = parse_gtids(mode, position.gtid)
    return ExecutedPosition(gtids, position.file, position.offset, position.seq)


def make_executed(mode: Mode, gtids: str, file: str, offset: int) -> ExecutedPosition:
    """Returns the executed position for values that a person or a server has given, with the `seq` that is computed
    from them."""
    parsed = parse_gtids(mode, gtids)
    if mode.by_gtid:
        return ExecutedPosition(parsed, file, offset, len(executed_set(parsed)))
    return ExecutedPosition(parsed, file, offset, packed_seq(file, offset))


def without_file(executed: ExecutedPosition) -> ExecutedPosition:
    """Returns the position without its file and offset, which are not valid on another server."""
    return ExecutedPosition(executed.gtids, "", 0, executed.seq)


def dump_offset(executed: ExecutedPosition) -> int:
    """Returns the offset at which a dump by file and offset begins.

    COM_BINLOG_DUMP has 32 bits for the offset. If the offset needs more, the dump begins at the start of the file, and
    the daemon skips the transactions before `executed`.
    """
    return executed.offset if executed.offset < 1 << 32 else 4


# Source, first number, last number + 1, index of the first transaction.
GtidRunList = list[tuple[str, int, int, int]]


@dataclass(slots=True)
class GtidRanges:
    """The runs of one source in a batch (see `BatchGtids`), as columns with one value per run. `index`: the run's index
    in `BatchGtids.runs`; `start`, `end`: its numbers are [start, end); `breaks`: how many gaps between the numbers of
    successive runs precede the run."""

    source: str
    index: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    breaks: NDArray[np.int64]

    @classmethod
    def of(cls, source: str, runs: list[tuple[int, int, int]]) -> GtidRanges:
        index, start, end = np.array(runs, dtype=np.int64).T
        return cls(source, index, start, end, np.cumsum(np.r_[False, start[1:] != end[:-1]]))

    def between(self, lo: int, hi: int) -> list[tuple[int, str, int, int]]:
        """Returns this source's runs whose index is in [lo, hi). Runs with consecutive numbers are joined.

        Each tuple contains: index of the last joined run, source, first number, last number + 1.
        """
        out = []
        a, b = np.searchsorted(self.index, (lo, hi)).tolist()
        while a < b:
            stop = min(int(np.searchsorted(self.breaks, self.breaks[a], side="right")), b)
            last = int(self.index[stop - 1])
            out.append((last, self.source, int(self.start[a]), int(self.end[stop - 1])))
            a = stop
        return out


@dataclass(slots=True)
class BatchGtids:
    """The GTIDs and ends of a batch's transactions, shared by all consumers of the batch. `runs`: each run is a series
    of successive transactions with consecutive numbers of one source."""

    file: str
    sources: list[str]
    source: NDArray[np.int32]
    gno: NDArray[np.int64]
    end: NDArray[np.int64]
    ended: NDArray[np.bool_]  # per transaction: True if the transaction is neither open nor aborted
    count: int  # number of transactions that have ended
    runs: GtidRunList
    # True if all ended transactions form one run that begins with the batch's first transaction.
    is_one_run: bool
    _ranges: list[GtidRanges] | None = None
    _columns: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, batch: Batch) -> BatchGtids:
        ended = (batch.tx.flags & (OPEN | ABORTED)) == 0
        source, gno = batch.tx.source.copy(), batch.tx.gno.copy()
        count = int(np.count_nonzero(ended))
        runs = _runs(batch.sources, source, gno, ended)
        is_one_run = False
        if len(runs) == 1:
            _, start, end, first = runs[0]
            is_one_run = first == 0 and end - start == count
        ends = batch.tx.end.copy()
        return cls(batch.file, batch.sources, source, gno, ends, ended, count, runs, is_one_run)

    def after(self, base: Gtids, index: int) -> Gtids:
        """Returns `base` with the GTIDs of the transactions 0 to `index` added."""
        count = len(self.runs)
        while count and self.runs[count - 1][3] > index:
            count -= 1
        for n, (source, start, end, first) in enumerate(self.runs[:count]):
            last = n == count - 1
            base = base.add(source, start, min(end, start + index - first + 1) if last else end)
        return base

    @property
    def columns(self) -> NDArray[np.int64]:
        """Three rows with one column per run: its first number, its last number + 1, the index of its first
        transaction."""
        if self._columns is None:
            self._columns = np.array([run[1:] for run in self.runs], dtype=np.int64).T
        return self._columns

    @property
    def ranges(self) -> list[GtidRanges]:
        """The runs of each source."""
        if self._ranges is None:
            by_source: dict[str, list[tuple[int, int, int]]] = {}
            for n, (source, start, end, _) in enumerate(self.runs):
                by_source.setdefault(source, []).append((n, start, end))
            self._ranges = [GtidRanges.of(source, runs) for source, runs in by_source.items()]
        return self._ranges

    def seqs(self, mode: Mode, before: ExecutedPosition) -> NDArray[np.int64]:
        """Returns the seq of each transaction. `before`: the position before the batch."""
        if not mode.by_gtid:
            return _packed(self.file, self.end)
        return before.seq + np.cumsum(self.gains(before.gtids))

    def gains(self, before: Gtids) -> NDArray[np.int64]:
        """Returns by how much each transaction increases the seq of a position by GTID: a transaction of MySQL by 1, a
        transaction of MariaDB by as much as the newest sequence number of its domain grows. (MariaDB may leave numbers
        out.) `before`: the GTIDs before the batch."""
        gains = self.ended.astype(np.int64)
        if isinstance(before, MariadbGtids):
            numbers = {domain: number for domain, (_, number) in before.domains().items()}
            for source, start, end, first in self.runs:
                domain = domain_of(source)
                number = numbers.get(domain, 0)
                known = min(max(0, number + 1 - start), end - start)
                gains[first : first + known] = 0
                if known < end - start:
                    gains[first + known] = start + known - number
                    numbers[domain] = end - 1
        return gains

    def backwards(self, before: Gtids) -> str | None:
        """Describes the first transaction of MariaDB whose sequence number is not higher than the one before it in its
        domain; None if all ascend. `before`: the GTIDs before the batch. The dump must not send a transaction twice."""
        assert isinstance(before, MariadbGtids)
        newest = before.domains()
        for source, start, end, _ in self.runs:
            domain = domain_of(source)
            server, number = newest.get(domain, (0, 0))
            if start <= number:
                return f"{source}-{start} follows {domain}-{server}-{number}"
            newest[domain] = int(source.partition("-")[2]), end - 1
        return None

    def all_after(self, mode: Mode, executed: ExecutedPosition) -> bool:
        """True if the whole batch lies after `executed`. For positions by GTID, the result is always True. If a dump
        without GTIDs begins at the start of a file, part of a batch may lie before `executed`."""
        if mode.by_gtid or not len(self.end):
            return True
        return bool(_packed(self.file, self.end[:1])[0] > executed.seq)

    def already_executed(self, mode: Mode, executed: ExecutedPosition) -> NDArray[np.uint8] | None:
        """Returns one byte per transaction, 1 = `executed` contains the transaction; None if all bytes would be 0."""
        if not mode.by_gtid:
            mask = (_packed(self.file, self.end) <= executed.seq).astype(np.uint8)
            return mask if mask.any() else None
        gtids = executed_set(executed.gtids)
        covers = [gtids.covers(source, start, end) for source, start, end, _ in self.runs]
        # The runs contain only the transactions that have ended. `gtids` may also contain the transaction that
        # continues in the next batch.
        rest = np.flatnonzero(~self.ended & (self.source >= 0))
        covers += [gtids.has(self.sources[self.source[i]], int(self.gno[i])) for i in rest]
        if not any(cover is not False for cover in covers):
            return None
        mask = np.zeros(len(self.source), dtype=np.uint8)
        for i in np.flatnonzero(self.source >= 0):
            mask[i] = gtids.has(self.sources[self.source[i]], int(self.gno[i]))
        return mask


def _packed(file: str, end: NDArray[np.int64]) -> NDArray[np.int64]:
    return end | np.int64(packed_seq(file, 0))


def _runs(
    sources: list[str], source: NDArray[np.int32], gno: NDArray[np.int64], ended: NDArray[np.bool_]
) -> GtidRunList:
    named = (ended & (source >= 0)).nonzero()[0]
    if not len(named):
        return []
    if len(named) == 1:  # the usual case on a server that writes little
        at = int(named[0])
        return [(sources[source[at]], int(gno[at]), int(gno[at]) + 1, at)]
    s, g = source[named], gno[named]
    # A run continues while the source stays the same, the number grows by one, and no other transaction lies between.
    goes_on = (s[1:] == s[:-1]) & (g[1:] == g[:-1] + 1) & (named[1:] == named[:-1] + 1)
    breaks = (np.flatnonzero(~goes_on) + 1).tolist()
    return [
        (sources[s[a]], int(g[a]), int(g[b - 1]) + 1, int(named[a]))
        for a, b in zip([0, *breaks], [*breaks, len(named)], strict=True)
    ]
