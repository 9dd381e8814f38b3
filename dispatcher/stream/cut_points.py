"""The places where the transactions of a log may be cut, so that readers can read a transaction in parts.

A part that begins inside a transaction must be decodable without the parts before it. So a transaction may be cut only
before a rows event. A cut point records the places of the earlier bytes that a reader needs to decode the part: the
transaction's beginning (record, GTID, BEGIN) and the table maps in force. The statement's text (ROWS_QUERY_EVENT) is
not repeated: no row depends on it, and it may be as large as the rows.

A transaction has a cut point about every `cut_bytes`, at places that depend only on its delivered bytes. So the cut
points are the same when the daemon reads the transaction from the server again, into other buffers and segments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from dispatcher.binlog.kernel.bytes import I64
from dispatcher.model.position import EventPoint
from dispatcher.stream import copy_kernel as k


class CutPoint(NamedTuple):
    """A place before a rows event, or before the text and table maps (the head) of the event's statement. All fields
    except `event` and `maps_event` are logical offsets.

    `event`: index of the event that follows, in the delivered transaction. `beginning_end`: end of the transaction's
    record, GTID and BEGIN. `maps`, `maps_end`: begin and end of the table maps in force; equal if the statement's head
    follows. `maps_event`: index of the first of these table maps.
    """

    at: int
    event: int
    beginning_end: int
    maps: int
    maps_end: int
    maps_event: int

    @classmethod
    def of_state(cls, cs: I64) -> CutPoint:
        """Returns the point at which the kernel returned CUT."""
        at, beginning_end = int(cs[k.BASE] + cs[k.OUT]), int(cs[k.BEGINNING_END])
        if cs[k.IN_HEAD] or cs[k.MAPS_EVENT] < 0:
            return cls(at, int(cs[k.COPIED]), beginning_end, at, at, 0)
        maps = int(cs[k.MAPS]), int(cs[k.MAPS_END]), int(cs[k.MAPS_EVENT])
        return cls(at, int(cs[k.COPIED]), beginning_end, *maps)

    @property
    def value(self) -> EventPoint:
        """The point in the form that readers use."""
        return EventPoint(self.event, self.at - self.beginning_end)


class CutPoints:
    """The points of a log, in order."""

    def __init__(self) -> None:
        self._points: list[CutPoint] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: CutPoint) -> None:
        self._points.append(point)

    def between(self, start: int, end: int) -> Iterator[CutPoint]:
        """Yields the points at start < offset < end."""
        for n in range(self._first(start + 1), len(self._points)):
            if self._points[n].at >= end:
                return
            yield self._points[n]

    def find(self, start: int, end: int, value: EventPoint) -> CutPoint | None:
        """Returns the point, within the transaction at [start, end), that has this `value`."""
        found = (point for point in self.between(start, end) if point.event >= value.index)
        point = next(found, None)
        return point if point is not None and point.value == value else None

    def cut_back(self, end: int, beginning_end: int) -> int:
        """Drop the points at `end` and after it. Return the offset from which the distance to the open transaction's
        next point is measured. `beginning_end`: the end of the open transaction's record, GTID and BEGIN."""
        del self._points[self._first(end) :]
        return max(beginning_end, self._points[-1].at) if self._points else beginning_end

    def drop(self, before: int) -> None:
        """Drop the points below a logical offset."""
        del self._points[: self._first(before)]

    def _first(self, at: int) -> int:
        return bisect_left(self._points, at, key=_at)


_at = attrgetter("at")
