"""How far something has read in a server's history: the value behind every position.

Two ways to say it. With MySQL's GTIDs a place is the set of executed transactions; its `seq` is the size of that set,
so it grows by one with every transaction and means the same after any restart. Without them (MySQL with `gtid_mode`
other than ON, MariaDB) a place is a file and an offset, and `seq` is both packed into one number; MariaDB's GTIDs are
carried along for people and for failover.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.stream.batch import ABORTED, OPEN, Batch
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position, packed_seq


class Mode(StrEnum):
    GTID = "gtid"  # MySQL with gtid_mode=ON: places are GTID sets
    FILE = "file"  # MySQL otherwise: places are files and offsets
    MARIADB = "mariadb"  # as FILE, with MariaDB's GTIDs beside them


Gtids = GtidSet | MariadbGtids


@dataclass(frozen=True, slots=True)
class ExecutedPosition:
    """A place between two transactions: canonical GTIDs, the file and offset where the log goes on, and the seq."""

    gtids: Gtids
    file: str
    offset: int
    seq: int

    def position(self, server: str, epoch: int) -> Position:
        return Position(server, str(self.gtids), self.file, self.offset, self.seq, epoch)


def parse_gtids(mode: Mode, text: str) -> Gtids:
    return MariadbGtids.parse(text) if mode is Mode.MARIADB else GtidSet.parse(text)


def executed_of(mode: Mode, position: Position) -> ExecutedPosition:
    return ExecutedPosition(
        parse_gtids(mode, position.gtid), position.file, position.offset, position.seq
    )


def make_executed(mode: Mode, gtids: str, file: str, offset: int) -> ExecutedPosition:
    """A place named by a person or a server, with the seq that belongs to it."""
    parsed = parse_gtids(mode, gtids)
    if mode is Mode.GTID and isinstance(parsed, GtidSet):
        return ExecutedPosition(parsed, file, offset, len(parsed))
    return ExecutedPosition(parsed, file, offset, packed_seq(file, offset))


def without_file(place: ExecutedPosition) -> ExecutedPosition:
    """The same place with GTIDs, of a server whose files are not those that it was read from."""
    return ExecutedPosition(place.gtids, "", 0, place.seq)


def dump_offset(place: ExecutedPosition) -> int:
    """Where a dump by file and offset begins so that nothing behind `place` is left out.

    COM_BINLOG_DUMP has 32 bits for the offset. Behind 4 GiB the dump begins with the file, and what lies before `place`
    is skipped as it comes.
    """
    return place.offset if place.offset < 1 << 32 else 4


Runs = list[
    tuple[str, int, int, int]
]  # source, first number, last number + 1, index of its first transaction


@dataclass(slots=True)
class GtidRanges:
    """What one source has of a batch's runs: their indexes, numbers, and how often the numbers break before each."""

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
        """Of the batch's runs [lo, hi): index of the last, source, numbers from and to; joined where they can be."""
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
    """The transactions of a batch as places need them: shared by all consumers that took something of it."""

    file: str
    sources: list[str]
    source: NDArray[np.int32]
    gno: NDArray[np.int64]
    end: NDArray[np.int64]
    ended: NDArray[np.bool_]  # neither open nor aborted
    runs: Runs
    _tracks: list[GtidRanges] | None = None
    _columns: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, batch: Batch) -> BatchGtids:
        ended = (batch.tx.flags & (OPEN | ABORTED)) == 0
        source, gno = batch.tx.source.copy(), batch.tx.gno.copy()
        return cls(
            batch.file, batch.sources, source, gno, batch.tx.end.copy(), ended,
            _runs(batch.sources, source, gno, ended),
        )  # fmt: skip

    def after(self, base: Gtids, index: int) -> Gtids:
        """`base` with the transactions 0..index added."""
        cut = len(self.runs)
        while cut and self.runs[cut - 1][3] > index:
            cut -= 1
        for n, (source, start, end, first) in enumerate(self.runs[:cut]):
            base = base.add(
                source, start, min(end, start + index - first + 1) if n == cut - 1 else end
            )
        return base

    @property
    def columns(self) -> NDArray[np.int64]:
        """Of the runs: first number, last number + 1, index of the first transaction; shape (3, runs)."""
        if self._columns is None:
            self._columns = np.array([run[1:] for run in self.runs], dtype=np.int64).T
        return self._columns

    @property
    def tracks(self) -> list[GtidRanges]:
        """The runs by source."""
        if self._tracks is None:
            by_source: dict[str, list[tuple[int, int, int]]] = {}
            for n, (source, start, end, _) in enumerate(self.runs):
                by_source.setdefault(source, []).append((n, start, end))
            self._tracks = [GtidRanges.of(source, runs) for source, runs in by_source.items()]
        return self._tracks

    def follows(self, mode: Mode, place: ExecutedPosition) -> bool:
        """Does all of the batch lie behind `place`, and not some before it, as after a dump from its file's start?"""
        if mode is Mode.GTID or not len(self.end):
            return True
        return bool(_packed(self.file, self.end[:1])[0] > place.seq)

    def skip(self, mode: Mode, held: ExecutedPosition) -> NDArray[np.uint8] | None:
        """One byte per transaction, 1 = `held` has it already; None where it has none of them."""
        if mode is not Mode.GTID:
            mask = (_packed(self.file, self.end) <= held.seq).astype(np.uint8)
            return mask if mask.any() else None
        gtids = held.gtids
        assert isinstance(gtids, GtidSet)
        covers = [gtids.covers(source, start, end) for source, start, end, _ in self.runs]
        # Runs hold what has ended; the transaction that goes on in the next batch may be held, too.
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
) -> Runs:
    named = np.flatnonzero(ended & (source >= 0))
    if not len(named):
        return []
    s, g = source[named], gno[named]
    # A run goes on while the source stays, the number grows by one, and no transaction lies between.
    breaks = (
        np.flatnonzero((s[1:] != s[:-1]) | (g[1:] != g[:-1] + 1) | (named[1:] != named[:-1] + 1))
        + 1
    )
    starts = [0, *breaks.tolist()]
    stops = [*breaks.tolist(), len(named)]
    return [
        (sources[s[a]], int(g[a]), int(g[b - 1]) + 1, int(named[a]))
        for a, b in zip(starts, stops, strict=True)
    ]
