"""Simulates a server whose tables change, a daemon with a bounded queue, and a Spark query that may be killed at any
point.

Keys are numbers, and the version of a row is the number of the change that made it. The world executes the real rules
and the real planner, reads chunks in several parts at several moments, and records the events that a sink gets. The
simulated Spark works like a driver: it writes the end of a batch to its log, lets the batch be read, and commits the
batch. A restarted process first repeats a batch that is not committed. The sink keeps the first complete content of a
batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from dispatcher.model.position import Position
from spark_sink.source.snapshot import rules
from spark_sink.source.snapshot.key_order import KeyLimit
from spark_sink.source.snapshot.planner import SnapshotPlanner
from spark_sink.source.snapshot.rules import (
    Backlog,
    Bound,
    DeliveredPart,
    Delivers,
    KeyPart,
    SnapshotState,
    TableName,
)

KEYS = 14
OFFSET_BYTES_MAX = 400

ORDERED, UNORDERED = KeyPart("id", "number:3:0"), KeyPart("name", "other:253:255")


class Killed(Exception):
    """The process was killed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row. `before`, `after`: the keys of the images. An INSERT has no `before`, and a DELETE has no
    `after`."""

    table: TableName
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a sink gets. `version`: the number of the change that made this state of the row; `gone`: True if
    that change is a DELETE; `repeated`: True if the order of the key is unknown, or if the chunk was planned before."""

    table: TableName
    key: int
    version: int
    gone: bool
    read: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class Offset:
    place: int
    state: SnapshotState | None

    def to_json(self) -> str:
        state = None if self.state is None else self.state.as_json()
        return json.dumps({"place": self.place, "snapshot": state})

    @classmethod
    def of_json(cls, text: str) -> Offset:
        value = json.loads(text)
        state = value["snapshot"]
        return cls(value["place"], None if state is None else SnapshotState.of_json(state))


@dataclass
class Server:
    """A server: its log, and its tables at the end of the log. Each transaction is one change."""

    random: Random
    tables: dict[TableName, dict[int, int]]  # by table, the version of each key's row
    log: list[Change] = field(default_factory=list)
    names_later: list[TableName] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.log)

    def change(self) -> None:
        if self.names_later and self.random.random() < 0.03:
            self.tables[self.names_later.pop()] = {}
        table = self.random.choice(sorted(self.tables))
        rows = self.tables[table]
        version = self.end + 1
        free = [key for key in range(KEYS) if key not in rows]
        kind = self.random.random()
        if free and (not rows or kind < 0.35):
            change = Change(table, None, self.random.choice(free))
        elif kind < 0.55:
            change = Change(table, self.random.choice(sorted(rows)), None)
        elif free and kind < 0.75:
            change = Change(table, self.random.choice(sorted(rows)), self.random.choice(free))
        else:
            key = self.random.choice(sorted(rows))
            change = Change(table, key, key)
        if change.before is not None:
            del rows[change.before]
        if change.after is not None:
            rows[change.after] = version
        self.log.append(change)


