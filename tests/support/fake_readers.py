"""Fakes of the services that the API calls, for tests of the API alone. The fakes answer at once and record the
calls."""

# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from dispatcher.runtime.status.timeline import TimelineEvent
from dispatcher.settings.model import StartSettings

PLACE = Position("server", "", "binlog.000001", 4, 1, 1)


class FakeDeclarer:
    """A `Declarer` that permits every declaration for every token. `declared`: the declared consumers, by name."""

    def __init__(self) -> None:
        self.declared: dict[str, Declaration] = {}
        self.permitted: list[Collection[str] | None] = []
        self.removed: list[tuple[str, str | None]] = []

    @property
    def owners(self) -> dict[str, str]:
        return {name: each.owner for name, each in self.declared.items()}

    async def declare(
        self, wanted: Declaration, permitted: Collection[str] | None
    ) -> tuple[Declaration, bool]:
        self.permitted.append(permitted)
        existing = self.declared.setdefault(wanted.name, wanted)
        return existing, existing is wanted

    async def remove(self, name: str, owner: str | None) -> None:
        self.removed.append((name, owner))

    async def table(
        self, source_name: str | None, permitted: Collection[str] | None, database: str, table: str
    ) -> dict[str, Any]:
        self.permitted.append(permitted)
        return {"database": database, "table": table, "columns": [], "key": [str(source_name)]}


class FakeReaders:
    """A `ConsumerService` and `Administrator`. `calls`: the names of the calls, in order."""

    def __init__(self, names: tuple[str, ...] = ("shop", "billing")) -> None:
        self.names = names
        self.calls: list[str] = []
        self.callers: list[Caller] = []
        self.sought: list[StartSettings] = []
        self.bounds: list[PollBounds] = []
        self.parts: list[bytes | memoryview] = [b"\xfebin", b"x" * 10]
        self.gap = False
        self.transactions = 0  # the number that a poll returns
        self.state = "failed"
        self.error: str | None = "it failed"
        self.happened: list[TimelineEvent] = []

    def _called(self, call: str, name: str) -> None:
        self.calls.append(call)
        if name not in self.names:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(name))

    async def open_session(
        self,
        name: str,
        after: Position | None,
        read_only: bool,
        *,
        unknown_definitions: bool = False,
    ) -> dict[str, Any]:
        self._called("session", name)
        return {
            "session": 0 if read_only else 1,
            "position": (after or PLACE).as_dict(),
            "head": PLACE.as_dict(),
            "max_bytes_in_binlog_queue": 1,
            "gap": False,
            "lower_case_table_names": 0,
        }

    async def poll(
        self,
        name: str,
        number: int,
        after: Position,
        bounds: PollBounds,
        wait_s: float,
        markers: bool,
        *,
        acknowledges: bool = True,
    ) -> dict[str, Any]:
        self._called("poll", name)
        self.bounds.append(bounds)
        end = after.as_dict()
        return {
            "end": end,
            "head": end,
            "bytes": 0,
            "transactions": self.transactions,
            "gap": False,
        }

    async def binlog(
        self,
        name: str,
        number: int,
        start: Position,
        end: Position,
        start_event: EventPoint | None = None,
        end_event: EventPoint | None = None,
    ) -> tuple[list[bytes | memoryview], bool]:
        self._called("binlog", name)
        return list(self.parts), self.gap

    async def slices(
        self,
        name: str,
        number: int,
        start: Position,
        end: Position,
        n: int,
        inside: bool = False,
    ) -> dict[str, Any]:
        self._called("slices", name)
        return {"cuts": [], "events": [], "bytes": 0}

    async def acknowledge(self, name: str, number: int, position: Position) -> dict[str, Any]:
        self._called("ack", name)
        return position.as_dict()

    async def table(self, name: str, database: str, table: str) -> dict[str, Any]:
        self._called("table", name)
        return {"database": database, "table": table, "columns": [], "key": []}

    async def resolve(self, name: str, to: StartSettings) -> dict[str, Any]:
        self._called("resolve", name)
        self.sought.append(to)
        return PLACE.as_dict()

    async def forget(self, name: str) -> dict[str, Any]:
        self._called("forget", name)
        return PLACE.as_dict()

    async def seek(self, name: str, to: StartSettings) -> dict[str, Any]:
        self._called("seek", name)
        self.sought.append(to)
        return PLACE.as_dict()

    async def set_paused(self, name: str, paused: bool) -> None:
        self._called("pause" if paused else "resume", name)

    def called(
        self, name: str, number: int, caller: Caller, *, unknown_definitions: bool = False
    ) -> None:
        self.callers.append(caller)

    def is_newest_session(self, name: str, number: int) -> bool:
        return name in self.names and number == 1

    def answer_ended(self, name: str, number: int) -> None:
        self.calls.append("answer ended")

    async def rows(self) -> AsyncIterator[dict[str, Any]]:
        for name in self.names:
            yield {"name": name, "state": self.state, "last_error": self.error}

    def row(self, consumer: str) -> dict[str, Any]:
        if consumer not in self.names:
            raise UserError(ErrorKind.UNKNOWN_CONSUMER, repr(consumer))
        return {"name": consumer, "state": "failed"}

    async def connections(self) -> AsyncIterator[dict[str, Any]]:
        attached = [name for name in self.names if name != "detached"]
        dispatcher = {"name": "shop:1", "main": True, "consumers": attached}
        yield {"name": "repl@db1:3306", "consumers": list(self.names), "dispatchers": [dispatcher]}

    def history(self, consumer: str) -> dict[str, list[float]]:
        return {"time": [1.0], "bytes": [2.0]}

    def events(self) -> tuple[int, list[TimelineEvent]]:
        return len(self.happened), self.happened
