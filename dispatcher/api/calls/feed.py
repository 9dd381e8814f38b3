"""The status page's server-sent events: one snapshot of the daemon per second, shared by all viewers.

Nothing is computed while there are no viewers. The task of the first viewer that needs the next snapshot computes it,
and all other viewers use the same snapshot. A viewer that receives slowly skips snapshots.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from dispatcher.access.tokens import Token
from dispatcher.api.answers.models import GetRole
from dispatcher.api.connections.limits import Holder, Slots
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

VIEWERS_MAX = 32  # viewers with one token; the limit for all tokens together is twice as high
EVERY_S = 1.0
_ROWS_PER_S = 250  # with more consumers than this, snapshots are made less often
_EVERY_MAX_S = 5.0
# GTID sets of many intervals are large, so snapshots omit these fields. A viewer gets these fields with the complete
# row of one consumer.
_LEFT_OUT = frozenset({"mysql_binlog_executed_gtid_set", "dispatcher_mysql_binlog_executed_gtid_set"})  # fmt: skip
_PAGE = "the status page"
_POSITIONS = ("acknowledged", "covered")

Json = dict[str, Any]


class Happening(Protocol):
    """An event of the timeline, which has happened `count` times in a row. `first_s`, `at_s`: when it happened first
    and last, seconds since 1970; `consumers`: () if the event concerns all consumers of the connection."""

    @property
    def number(self) -> int: ...
    @property
    def first_s(self) -> float: ...
    @property
    def at_s(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def level(self) -> int: ...
    @property
    def connection(self) -> str: ...
    @property
    def dispatcher(self) -> int | None: ...
    @property
    def consumers(self) -> tuple[str, ...]: ...
    @property
    def event(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def count(self) -> int: ...


class StatusSource(Protocol):
    """The data that the page shows. `row` raises UserError (UNKNOWN_CONSUMER); `history` returns lists of samples by
    name; `events` returns the version of the timeline, and its events, oldest first."""

    def rows(self) -> AsyncIterator[Json]: ...
    def row(self, consumer: str) -> Json: ...
    def connections(self) -> AsyncIterator[Json]: ...
    def history(self, consumer: str) -> Mapping[str, Sequence[float]]: ...
    def events(self) -> tuple[int, Sequence[Happening]]: ...


@dataclass(slots=True)
class _Snapshot:
    """`rows`: (name, JSON) of each consumer; `texts`: the event for the viewers with a token, by the token's consumers
    and name."""

    number: int
    made_at: float
    time_s: float
    rows: list[tuple[str, str]]
    connections: list[Json]
    texts: dict[tuple[frozenset[str] | None, str], bytes] = field(default_factory=dict)


class StatusFeed:
    def __init__(self, source: StatusSource, version: str, role: GetRole = lambda: None) -> None:
        self._source = source
        self._role = role
        self._version = version
        self._newest: _Snapshot | None = None
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        self._viewers = Slots("viewers", VIEWERS_MAX, "")

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    @property
    def viewers(self) -> int:
        return self._viewers.open(_PAGE)

    def has_room(self, token: Token) -> bool:
        return self._viewers.has_room(_PAGE, Holder.of(token))

    @contextmanager
    def viewing(self, token: Token) -> Iterator[None]:
        """Count a viewer with this token while the context is open. Raises UserError (TOO_MANY_REQUESTS)."""
        if not self.has_room(token):
            raise UserError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{self.viewers} browsers watch the status page, too many of them with this token",
                remedy="close one of them",
            )
        with self._viewers.hold(_PAGE, Holder.of(token)):
            yield

    async def events(self, identify: Callable[[], Token]) -> AsyncIterator[bytes]:
        """Yield events for one viewer until the daemon ends, or until `identify` refuses the viewer."""
        number = timeline = -1
        while not self._closing.is_set():
            snapshot = await self._after(number)
            if snapshot is None:
                return
            try:
                token = identify()
            except BinlogError:
                yield b"event: end\ndata: {}\n\n"
                return
            number = snapshot.number
            yield self._text(snapshot, token)
            version, _ = self._source.events()
            if version != timeline:
                timeline = version
                yield _event("timeline", json.dumps(self._happenings(snapshot, token)))

    async def _after(self, number: int) -> _Snapshot | None:
        """Wait for a snapshot with a number above `number`, and return it; None if the daemon ends."""
        async with self._turn:
            newest = self._newest
            if newest is None or newest.number <= number or _is_old(newest):
                due = newest.made_at + _every_s(newest) if newest else 0.0
                try:
                    async with asyncio.timeout(due - time.monotonic()):
                        await self._closing.wait()
                    return None
                except TimeoutError:
                    pass
                self._newest = newest = await self._make(newest.number + 1 if newest else 1)
        return newest

    async def _make(self, number: int) -> _Snapshot:
        made_at, time_s = time.monotonic(), time.time()
        rows = [(row["name"], json.dumps(_shown(row))) async for row in self._source.rows()]
        connections = [connection async for connection in self._source.connections()]
        return _Snapshot(number, made_at, time_s, rows, connections)

    def _text(self, snapshot: _Snapshot, token: Token) -> bytes:
        key = (
            token.consumers,
            token.name,
        )  # the name: a token also sees the consumers that it has declared
        text = snapshot.texts.get(key)
        if text is None:
            rows = ",".join(row for name, row in snapshot.rows if token.may_see(name))
            role = self._role()
            head = {
                "version": self._version,
                "role": None if role is None else role.as_dict(),
                "time": round(snapshot.time_s, 3),
                "connections": [c for c in map(_visible_to(token), snapshot.connections) if c],
            }
            text = _event("snapshot", f'{json.dumps(head)[:-1]}, "consumers": [{rows}]}}')
            snapshot.texts[key] = text
        return text

    def _happenings(self, snapshot: _Snapshot, token: Token) -> list[Json]:
        visible = {c["name"] for c in map(_visible_to(token), snapshot.connections) if c}
        shown = []
        for one in self._source.events()[1]:
            names = [name for name in one.consumers if token.may_see_past(name)]
            if names or (
                not one.consumers and (token.consumers is None or one.connection in visible)
            ):
                shown.append(_happening(one, names))
        return shown


def _is_old(snapshot: _Snapshot) -> bool:
    return time.monotonic() - snapshot.made_at > 2 * _every_s(snapshot)


def _every_s(snapshot: _Snapshot) -> float:
    return min(_EVERY_MAX_S, max(EVERY_S, len(snapshot.rows) / _ROWS_PER_S))


def _shown(row: Json) -> Json:
    shown = {key: value for key, value in row.items() if key not in _LEFT_OUT}
    for key in _POSITIONS:
        if shown.get(key):
            shown[key] = {part: value for part, value in shown[key].items() if part != "gtid"}
    return shown


def _visible_to(token: Token) -> Callable[[Json], Json | None]:
    """Returns a function that removes from a connection what the token may not see. The function returns None if
    nothing remains."""

    def visible(connection: Json) -> Json | None:
        if token.consumers is None:
            return connection
        names = [name for name in connection["consumers"] if token.may_see(name)]
        dispatchers = [
            dispatcher | {"consumers": attached}
            for dispatcher in connection["dispatchers"]
            if (attached := [name for name in dispatcher["consumers"] if token.may_see(name)])
        ]
        return connection | {"consumers": names, "dispatchers": dispatchers} if names else None

    return visible


def _happening(one: Happening, names: list[str]) -> Json:
    return {
        "number": one.number,
        "since": round(one.first_s, 3),
        "time": round(one.at_s, 3),
        "kind": one.kind,
        "level": one.level,
        "connection": one.connection,
        "dispatcher": one.dispatcher,
        "consumers": names,
        "event": one.event,
        "detail": one.detail,
        "count": one.count,
    }


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()