class Process:
    """A process with a planner, for which it implements `Sources`. The first call opens the session of the process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session: int | None = None
        self.planner = SnapshotPlanner(self)

    def session_at(self, position: Position) -> int:
        assert position.seq >= self._world.acknowledged, "a session behind what was acknowledged"
        self._world.acknowledged = position.seq
        if self._session is None:
            self._world.sessions += 1
            self._session = self._world.sessions
        return self._session

    def backlog(self, position: Position) -> Backlog:
        waiting = self._world.server.end - position.seq
        return Backlog(waiting > 0, waiting <= self._world.queue, position)

    def selects(self, table: TableName) -> bool:
        return table not in self._world.left_out

    def is_due(self) -> bool:
        return self._world.random.random() < 0.9

    def changes(self, position: Position) -> Position:
        world = self._world
        waiting = min(world.server.end - position.seq, world.queue)
        return place(position.seq + world.random.randint(min(waiting, 1), waiting))

    def tables(self, after: TableName | None) -> list[TableName]:  # noqa: ARG002
        return [name for name in self._world.server.tables if name not in self._world.left_out]

    def key(self, table: TableName) -> tuple[KeyPart, ...]:
        assert table not in self._world.left_out, "a table that is not selected"
        return self._world.keys[table]

    def upper(self, table: TableName, after: Bound | None) -> Bound | None:
        behind = [key for key in self._world.ordered(table) if after is None or key > _key(after)]
        rows = self._world.random.randint(1, 8)
        return (str(behind[rows - 1]),) if len(behind) >= rows else None

    def head(self) -> tuple[int, int]:
        return place(self._world.server.end).order


def place(number: int) -> Position:
    return Position("server", "", "log.1", number, number, 1)


def _key(bound: Bound) -> int:
    return int(bound[0])


class World:
    def __init__(self, seed: int, trace: Callable[[str], object] = lambda _: None) -> None:
        self.random = random = Random(seed)
        self.trace = trace
        names: list[TableName] = [("shop", name) for name in ("a", "b", "c", "d")]
        random.shuffle(names)
        count = random.randint(1, 3)
        later = names[count : count + random.randint(0, 1)]
        self.server = Server(random, {name: {} for name in names[:count]}, names_later=later)
        self.keys = {
            name: (ORDERED if random.random() < 0.75 else UNORDERED,)
            for name in (*names[:count], *later)
        }
        for _ in range(random.randint(0, 40)):
            self.server.change()
        self.queue = random.randint(3, 12)
        self.sessions = 0
        self.acknowledged = 0
        self.kill_rate = random.choice((0.0, 0.05, 0.2))
        self.change_rate = random.choice((0.1, 0.4, 0.7))
        self.narrows = random.random() < 0.3
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[Event]] = {}
        self.left_out: set[TableName] = set()  # tables that the query's options no longer select
        self.kills = 0

    def ordered(self, table: TableName) -> list[int]:
        return sorted(self.server.tables[table])

    # -- Spark -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let the query run, with kills, until the snapshot is over and all changes are delivered."""
        self.offsets = [Offset(self.server.end, SnapshotState()).to_json()]
        self.acknowledged = self.server.end
        busy = self.random.randint(5, 60)
        process = Process(self)
        for turn in range(4000):
            if turn > busy:
                self.change_rate = self.kill_rate = 0.0
            try:
                if self._turn(process):
                    return
            except Killed:
                self.trace("killed")
                self.kills += 1
                self._may_be_narrowed()
                process = Process(self)
        raise AssertionError("the snapshot does not end")

    def _turn(self, process: Process) -> bool:
        self._time_passes()
        committed = Offset.of_json(self.offsets[self.commits])
        if len(self.offsets) == self.commits + 1:
            end = self._planned(process, committed)
            if end is None:
                return False
            if end == committed:
                return self.change_rate == 0.0
            self._may_be_killed()
            text = end.to_json()
            assert len(text) <= OFFSET_BYTES_MAX, text
            self._check_attempt(committed.state, end.state)
            self.offsets.append(text)
            self.trace(text)
        self._may_be_killed()
        end = Offset.of_json(self.offsets[self.commits + 1])
        content = list(self._content(process, committed, end))
        self._may_be_killed()
        for event in content:
            self.trace(f"    {event}")
        self.sink.setdefault(self.commits, content)
        self._may_be_killed()
        self.commits += 1
        self._may_be_killed()
        return False

    @staticmethod
    def _check_attempt(start: SnapshotState | None, end: SnapshotState | None) -> None:
        """Assert that a chunk that is read again has the same end as before, because a sink may have all rows of the
        chunk."""
        if start is None or end is None or end.chunk is None or end.chunk.attempt == 1:
            return
        assert start.chunk is not None and start.chunk.upper == end.chunk.upper, (start, end)

    def _planned(self, process: Process, start: Offset) -> Offset | None:
        if start.state is None:
            process.session_at(place(start.place))
            return Offset(process.changes(place(start.place)).seq, None)
        planned = process.planner.next(place(start.place), start.state)
        if planned is None:
            return None
        return Offset(planned[0].seq, planned[1])

    def _time_passes(self) -> None:
        while self.random.random() < self.change_rate:
            self.server.change()

    def _may_be_narrowed(self) -> None:
        """Start the query again with options that leave a table out."""
        names = sorted(self.server.tables)
        if self.narrows and len(names) > 1 and self.random.random() < 0.1:
            self.left_out.add(self.random.choice(names))
            self.trace(f"left out: {sorted(self.left_out)}")

    def _may_be_killed(self) -> None:
        if self.random.random() < self.kill_rate:
            raise Killed
        self._time_passes()

    # -- what the executors do -------------------------------------------------------------------------------

    def _content(self, process: Process, start: Offset, end: Offset) -> Iterator[Event]:
        if end.state is not None and end.state.rows:
            assert start.place == end.place
            if process.planner.reads(place(end.place), end.state):
                yield from self._rows(end.place, end.state)
            return
        process.session_at(place(start.place))
        for number in range(start.place, end.place):
            yield from self._delivered(self.server.log[number], number + 1, end.state)

    def _rows(self, position: int, state: SnapshotState) -> Iterator[Event]:
        table, chunk = state.table, state.chunk
        assert table is not None and chunk is not None
        assert table not in self.left_out, "rows of a table that is not selected"
        low = -1 if state.after is None else _key(state.after)
        high = KEYS if chunk.upper is None else _key(chunk.upper)
        cuts = sorted({low, high, *(self.random.randint(low, high) for _ in range(2))})
        for lower, upper in pairwise(cuts):
            self._time_passes()
            shown = {k: v for k, v in self.server.tables[table].items() if lower < k <= upper}
            self._time_passes()
            behind = self.server.log[position : self.server.end]
            if len(behind) > 2 * self.queue:
                raise Killed  # the queue cannot hold the changes; Spark ends the query
            changed = frozenset(
                key for change in behind if change.table == table for key in (change.before, change.after)
            )  # fmt: skip
            keys = sorted(shown)
            for key, is_unchanged in zip(keys, rules.unchanged(keys, changed), strict=True):
                if is_unchanged:
                    again = chunk.attempt > 1 or self.keys[table] == (UNORDERED,)
                    yield Event(table, key, shown[key], gone=False, read=True, repeated=again)

    def _delivered(
        self, change: Change, version: int, state: SnapshotState | None
    ) -> Iterator[Event]:
        if change.table in self.left_out:
            return
        part = DeliveredPart.WHOLE
        if state is not None:
            limit = rules.delivered(state, change.table)
            sides = [self._is_read(limit, change.table, key) for key in (change.before, change.after)]  # fmt: skip
            part = rules.delivered_part(*sides)
        if change.before is not None and part in (DeliveredPart.WHOLE, DeliveredPart.DELETE):
            moved = change.after != change.before or part is DeliveredPart.DELETE
            if moved:
                yield Event(change.table, change.before, version, gone=True, read=False, repeated=False)  # fmt: skip
        if change.after is not None and part in (DeliveredPart.WHOLE, DeliveredPart.INSERT):
            yield Event(change.table, change.after, version, gone=False, read=False, repeated=False)

    def _is_read(self, limit: Delivers | Bound, table: TableName, key: int | None) -> bool | None:
        if key is None:
            return None
        if isinstance(limit, Delivers):
            return limit is Delivers.ALL
        return KeyLimit(self.keys[table], limit).includes([key])

    # -- what must be true -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the sink's events are in order, and that the newest events of all keys equal the rows of those
        tables that the query still selected at its end."""
        versions: dict[tuple[TableName, int], int] = {}
        rows: dict[TableName, dict[int, int]] = {name: {} for name in self.server.tables}
        for number in sorted(self.sink):
            for event in self.sink[number]:
                last = versions.get((event.table, event.key), 0)
                may_repeat = event.read and event.repeated
                assert event.version > last or (may_repeat and event.version == last), (event, last)
                versions[event.table, event.key] = event.version
                if event.gone:
                    rows[event.table].pop(event.key, None)
                else:
                    rows[event.table][event.key] = event.version
        selected = self.server.tables.keys() - self.left_out
        assert {name: rows[name] for name in selected} == {
            name: self.server.tables[name] for name in selected
        }
