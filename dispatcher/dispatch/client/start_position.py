"""Decides, after the login and before the dump, at which position a consumer continues in a server's log."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.history import history_check
from dispatcher.dispatch.messages.effects import Effect, Note
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    parse_set,
    without_file,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import AtGtid, OnPurged, Progress
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind, with_name
from dispatcher.model.position import MARIADB_SERVER


def establish(consumer: Consumer, view: ServerView, new_epoch: Callable[[], int]) -> list[Effect]:
    """Give a consumer its position in this server's log, or check the position that the consumer has. Raises
    BinlogError.

    The returned effects store a new position. The caller puts these effects before the effect that starts the dump, so
    the position is stored before the daemon delivers any transaction that follows it.
    """
    try:
        effects = _in_history(consumer, view, new_epoch)
    except BinlogError as error:
        skips = consumer.spec.on_purged is OnPurged.LATEST
        if error.kind is not ErrorKind.POSITION_PURGED or not skips:
            raise
        effects = _skip_purged(consumer, view, error, new_epoch)
    consumer.started = consumer.verified = True
    return effects


def _in_history(consumer: Consumer, view: ServerView, new_epoch: Callable[[], int]) -> list[Effect]:
    if consumer.started:
        queue = consumer.queue
        effects = _purged_up_to(consumer, view, queue.server, queue.queued)
        _continue(consumer, view)
        return effects
    if consumer.progress is not None:
        covered = _restore(consumer, consumer.progress, view)
        return _purged_up_to(consumer, view, consumer.progress.covered.server, covered)
    start = consumer.spec.start
    executed = history_check.resolve_start(view, start)
    created, anchored = view.created.get(executed.file, 0), not isinstance(start, AtGtid)
    consumer.queue.reset(view.server, view.mode, new_epoch(), executed, created, anchored=anchored)
    return [consumer.store_progress()]


def _purged_up_to(
    consumer: Consumer, view: ServerView, server: str, executed: ExecutedPosition
) -> list[Effect]:
    """Returns a warning if no check can show that the server still has the log that the consumer has read."""
    if not history_check.is_purged_up_to(view, server, executed):
        return []
    warning = (
        f"the server has purged {executed.file} and exactly the transactions of the position; if it only rotated and"
        " purged its binlogs since, nothing is lost and there is nothing to do; if it was restored from a backup since,"
        " transactions may be missing: copy the tables afresh, then move the consumer to the copy's position:"
        f" {with_name(SEEK, consumer.name)}"
    )
    fields = {"consumer": consumer.name, "warning": warning}
    return [Note("warning", "history not verifiable, its binlogs are purged", fields)]


def search_of(consumer: Consumer) -> AtGtid | None:
    """Returns the search that shows whether another server of MariaDB can continue from the consumer's position; None
    if no search is needed."""
    if consumer.started:
        queue = consumer.queue
        return history_check.continuation(queue.mode, queue.server, queue.queued)
    position = consumer.position
    if position is None or not position.server.startswith(MARIADB_SERVER):
        return None
    return history_check.continuation(
        Mode.DOMAINS, position.server, executed_of(Mode.DOMAINS, position)
    )


def check(consumer: Consumer, view: ServerView) -> None:
    """Raises BinlogError if the consumer has a position that this server does not have. Changes nothing."""
    if consumer.started:
        _check_queued(consumer, view)
    elif consumer.progress is not None:
        _check_stored(consumer.progress, view)


def created_of(consumer: Consumer) -> int:
    """Returns when the file of a consumer's position was created, s since 1970; 0 = unknown."""
    if consumer.started:
        return consumer.queue.files.created_of(consumer.queue.queued.file)
    return abs(consumer.progress.created) if consumer.progress is not None else 0


def _check_queued(consumer: Consumer, view: ServerView) -> None:
    queue, queued = consumer.queue, consumer.queue.queued
    created, anchored = queue.files.created_of(queued.file), queue.files.is_anchored(queued)
    history_check.check_history(view, queue.mode, queue.server, queued, created, anchored=anchored)


def _check_stored(stored: Progress, view: ServerView) -> ExecutedPosition:
    covered = history_check.stored_position(view.mode, stored.covered)
    created, anchored, server = abs(stored.created), stored.created > 0, stored.covered.server
    history_check.check_history(view, view.mode, server, covered, created, anchored=anchored)
    return covered


def _continue(consumer: Consumer, view: ServerView) -> None:
    _check_queued(consumer, view)
    queue, queued = consumer.queue, consumer.queue.queued
    if view.server == queue.server:
        queue.files.learn_created(queued.file, view.created.get(queued.file, 0))
    else:
        queue.move_to(view.server)


def _restore(consumer: Consumer, stored: Progress, view: ServerView) -> ExecutedPosition:
    """Set the queue to the stored position. Returns that position as it was stored. Raises BinlogError if the server
    does not have it."""
    queue, server = consumer.queue, stored.covered.server
    was = covered = _check_stored(stored, view)
    acknowledged = history_check.stored_position(view.mode, stored.acknowledged)
    created, anchored = abs(stored.created), stored.created > 0
    created = created or view.created.get(covered.file, 0)
    if server != view.server:  # the stored file belongs to the log of another server
        covered, acknowledged, created = without_file(covered), without_file(acknowledged), 0
        anchored = False
    queue.reset(view.server, view.mode, stored.covered.epoch, covered, created, anchored=anchored)
    queue.acknowledged = acknowledged
    return was


def _skip_purged(
    consumer: Consumer, view: ServerView, error: BinlogError, new_epoch: Callable[[], int]
) -> list[Effect]:
    """Let the consumer continue at the end of the log, in a new epoch. The consumer skips the transactions before this
    point that it has not read."""
    queue = consumer.queue
    if not consumer.started:
        stored = consumer.progress
        queue.epoch = new_epoch() if stored is None else stored.covered.epoch
    end = history_check.end_of_log(view)
    queue.skip_to(view.server, view.mode, end, view.created.get(end.file, 0))
    consumer.gaps += 1
    fields = {"consumer": consumer.name, "error": str(error), "to": str(end)}
    return [consumer.store_progress(), Note("warning", "purge gap skipped", fields)]


def lacking_transactions(
    dispatcher: Dispatcher, view: ServerView, wait_s: float, now: float
) -> BinlogError | None:
    """Returns an error while a server, after a failover, lacks transactions that consumers have.

    Returns None once the server has lacked transactions for `wait_s` seconds.
    """
    if not view.mode.by_gtid:
        return None
    for consumer in dispatcher.attached:
        position = consumer.position
        if position is None or position.server == view.server:
            continue
        lacking = history_check.unwritten(view, parse_set(view.mode, position.gtid))
        if not lacking:
            continue
        if dispatcher.lacking_since is None:
            dispatcher.lacking_since = now
        if now - dispatcher.lacking_since >= wait_s:
            return None
        return BinlogError(
            ErrorKind.CONNECTION_LOST,
            f"server {view.server} has not executed {history_check.abbreviated(lacking)} yet",
            where=dispatcher.label,
            remedy=f"nothing to do; it is asked again for {wait_s:g} s (failover_wait_seconds)",
        )
    return None
