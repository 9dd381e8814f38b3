"""HTTP/1.1 on the wire, within limits: uvicorn's protocol of httptools has none for headers, times and slow readers.

What is limited, see `limits`: the size and number of headers, the time in which headers and then a body must arrive,
the number of connections, and how long a reader may leave an answer unread. Everything that is refused here is answered
with a problem document if there is still an answer to give.

Who gives way when there are too many connections: those that wait for a request, the one that has waited longest first,
be it half-sent or idle. One whose request is being worked on is never closed for another. So a flood of half-sent
requests displaces itself, and a probe or a reader that sends a whole request at once is served.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dispatcher.api.limits import HEADER_BYTES_MAX, HEADERS_MAX, LINGER_BYTES_MAX, Limits
from dispatcher.api.problems import raw_refusal


class _Phase(Enum):
    """Of the newest request of a connection."""

    IDLE = auto()  # none has begun
    HEAD = auto()  # its headers arrive
    BODY = auto()  # its body arrives
    WHOLE = auto()  # it is there


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `limits` and `waiting` are those of one listener."""

    limits: ClassVar[Limits] = Limits()
    waiting: ClassVar[dict[BoundedProtocol, None]] = {}  # for a request; oldest first

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._phase = _Phase.HEAD
        self._refused = False
        self._received = 0  # bytes since the head began
        self._head_bytes = self._headers = 0
        self._lingered = 0  # bytes of a body whose request has been answered
        self._arrival: asyncio.TimerHandle | None = None
        self._drain: asyncio.TimerHandle | None = None

    # -- connections -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max and not self._make_room():
            self._phase = _Phase.WHOLE
            self._refuse(503, f"{self.limits.connections_max} connections are open")
            return
        self._expect_head()

    def _make_room(self) -> bool:
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        del self.waiting[oldest]
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._cancel_arrival()
        self._cancel_drain()
        super().connection_lost(exc)

    # -- a request arrives -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._phase is _Phase.IDLE:
            self._expect_head()
        if self._phase is _Phase.HEAD:
            self._received += len(data)
        super().data_received(data)
        # A header may be larger than what has been parsed of it.
        if self._phase is _Phase.HEAD and self._received > HEADER_BYTES_MAX and not self._refused:
            self._refuse_head()

    def _expect_head(self) -> None:
        self._phase = _Phase.HEAD
        self._received = self._head_bytes = self._headers = 0
        self.waiting[self] = None
        what = f"the headers did not arrive within {self.limits.header_timeout_s:g} s"
        self._arm_arrival(self.limits.header_timeout_s, what)

    def on_message_begin(self) -> None:
        if not self._refused:
            if self._phase is not _Phase.HEAD:
                self._expect_head()
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes <= HEADER_BYTES_MAX:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4  # b": " and b"\r\n"
        self._headers += 1
        if not self._head_too_large:
            super().on_header(name, value)

    @property
    def _head_too_large(self) -> bool:
        return self._head_bytes > HEADER_BYTES_MAX or self._headers > HEADERS_MAX

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        if self._head_too_large:
            self._refuse_head()
            return
        self.waiting.pop(self, None)
        self._phase = _Phase.BODY
        self._lingered = 0
        what = f"the body did not arrive within {self.limits.body_timeout_s:g} s"
        self._arm_arrival(self.limits.body_timeout_s, what)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        if self.cycle.response_complete:
            self._lingered += len(body)
            if self._lingered > LINGER_BYTES_MAX:
                self._close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._cancel_arrival()
        self._phase = _Phase.WHOLE
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before its body had come
            self._become_idle()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # -- an answer leaves ------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._limit_drain()
        elif self.cycle.response_complete:
            if self._phase is _Phase.WHOLE:
                self._become_idle()
            else:
                self.waiting[self] = None

    def _become_idle(self) -> None:
        self._phase = _Phase.IDLE
        self.waiting[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_drain()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._cancel_drain()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    # -- refusals --------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse_head(self) -> None:
        what = (
            f"a request has at most {HEADER_BYTES_MAX} bytes of headers, and {HEADERS_MAX} of them"
        )
        self._refuse(431, what)

    def _refuse(self, status: int, what: str) -> None:
        """Answer for the newest request, unless an answer to it or to one before it has begun; then close."""
        if self._refused:
            return
        self._refused = True
        self.waiting.pop(self, None)
        self._cancel_arrival()
        cycle = self._newest_cycle()
        silent = self._phase is _Phase.HEAD and not self._received
        answered = cycle is None or cycle.response_complete
        if silent or (self._phase is _Phase.BODY and answered):
            self._close()  # there is nothing to answer
            return
        if cycle is not None and not answered:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.abort()
                return
        if not self.transport.is_closing():
            self.transport.write(raw_refusal(status, what))
        self._close()

    def _newest_cycle(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, whatever its annotation says

    def _close(self) -> None:
        """Close when what was written is sent, or when that takes too long."""
        self._refused = True
        self.transport.close()
        self._limit_drain()

    # -- timers ----------------------------------------------------------------------------------------------

    def _arm_arrival(self, after_s: float, what: str) -> None:
        self._cancel_arrival()
        self._arrival = self.loop.call_later(after_s, self._refuse, 408, what)

    def _cancel_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _limit_drain(self) -> None:
        if self._drain is None and self.transport.get_write_buffer_size():
            self._drain = self.loop.call_later(self.limits.write_timeout_s, self.transport.abort)

    def _cancel_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None


def bounded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of a listener with these limits, for `uvicorn.Config(http=...)`."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.limits = limits
    Protocol.waiting = {}
    return Protocol
