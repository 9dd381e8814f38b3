"""Readers that follow the leader through takeovers, and check each answer.

A `SteadyReader` reads in a thread of the test (`repeated(reader.step, ...)`). As a real reader, it stores the data that
it has read together with its position, and then acknowledges this position.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto

from dispatcher.model.errors import ErrorKind
from tests.daemon.harness import Api, Daemon, Json, transactions
from tests.daemon.pair import Follower

_WAIT_MS = 500
# The time limit of a call, in s. Each time-out doubles the limit, until the daemon answers a call.
PATIENCE_S = 5.0
_PATIENCE_MAX_S = 60.0


class Habit(Enum):
    """What a reader does after a call that failed."""

    KEEPS = auto()  # repeats the call, in the same session, as Spark does
    OPENS = auto()  # opens a session at its own position
    STORED = auto()  # opens a session at the stored position, and drops all later data


class SteadyReader(Follower):
    """`acknowledged`: the position of the newest acknowledgement that a daemon has answered."""

    # SESSION_FENCED is not in this list: each consumer has only one reader, so no takeover may fence its session.
    passing = tuple(
        kind.name
        for kind in (
            ErrorKind.NOT_LEADER,
            ErrorKind.RANGE_UNAVAILABLE,
            ErrorKind.STATE_STORE,
            ErrorKind.CONNECT_FAILED,
        )
    )

    def __init__(self, *daemons: Daemon, consumer: str, habit: Habit) -> None:
        super().__init__(*daemons, consumer=consumer)
        self.habit = habit
        self.acknowledged: Json = {}
        self.resting = False
        self._patience_s = PATIENCE_S
        self.stepping = threading.Lock()
        self._parts: list[tuple[Json, bytes]] = []  # (position of the end, bytes) of each part
        self._planned: Json | None = None  # the answer of a poll whose range is not read yet

    @property
    def consumer(self) -> str:
        return self.reader.consumer

    @property
    def chunks(self) -> list[bytes]:
        return [data for _, data in self._parts]

    def has_acknowledged(self, seq: int) -> bool:
        return order(self.acknowledged)[1] >= seq

    def step(self) -> None:
        """Acknowledge the stored data, then read and store the next range."""
        with self.stepping:
            if self.resting:
                return
            if not self.attempt(self._read_next) and self.habit is not Habit.KEEPS:
                self.reader.session, self._planned = 0, None

    def set_back(self, acknowledged: Json) -> None:
        """Tell the reader that the state has lost the acknowledgements after this position. The caller must have called
        `at_rest`."""
        self.acknowledged = acknowledged
        if self.habit is Habit.STORED:
            self.reader.session, self._planned = 0, None

    def _read_next(self) -> None:
        try:
            self._call(Api(self.reader.daemon.port, timeout_s=self._patience_s))
        except TimeoutError:
            self._patience_s = min(2 * self._patience_s, _PATIENCE_MAX_S)
            raise
        self._patience_s = PATIENCE_S

    def _call(self, api: Api) -> None:
        reader, name = self.reader, self.consumer
        if not reader.session:
            self._open(api)
        if order(reader.position) > order(self.acknowledged):
            answer = api.call(name, "ack", session=reader.session, position=reader.position)
            self._note(answer["acknowledged"])
        if self._planned is None:
            answer = api.poll(name, reader.session, reader.position, wait_ms=_WAIT_MS, markers=True)
            assert not answer["gap"], answer
            self._planned = answer
        end = self._planned["end"]
        if self._planned["transactions"]:
            data = api.binlog(name, reader.session, reader.position, end)
            self._check(data, end)
            self._parts.append((end, data))
        reader.position, self._planned = end, None

    def _check(self, data: bytes, end: Json) -> None:
        """Assert that the data is the planned range, and contains no transaction at or before the reader's position."""
        assert self._planned is not None
        found = [(each.epoch, each.seq) for each in transactions(data)]
        assert found == sorted(set(found)), (self.consumer, found)
        assert len(found) == self._planned["transactions"], (self.consumer, self._planned)
        start = max(order(self.reader.position), order(self.acknowledged))
        assert start < found[0], (self.consumer, start, found[0])
        assert found[-1] <= order(end), (self.consumer, found[-1], end)

    def _note(self, position: Json) -> None:
        assert order(position) >= order(self.acknowledged), (self.acknowledged, position)
        self.acknowledged = position

    def _open(self, api: Api) -> None:
        reader = self.reader
        own = None if self.habit is Habit.STORED else reader.position or None
        answer = api.session(self.consumer, own)
        assert own in (None, answer["position"]), (self.consumer, own, answer)
        reader.session, reader.position = answer["session"], answer["position"]
        if own is None:
            self._note(reader.position)
            at = order(reader.position)
            self._parts = [part for part in self._parts if order(part[0]) <= at]


@contextmanager
def at_rest(readers: Sequence[SteadyReader]) -> Iterator[None]:
    """Prevent all calls of the readers until the block ends."""
    for reader in readers:
        reader.resting = True
    for reader in readers:
        with reader.stepping:
            pass  # the reader's last step has ended
    try:
        yield
    finally:
        for reader in readers:
            reader.resting = False


def order(position: Json) -> tuple[int, int]:
    """Returns (epoch, seq) of a position. These numbers order the positions of a consumer."""
    return (position["epoch"], position["seq"]) if position else (0, 0)
