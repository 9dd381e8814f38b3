"""Where in a server's log a consumer goes on: decided when its dispatcher has logged in, before the dump."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.dispatch import history_check
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, where
from dispatcher.dispatch.effects import Effect, Note
from dispatcher.dispatch.executed_position import Mode, without_file
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import AtGtid, OnPurged
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet


def place(consumer: Consumer, view: ServerView, new_epoch: Callable[[], int]) -> list[Effect]:
    """Give a consumer its place in this server's log, or check the one that it has. Raises BinlogError.

    What has to be stored comes out before anything that is read there can be.
    """
    try:
        effects = _in_history(consumer, view, new_epoch)
    except BinlogError as error:
        jumps = consumer.spec.on_purged is OnPurged.LATEST
        if error.kind is not ErrorKind.POSITION_PURGED or not jumps:
            raise
        effects = _jump(consumer, view, error, new_epoch)
    consumer.started = consumer.proven = True
    return effects


def _in_history(consumer: Consumer, view: ServerView, new_epoch: Callable[[], int]) -> list[Effect]:
    queue = consumer.queue
    if consumer.started:
        file = queue.queued.file
        anchored = queue.is_anchored(queue.queued)
        created = queue.created_of(file)
        history_check.history(
            view, queue.mode, queue.server, queue.queued, created, anchored=anchored
        )
        if view.server == queue.server:
            queue.saw_created(file, view.created.get(file, 0))
        else:
            queue.move_to(view.server)
        return []
    if consumer.progress is None:
        start = history_check.resolve(view, consumer.spec.start)
        anchored = not isinstance(consumer.spec.start, AtGtid)
        created = view.created.get(start.file, 0)
        queue.reset(view.server, view.mode, new_epoch(), start, created, anchored=anchored)
        return [consumer.store()]
    stored = consumer.progress
    covered = history_check.stored_place(view.mode, stored.covered)
    acknowledged = history_check.stored_place(view.mode, stored.acknowledged)
    created, anchored = abs(stored.created), stored.created > 0
    history_check.history(
        view, view.mode, stored.covered.server, covered, created, anchored=anchored
    )
    created = created or view.created.get(covered.file, 0)
    if stored.covered.server != view.server:  # its files are not this one's
        covered, acknowledged, created = without_file(covered), without_file(acknowledged), 0
        anchored = False
    queue.reset(view.server, view.mode, stored.covered.epoch, covered, created, anchored=anchored)
    queue.acknowledged = acknowledged
    return []


def _jump(
    consumer: Consumer, view: ServerView, error: BinlogError, new_epoch: Callable[[], int]
) -> list[Effect]:
    """Go on at the end of the log, in a new epoch: what lies between is lost to the consumer."""
    queue = consumer.queue
    if not consumer.started:
        stored = consumer.progress
        queue.epoch = new_epoch() if stored is None else stored.covered.epoch
    end = history_check.end_of(view)
    queue.jump(view.server, view.mode, end, view.created.get(end.file, 0))
    consumer.gaps += 1
    fields = {"consumer": consumer.name, "why": str(error), "to": where(end)}
    return [consumer.store(), Note("warning", "went on behind a gap", fields)]


def behind(
    dispatcher: Dispatcher, view: ServerView, wait_s: float, now: float
) -> BinlogError | None:
    """Is this another server than the one that was read, and lacks some of that, which it may get yet?

    So it is with a replica that has taken its source's place. It is given `wait_s` seconds.
    """
    if view.mode is not Mode.GTID:
        return None
    executed = GtidSet.parse(view.executed)
    for consumer in dispatcher.attached:
        position = consumer.position
        if position is None or position.server == view.server:
            continue
        lacking = GtidSet.parse(position.gtid).subtract(executed)
        if not lacking:
            continue
        if dispatcher.behind_since is None:
            dispatcher.behind_since = now
        if now - dispatcher.behind_since >= wait_s:
            return None
        return BinlogError(
            ErrorKind.CONNECTION_LOST,
            f"server {view.server} has not executed {history_check.short(lacking)} yet",
            where=dispatcher.label,
            remedy=f"nothing to do; it is asked again for {wait_s:g} s (failover_wait_seconds)",
        )
    return None
