"""Ranges of a queue: finds where a reader's range begins and ends, and divides a range for several readers.

A range ends at a position, which lies between transactions, or at a point inside a transaction. The position of a point
inside a transaction is the position at the transaction's *end*, not at its beginning. So the position says how far the
daemon must have read the server's log before it can deliver the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.queue.transaction_index import TransactionIndex
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.cut_points import CutPoint

# A part may be larger by 1 / TOLERANCE if that makes it end between two transactions.
TOLERANCE = 8


class RangeEnd(NamedTuple):
    """One end of a range. `offset`: its logical offset. If the end lies inside a transaction, `point` is set, and
    `begin` is the logical offset at which the transaction begins."""

    offset: int
    begin: int = 0
    point: CutPoint | None = None


class RangeCut(NamedTuple):
    """A place where a range is divided: after the transaction that ends at `position`, or at the point `inside` within
    that transaction."""

    position: Position
    inside: EventPoint | None = None


class IndexCut(NamedTuple):
    """A place where a range is divided: after the transaction with this `number`, or at `point` within it. `offset`:
    the logical offset of the place."""

    number: int
    offset: int
    point: CutPoint | None = None


def balanced_cuts(
    index: TransactionIndex, log: ConsumerLog, lo: int, hi: int, n: int, *, inside: bool
) -> list[IndexCut]:
    """Returns at most n - 1 places strictly between two logical offsets that divide the bytes evenly, in order: ends of
    transactions and, with `inside`, also points inside large transactions."""
    cuts: list[IndexCut] = []
    last = lo
    for k in range(1, n):
        target = lo + (hi - lo) * k // n
        number = index.count_to(target - 1)
        stop = index.end(number) if number < index.count else hi
        cut = IndexCut(number, stop)
        if inside and stop - target > (hi - lo) // n // TOLERANCE:
            point = next(log.cut_points.between(max(target - 1, last), min(stop, hi)), None)
            if point is not None:
                cut = IndexCut(number, point.at, point)
        if last < cut.offset < hi:
            last = cut.offset
            cuts.append(cut)
    return cuts


def inside_end(
    index: TransactionIndex,
    log: ConsumerLog,
    dropped_end: int,
    seq: int,
    offset: int,
    inside: EventPoint,
) -> RangeEnd:
    """Returns the end of a range at the point `inside` within the transaction that has `seq` and ends at the logical
    `offset`.

    `dropped_end`: the logical offset at which the first transaction begins. Raises UserError if there is no such
    transaction or point.
    """
    number = index.count_seq(seq) - 1
    if number >= index.dropped and index.seq(number) == seq:
        begin = index.end(number - 1) if number > index.dropped else dropped_end
        if point := log.cut_points.find(begin, offset, inside):
            return RangeEnd(point.at, begin, point)
    raise UserError(
        ErrorKind.POSITION_UNKNOWN,
        f"no transaction that ends at seq {seq} may be cut before event {inside.index} at offset {inside.offset}",
        remedy="ask for slices again: the transaction may have been read from another server",
    )


def formatted_bytes(
    formats: Iterable[tuple[int, FormatDescription]], log: ConsumerLog, start: RangeEnd, hi: int
) -> list[bytes | memoryview]:
    """Returns the bytes from `start` to `hi`, with a FORMAT_DESCRIPTION before them and wherever it changes. If there
    are no bytes, returns only the last FORMAT_DESCRIPTION. If `start` lies inside a transaction, the events that a
    reader needs to decode the bytes come first.

    `formats`: each format, with the logical offset at which it begins to be valid.
    """
    out: list[bytes | memoryview] = []
    raw = b""
    for (at, format_), (until, _) in pairwise([*formats, (hi, None)]):
        assert format_ is not None
        raw = format_.raw
        a, b = max(start.offset, at), min(hi, until)
        if a < b:
            out.append(raw)
            if start.point is not None and a == start.offset:
                out += log.opening(start.begin, start.point)
            out += log.read(a, b)
    return out or ([raw] if raw else [])
