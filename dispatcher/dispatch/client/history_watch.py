"""Compares each view of the server with the positions that the dispatchers had just before the server was asked.

While a server prepares its answer, the dispatchers continue to read. So this module compares the view with snapshots of
the positions. A dispatcher whose snapshot contradicts the view logs in again (see `continuity.history_error`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.history.continuity import QueuedPosition
from dispatcher.dispatch.messages.effects import Effect
from dispatcher.dispatch.values.server_view import ServerView

# The key of the snapshots for a poll. The other keys are the numbers of dispatchers that log in.
POLL = 0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The positions of a dispatcher at one moment. `stream`: the number of its stream; `awaits_poll`: True if a batch
    was held for a poll."""

    dispatcher: Dispatcher
    stream: int
    positions: list[QueuedPosition]
    awaits_poll: bool


class HistoryWatch:
    """`dispatchers`: the client's dispatchers, by number."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher]) -> None:
        self._dispatchers = dispatchers
        # The key is the number of the dispatcher that logs in, or POLL.
        self._snapshots: dict[int, list[_Snapshot]] = {}

    def take_snapshot(self, number: int) -> None:
        """Record the positions of all dispatchers except the one that logs in. The client calls this just before the
        server is asked."""
        self._snapshots[number] = [
            _Snapshot(d, d.streams_begun, d.queued_positions(), d.gate.awaits_poll)
            for d in self._dispatchers.values()
            if d.open and d.number != number
        ]

    def forget(self, number: int) -> None:
        self._snapshots.pop(number, None)

    def offsets(self, number: int) -> list[tuple[str, int]]:
        """Returns the files and offsets of the snapshot."""
        snapshots = self._snapshots.get(number, ())
        positions = [at.executed for snapshot in snapshots for at in snapshot.positions]
        return [(executed.file, executed.offset) for executed in positions]

    def compare(self, number: int, view: ServerView, now: float) -> list[Effect]:
        """Compare a view with the snapshot that was taken before the server was asked for the view."""
        effects: list[Effect] = []
        for snapshot in self._snapshots.pop(number, ()):
            dispatcher = snapshot.dispatcher
            same = self._dispatchers.get(dispatcher.number) is dispatcher
            if same and dispatcher.open and dispatcher.streams_begun == snapshot.stream:
                answers_held = snapshot.awaits_poll and number == POLL
                effects += dispatcher.server_polled(
                    view, snapshot.positions, answers_held=answers_held, now=now
                )
        return effects
