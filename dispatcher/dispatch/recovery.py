"""Consumers that failed on another server than their own: they go on when a server has their position again.

After a failover, the new server may lack transactions that a consumer has read, or have purged some that it needs. That
says nothing against the log that the consumer has read. So every survey checks the consumer's position again: its own
server may be back, or the other one may have caught up.

A consumer that its own server contradicts (RESET, restore) stays failed, also if that server has executed the numbers
of its set again later: they name other transactions.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch import start_position
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.effects import Effect, Note, Wake
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind


def is_elsewhere(consumer: Consumer, view: ServerView, error: BinlogError) -> bool:
    """True if `error`, found by a login, says only that this server cannot continue another one's log."""
    position = consumer.position
    if position is None or position.server == view.server:
        return False
    return error.kind in (ErrorKind.HISTORY_DIFFERS, ErrorKind.POSITION_PURGED)


def explained(consumer: Consumer, view: ServerView, error: BinlogError) -> BinlogError:
    """Returns the error with the remedy that applies: the consumer's own server may come back."""
    position = consumer.position
    if position is None or not is_elsewhere(consumer, view, error):
        return error
    remedy = (
        f"if server {position.server} comes back with its binlogs, or {view.server} catches up, the consumer goes on by"
        f" itself; otherwise: {error.remedy}"
    )
    return BinlogError(error.kind, f"{error.what} (server {view.server})", remedy=remedy)


def places_to_survey(consumers: Iterable[Consumer]) -> list[tuple[str, int]]:
    """Returns the files and offsets that a survey has to ask for, so that it can check as a login does."""
    positions = [consumer.position for consumer in _failed_elsewhere(consumers)]
    return [(position.file, position.offset) for position in positions if position is not None]


def recover(consumers: Iterable[Consumer], view: ServerView, label: str) -> list[Effect]:
    """Let each consumer go on that failed elsewhere, and whose position this server has. A login checks it again."""
    effects: list[Effect] = []
    for consumer in _failed_elsewhere(consumers):
        try:
            start_position.check(consumer, view)
        except BinlogError as error:
            if not is_elsewhere(consumer, view, error):
                consumer.failed_elsewhere = False
                effects += consumer.fail(error.at(f"consumer {consumer.name}, {label}"))
            continue
        consumer.failed = consumer.error = None
        consumer.failed_elsewhere = False
        consumer.verified = False
        fields = {"consumer": consumer.name, "reason": f"server {view.server} has its position"}
        effects += [Note("info", "consumer goes on", fields), Wake(consumer.name)]
    return effects


def is_awaited(consumers: Iterable[Consumer]) -> bool:
    """True if some consumer failed elsewhere."""
    return any(_failed_elsewhere(consumers))


def _failed_elsewhere(consumers: Iterable[Consumer]) -> list[Consumer]:
    return [consumer for consumer in consumers if consumer.failed and consumer.failed_elsewhere]
