"""The methods of the daemon that the front calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.queue.queue import HeldRange
from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.position import Position
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.model.subscription import Subscription


class Consumers(Protocol):
    """The sessions of the daemon's consumers. A method that refuses its call raises BinlogError."""

    @property
    def closing(self) -> bool:
        """True once the daemon is ending or is no longer the leader. Polls then return without waiting."""

    def names(self) -> list[str]: ...

    def subscription(self, name: str) -> Subscription: ...

    async def held(self, name: str) -> HeldRange | None: ...

    async def open_at(self, name: str, start: Start) -> dict[str, Any]: ...

    async def dump_refusal(self, name: str, asked: AskedDump) -> DumpRefusal | None: ...

    async def open_session(
        self, name: str, after: Position | None, read_only: bool
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
        acknowledges: bool,
    ) -> dict[str, Any]: ...

    async def binlog(
        self, name: str, number: int, start: Position, end: Position
    ) -> tuple[list[bytes | memoryview], bool]: ...

    async def acknowledge(self, name: str, number: int, position: Position) -> dict[str, Any]: ...

    def lacks_room(self, name: str) -> bool: ...

    def called(self, name: str, number: int, caller: Caller) -> None: ...

    def answer_ended(self, name: str, number: int) -> None: ...

    async def picture(self, name: str) -> Picture: ...

    async def look_up(self, name: str, statement: str) -> ServerAnswer: ...

    def format(self, name: str) -> FormatDescription | None: ...


GetConsumers = Callable[[], Consumers]
"""Returns the consumers. Raises NotLeaderError on a standby."""
