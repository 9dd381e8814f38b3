"""What the assertions have measured for each consumer, and the effects of the present step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Close, Effect, Note
from dispatcher.dispatch.messages.events import Input, LoggedIn, ServerPolled
from dispatcher.dispatch.values.executed_position import ExecutedPosition
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import ExecutedSet
from dispatcher.model.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.world import PlayedWorld


@dataclass
class Observed:
    """A consumer as it was after the last step, and what the assertions have measured since it was declared."""

    since: float
    place: ExecutedPosition | None = None
    started: bool = False
    server: str = ""  # the server whose log the consumer has read
    position: Position | None = None  # the position at which a login would continue
    created: int = 0  # creation time of the position's file, 0 if it is not known
    failed: BinlogError | None = None
    elsewhere: bool = False  # True if the consumer has failed on another server than `server`
    error: BinlogError | None = None
    dispatcher: int | None = None
    attached: int = 0
    full: bool = False
    closed: bool = False  # True if backpressure has closed the consumer's dispatcher
    detaches: int = 0
    gaps: int = 0
    holds_up: bool = (
        False  # True if the other consumers of its dispatcher wait only for this consumer
    )
    is_waited_for: bool = False
    held_up_s: float = 0.0
    most_s: float = 0.0  # the consumer's largest wait budget
    left_s: float = 0.0
    waits_s: float = 0.0  # how long other consumers have been waiting for this consumer
    detached_at: list[float] = field(default_factory=list)
    barred_until: float = 0.0
    wants_room: bool = False  # True if the consumer was detached, and has not attached again
    attached_at: float = -1.0  # when the consumer was attached last
    unproven: bool = (
        False  # True if only the reader claims that its position is in the server's history
    )


class Observations:
    """`jumped`: consumers that skipped a purge gap. All other fields are reset whenever the daemon starts.

    `begun`: when each dispatcher's dump began; `executed`: the executed set that each server has reported last. The
    other fields are about the present step. `closed`: the closed dispatchers; `merged`: the fields of the notes about
    merges; `view`: the view of a login; `asked`: the dispatcher that logged in; `polled`: the view of a survey.
    """

    def __init__(self, world: PlayedWorld) -> None:
        self.world = world
        self.jumped: set[str] = set()
        self.begin()

    def begin(self) -> None:
        self.consumers: dict[str, Observed] = {}
        self.began = 0.0  # when the daemon started
        self.begun: dict[int, float] = {}
        self.executed: dict[str, ExecutedSet] = {}

    def stepped(self, event: Input, effects: Sequence[Effect]) -> None:
        self.closed = [e.dispatcher for e in effects if isinstance(e, Close)]
        self.merged: list[Mapping[str, object]] = [
            e.fields for e in effects if isinstance(e, Note) and e.event == "merged"
        ]
        self.view: ServerView | None = event.view if isinstance(event, LoggedIn) else None
        self.polled: ServerView | None = event.view if isinstance(event, ServerPolled) else None
        self.asked = event.dispatcher if isinstance(event, LoggedIn) else 0
        self.begun[self.asked] = self.world.now

    def of(self, consumer: Consumer) -> Observed:
        seen = self.consumers.get(consumer.name)
        if seen is None:
            most_s = consumer.spec.wait_max_s
            seen = Observed(self.world.now, most_s=most_s, left_s=most_s)
            self.consumers[consumer.name] = seen
        return seen
