"""The calls of readers' sessions that the API and the front both pass to the daemon."""

from __future__ import annotations

from typing import Any, Protocol

from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.model.position import EventPoint, Position


class ReaderSessions(Protocol):
    """A method that refuses its call raises BinlogError. `number`: the number of the session."""

    async def open_session(
        self,
        name: str,
        after: Position | None,
        read_only: bool,
        *,
        unknown_definitions: bool = False,
    ) -> dict[str, Any]: ...

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
    ) -> dict[str, Any]: ...

    async def binlog(
        self,
        name: str,
        number: int,
        start: Position,
        end: Position,
        start_event: EventPoint | None = None,
        end_event: EventPoint | None = None,
    ) -> tuple[list[bytes | memoryview], bool]: ...

    async def acknowledge(self, name: str, number: int, position: Position) -> dict[str, Any]: ...

    def called(
        self, name: str, number: int, caller: Caller, *, unknown_definitions: bool = False
    ) -> None:
        """Record that a session makes a call."""

    def answer_ended(self, name: str, number: int) -> None:
        """Record that an answer of `binlog` was sent, or that the client of the answer has disconnected."""
