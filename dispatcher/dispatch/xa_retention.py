"""Which prepared XA transactions (`binlog.prepared`) are still of use to the consumers of a connection key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dispatcher.binlog.stream.xa_store import LogPoint
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import file_number, packed_seq


def passed(mode: Mode, acknowledged: Sequence[ExecutedPosition]) -> Callable[[LogPoint], bool]:
    """Has everybody acknowledged what happened at a spot? `acknowledged`: of all consumers that have a place, also of
    those that failed."""

    def by_place(spot: LogPoint, place: ExecutedPosition) -> bool:
        if mode is Mode.GTID and spot.source:
            return isinstance(place.gtids, GtidSet) and place.gtids.has(spot.source, spot.gno)
        # A spot lies within its transaction, a place between two.
        return packed_seq(place.file, place.offset) > spot.mark.key

    return lambda spot: all(by_place(spot, place) for place in acknowledged)


def valid(view: ServerView) -> Callable[[LogPoint], bool]:
    """Is a spot one of the server's history, as far as can be told? After a reset it is not."""
    executed = GtidSet.parse(view.executed) if view.mode is Mode.GTID else None
    sizes = dict(view.files)

    def check(spot: LogPoint) -> bool:
        if executed is not None and spot.source:
            return executed.has(spot.source, spot.gno)
        if spot.server != view.server:
            return True
        mark = spot.mark
        created = view.created.get(mark.file, 0)
        if created and mark.created and created != mark.created:
            return False
        if mark.file in sizes:
            return mark.offset <= sizes[mark.file]
        return file_number(mark.file) < file_number(view.file)  # purged

    return check
