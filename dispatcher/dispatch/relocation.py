"""Where an administrator's order moves a consumer: to a start, in an epoch that was never used before.

A start is resolved as for a new consumer, against a `ServerView` that was asked for after the order had come. So the
order is refused, and nothing is changed, unless the server was found to have the place; and it mends a consumer whose
stored position is of no use any more, because it does not depend on that.
"""

from __future__ import annotations

from dispatcher.dispatch import history_check, seeking
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.events import RelocationRequested, SeekRequested
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import AtGtid, Start
from dispatcher.model.errors import BinlogError

_UNCHANGED = "nothing was changed; name a place that the server has, such as earliest or latest"


def destination(
    consumer: Consumer, what: SeekRequested | RelocationRequested
) -> seeking.Target | None:
    """Where an order moves a consumer; None where it is there already. Raises BinlogError."""
    if isinstance(what, RelocationRequested):
        return target(consumer, what.start, what.view, what.epoch_min)
    if seeking.holds(consumer, what.after):
        return None
    return seeking.target(consumer, what.after, what.view, fresh=what.fresh)


def target(consumer: Consumer, start: Start, view: ServerView, epoch_min: int) -> seeking.Target:
    """The place of `start` on the server, in an epoch of at least `epoch_min` and after the consumer's present one.

    Raises BinlogError where the server does not have the place: POSITION_PURGED, HISTORY_DIFFERS (it never had it), or
    what is wrong with the start.
    """
    try:
        place = history_check.resolve(view, start)
    except BinlogError as error:
        where = f"consumer {consumer.name}"
        raise type(error)(error.kind, error.what, where=where, remedy=_UNCHANGED) from None
    created = view.created.get(place.file, 0)
    epoch = max(_epoch(consumer) + 1, epoch_min)
    # The server's log says what lies before a file and offset; a set is the administrator's word.
    return seeking.Target(
        view.server, view.mode, epoch, place, created, anchored=not isinstance(start, AtGtid)
    )


def _epoch(consumer: Consumer) -> int:
    if consumer.started:
        return consumer.queue.epoch
    return consumer.progress.covered.epoch if consumer.progress else -1
