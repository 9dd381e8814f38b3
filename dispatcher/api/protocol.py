"""uvicorn's HTTP/1.1 protocol with limits on headers, arrival times, connections and slow readers.

The limits are in `limits`: size and number of headers, time for the headers and then for the body to arrive, number of
connections, time for a reader to receive an answer. A refused request is answered with a problem document if an answer
is still possible.

At the limit of connections the protocol closes the connection that has waited longest for a request, idle or with
incomplete headers. It never closes one whose request is being processed. So a flood of incomplete requests displaces
only itself, while probes and readers that send complete requests are served.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dispatcher.api.answer_writer import AnswerWriter
from dispatcher.api.disconnects import EXTENSION, Disconnects
from dispatcher.api.limits import HEADER_BYTES_MAX, HEADERS_MAX, LINGER_BYTES_MAX, TLS_CLOSE_S
from dispatcher.api.problems import raw_refusal
from dispatcher.settings.model import ApiLimitSettings


class _Phase(Enum):
    """The state of a connection's newest request."""

    IDLE = auto()  # the next request has not begun
    HEAD = auto()  # its headers are arriving
    BODY = auto()  # its body is arriving
    COMPLETE = auto()  # it has arrived


class BoundedProtocol(HttpToolsProtocol):
    """One connection. All connections of a listener share `limits` and `waiting`."""

    limits: ClassVar[ApiLimitSettings] = ApiLimitSettings()
    waiting: ClassVar[
        dict[BoundedProtocol, None]
    ] = {}  # connections without a request; oldest first

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._phase = _Phase.HEAD
        self._refused = False
        self._received = 0  # bytes since the headers began
        self._head_bytes = self._headers = 0
        self._lingered = 0  # bytes of the body that arrived after the answer
        self._arrival: asyncio.TimerHandle | None = None
        self._drain: asyncio.TimerHandle | None = None
        self._disconnects = Disconnects(self._resume_reading)

    # -- connections -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections and not self._make_room():
            self._phase = _Phase.COMPLETE
            self._refuse(503, f"{self.limits.max_connections} connections are open")
            return
        self._expect_head()
        self._limit_arrival()

    def _make_room(self) -> bool:
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        del self.waiting[oldest]
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnects.tell()
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
        # The parser calls on_header only for complete headers.
        if self._phase is _Phase.HEAD and self._received > HEADER_BYTES_MAX and not self._refused:
            self._refuse_head()
        self._limit_arrival()

    def _expect_head(self) -> None:
        self._phase = _Phase.HEAD
        self._received = self._head_bytes = self._headers = 0
        self.waiting[self] = None
        self._cancel_arrival()

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
        self._cancel_arrival()
        self.scope["extensions"] = {EXTENSION: self._disconnects}  # type: ignore[dict-item]
        super().on_headers_complete()
        self.cycle.transport = AnswerWriter(self.transport, self.loop)  # type: ignore[assignment]

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
        self._phase = _Phase.COMPLETE
        super().on_message_complete()
        if self.cycle.response_complete:  # answered before the body was complete
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
            if self._phase is _Phase.COMPLETE:
                self._become_idle()
            else:
                self.waiting[self] = None

    def _resume_reading(self) -> None:
        self.flow.resume_reading()

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

    def shutdown(self) -> None:
        super().shutdown()
        # With TLS, a close waits until the client closes too, which an idle client does not do before its next request.
        if self.transport.is_closing() and self.transport.get_extra_info("sslcontext"):
            self.loop.call_later(TLS_CLOSE_S, self.transport.abort)

    # -- refusals --------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse_head(self) -> None:
        self._refuse(
            431, f"more than {HEADER_BYTES_MAX} bytes of headers, or {HEADERS_MAX} headers"
        )

    def _refuse(self, status: int, what: str) -> None:
        """Answer the newest request, unless an answer to it or to an earlier one has begun; then close."""
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
        return self.cycle  # None before the first request, despite uvicorn's annotation

    def _close(self) -> None:
        """Close once the written bytes are sent, or at the write timeout."""
        self._refused = True
        self.transport.close()
        self._limit_drain()

    # -- timers ----------------------------------------------------------------------------------------------

    def _limit_arrival(self) -> None:
        """Limit the time for what is missing of the headers or of the body, if that is not done yet. Most requests
        arrive at once, and need no timer."""
        if self._arrival is not None or self._refused:
            return
        if self._phase is _Phase.HEAD:
            what, after_s = "headers", self.limits.header_timeout_seconds
        elif self._phase is _Phase.BODY:
            what, after_s = "body", self.limits.body_timeout_seconds
        else:
            return
        why = f"the {what} did not arrive within {after_s:g} s"
        self._arrival = self.loop.call_later(after_s, self._refuse, 408, why)

    def _cancel_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _limit_drain(self) -> None:
        if self._drain is None and self.transport.get_write_buffer_size():
            self._drain = self.loop.call_later(
                self.limits.write_timeout_seconds, self.transport.abort
            )

    def _cancel_drain(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None


def bounded_protocol(limits: ApiLimitSettings) -> type[asyncio.Protocol]:
    """A protocol class for one listener with these limits, for `uvicorn.Config(http=...)`."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.limits = limits
    Protocol.waiting = {}
    return Protocol
