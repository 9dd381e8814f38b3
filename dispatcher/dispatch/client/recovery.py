"""Lets a failed consumer continue when the consumer's own server is back: the server whose log the consumer has read.

After a failover, the new server may lack transactions that a consumer has read, or may have purged transactions that
the consumer needs. In both cases the consumer can fail. The consumer's own server may still have the log that the
consumer has read. So every survey checks whether the server that answers has the file of the consumer's position, with
the creation time that the daemon has recorded for this file.

Executed GTIDs alone prove nothing, even if the consumer's own server has executed them: a server that lost transactions
and became a primary again gives their numbers to other transactions. For the same reason, a consumer whose own server
contradicts its position (RESET, restore) stays failed, whatever that server executes after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dispatcher.dispatch.client import start_position
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Effect, Note, Wake
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position


def is_elsewhere(consumer: Consumer, view: ServerView, error: BinlogError) -> bool:
    """True if the `error` of a login only means that this server cannot continue the log of another server."""
    position = consumer.position
    if position is None or position.server == view.server:
        return False
    return error.kind in (ErrorKind.HISTORY_DIFFERS, ErrorKind.POSITION_PURGED)


def explained(consumer: Consumer, view: ServerView, error: BinlogError) -> BinlogError:
    """Returns `error`. If `is_elsewhere` is True, the remedy of the returned error also says that the consumer's own
    server may come back."""
    position = consumer.position
    if position is None or not is_elsewhere(consumer, view, error):
        return error
    remedy = (
        f"if server {position.server} comes back with its binlogs, the consumer continues by itself; otherwise:"
        f" {error.remedy}"
    )
    return BinlogError(error.kind, f"{error.what} (server {view.server})", remedy=remedy)


def positions_to_survey(consumers: Iterable[Consumer]) -> dict[str, Position]:
    """Returns the position of each consumer that failed on another server. A survey asks the server about these
    positions, so that `recover` can make the same checks as a login."""
    positions = {consumer.name: consumer.position for consumer in _failed_elsewhere(consumers)}
    return {name: position for name, position in positions.items() if position is not None}


def recover(
    consumers: Iterable[Consumer], surveyed: Mapping[str, Position], view: ServerView, label: str
) -> list[Effect]:
    """Let each consumer that failed on another server continue, if this server has the consumer's log. The next login
    checks the consumer again.

    `surveyed`: the result of `positions_to_survey` when the server was asked. If a consumer failed after the server was
    asked, the view is not used for that consumer: its position may be newer than the view.
    """
    effects: list[Effect] = []
    for consumer in _failed_elsewhere(consumers):
        position = consumer.position
        if position is None or position.server != view.server:
            continue
        if surveyed.get(consumer.name) != position:
            continue
        try:
            start_position.check(consumer, view)
        except BinlogError as error:
            effects += consumer.fail(error.at(f"consumer {consumer.name}, {label}"))
            continue
        if not start_position.created_of(consumer) or position.file not in view.created:
            continue  # nothing shows that this server has the same log
        consumer.failed = consumer.error = None
        consumer.failed_elsewhere = False
        consumer.verified = False
        fields = {"consumer": consumer.name, "reason": f"its server {view.server} is back"}
        effects += [Note("info", "consumer continues", fields), Wake(consumer.name)]
    return effects


def is_awaited(consumers: Iterable[Consumer]) -> bool:
    """True if at least one consumer failed on a server other than the consumer's own server."""
    return any(_failed_elsewhere(consumers))


def _failed_elsewhere(consumers: Iterable[Consumer]) -> list[Consumer]:
    return [consumer for consumer in consumers if consumer.failed and consumer.failed_elsewhere]
