"""The methods of the daemon that the front calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.dispatch.queue.queue import HeldRange
from dispatcher.dispatch.queue.reader_sessions import ReaderSessions
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.model.subscription import Subscription


class Consumers(ReaderSessions, Protocol):
    """The sessions of the daemon's consumers. A method that refuses its call raises BinlogError."""

    @property
    def closing(self) -> bool:
        """True once the daemon is ending or is no longer the leader. Polls then return without waiting."""

    def names(self) -> list[str]: ...

    def subscription(self, name: str) -> Subscription: ...

    async def held(self, name: str) -> HeldRange | None: ...

    async def open_at(self, name: str, start: Start) -> dict[str, Any]: ...

    async def dump_refusal(self, name: str, asked: AskedDump) -> DumpRefusal | None: ...

    def lacks_room(self, name: str) -> bool: ...

    async def picture(self, name: str) -> Picture: ...

    async def look_up(self, name: str, statement: str) -> ServerAnswer: ...

    def format(self, name: str) -> FormatDescription | None: ...


GetConsumers = Callable[[], Consumers]
"""Returns the consumers. Raises NotLeaderError on a standby."""
