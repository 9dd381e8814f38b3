"""Decides which prepared XA transactions of an `XaStore` the consumers of its connection key may still need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, executed_set
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.position import file_number, packed_seq
from dispatcher.stream.xa_store import LogPoint


def acknowledged_by_all(
    mode: Mode, acknowledged: Sequence[ExecutedPosition]
) -> Callable[[LogPoint], bool]:
    """Returns a function that is True for a point of the log whose transaction every consumer has acknowledged.

    `acknowledged`: positions of all consumers that have one, including failed consumers.
    """

    def is_before(point: LogPoint, executed: ExecutedPosition) -> bool:
        if mode.by_gtid and point.source:
            return executed_set(executed.gtids).has(point.source, point.gno)
        # A point lies inside its transaction, but an executed position lies between two transactions.
        return packed_seq(executed.file, executed.offset) > point.mark.key

    return lambda point: all(is_before(point, executed) for executed in acknowledged)


def in_history(view: ServerView) -> Callable[[LogPoint], bool]:
    """Returns a function that is True for a point of the log that, according to `view`, is part of the server's
    history.

    A point from before a RESET is not part of the history.
    """
    written = view.written if view.mode.by_gtid else None
    sizes = dict(view.files)

    def check(point: LogPoint) -> bool:
        if written is not None and point.source:
            return written.has(point.source, point.gno)
        if point.server != view.server:
            return True
        at = point.mark
        created = view.created.get(at.file, 0)
        if created and at.created and created != at.created:
            return False
        if at.file in sizes:
            return at.offset <= sizes[at.file]
        return file_number(at.file) < file_number(view.file)  # purged

    return check
