"""A reader of one consumer, which knows the addresses of all daemons.

It stores what it gets before it asks for the next part. A reader with a checkpoint opens a session at its own position.
A reader without one goes on at the position that is stored for its consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.leadership_simulation.daemon import Opened, Polled, ReaderAnswer, Refused

if TYPE_CHECKING:
    from tests.leadership_simulation.world import World

TIMEOUT_S = 6.0
PAUSE_S = 0.3
LATENCY_S = 0.002


class Reader:
    """`received`: the position up to which it has stored the log."""

    def __init__(self, world: World, consumer: str, *, checkpoint: bool) -> None:
        self.consumer = consumer
        self.received = 0
        self._world = world
        self._checkpoint = checkpoint
        self._names = world.names
        self._at = 0  # index of the address
        self._session: int | None = None
        self._call_number = 0
        self._call()

    def _call(self) -> None:
        """Make the next call, and go to the next address if it is not answered."""
        self._call_number += 1
        number = self._call_number

        def answered(answer: ReaderAnswer) -> None:
            self._world.agenda.after(LATENCY_S, lambda: self._answered(number, answer))

        def expired() -> None:
            if number == self._call_number:
                self._go_to_next()

        self._world.agenda.after(TIMEOUT_S, expired)
        process = self._world.processes.get(self._names[self._at])
        if process is None:  # the connection is refused
            self._world.agenda.after(LATENCY_S, lambda: self._answered(number, Refused("")))
            return
        consumer, session, after = self.consumer, self._session, self.received
        most = self._world.rng.choice((1, 3, 50))
        if session is None:
            own = after if self._checkpoint else None
            process.handle(
                lambda: process.call(
                    lambda term: term.open_session(consumer, own, answered), answered
                )
            )
        else:
            process.handle(
                lambda: process.call(
                    lambda term: term.poll(consumer, session, after, most, answered), answered
                )
            )

    def _answered(self, number: int, answer: ReaderAnswer) -> None:
        if number != self._call_number:
            return
        match answer:
            case Refused(leader):
                self._session = None
                if leader in self._names:
                    self._at = self._names.index(leader)
                    self._later(PAUSE_S)
                else:
                    self._go_to_next()
            case Opened(session, position):
                self._session = session
                self._world.judge.opened(self, position)
                if not self._checkpoint:
                    self.received = position
                self._call()
            case Polled(after, transactions):
                self._world.judge.received(self, after, transactions)
                self.received = max(self.received, *transactions, after)
                self._later(PAUSE_S if not transactions else LATENCY_S)

    def _go_to_next(self) -> None:
        self._session = None
        self._at = (self._at + 1) % len(self._names)
        self._later(PAUSE_S)

    def _later(self, seconds: float) -> None:
        self._call_number += 1
        number = self._call_number

        def call() -> None:
            if number == self._call_number:
                self._call()

        self._world.agenda.after(seconds, call)

    @property
    def has_checkpoint(self) -> bool:
        return self._checkpoint
