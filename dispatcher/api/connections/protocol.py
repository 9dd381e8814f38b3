"""uvicorn's HTTP/1.1 protocol with limits on headers, arrival times, connections and slow readers.

The module `limits` limits the size and number of headers. The settings of `api` limit the time in which the headers,
and then the body, must arrive, the number of connections, and the time in which a reader must receive an answer. The
protocol answers a refused request with a problem document if an answer is still possible.

The memory of a connection is bounded by the size of one read of its socket (256 KB), the limits of headers, and one
body of `api.max_bytes_in_request`. uvicorn parses all requests of a read, and queues the requests after the one that
is being processed. So the protocol accepts at most `PIPELINED_MAX` queued requests, and reads nothing more until the
queue is empty. The parser keeps an incomplete header, trailer or chunk size without reporting it, so the protocol
counts the bytes of reads.

At the limit of connections the protocol closes the connection that has waited longest for a request. Such a connection
is idle, does its TLS handshake, has sent incomplete headers, or is closing. The protocol never closes a connection
whose request is being processed. So in a flood of incomplete requests, probes and readers that send complete requests
are still served. The protocol does the TLS handshake itself, so that it can also close a connection during its
handshake: otherwise the event loop would report a connection to the protocol only after the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from enum import Enum, auto
from typing import Any, ClassVar

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dispatcher.api.answers.problems import raw_refusal
from dispatcher.api.connections.answer_writer import AnswerWriter
from dispatcher.api.connections.disconnects import EXTENSION, Disconnects
from dispatcher.api.connections.limits import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    LINGER_BYTES_MAX,
    PIPELINED_MAX,
    TLS_CLOSE_S,
)
from dispatcher.settings.api import ApiLimitSettings


class _Phase(Enum):
    """The state of a connection's newest request."""

    IDLE = auto()  # the next request has not begun
    HEAD = auto()  # the request's headers are arriving
    BODY = auto()  # the request's body is arriving
    COMPLETE = auto()  # the request has arrived


_IDLE, _HEAD, _BODY, _COMPLETE = _Phase  # reading a global costs less than an attribute of an Enum


class _Flow(FlowControl):
    """Resumes reading only while no request is queued."""

    def __init__(self, transport: asyncio.Transport, queued: deque[Any]) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        if self.read_paused and not self._queued:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. All connections of a listener share `limits`, `tls` and `waiting`."""

    limits: ClassVar[ApiLimitSettings] = ApiLimitSettings()
    tls: ClassVar[ssl.SSLContext | None] = None  # None: without TLS
    waiting: ClassVar[
        dict[BoundedProtocol, None]
    ] = {}  # connections without a request; oldest first

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._phase = _HEAD
        self._refused = False
        self._received = 0  # bytes since the headers began, or since the last part of the body
        self._head_bytes = self._headers = 0
        self._lingered = 0  # bytes of the body that arrived after the answer
        self._arrival: asyncio.TimerHandle | None = None
        self._drain: asyncio.TimerHandle | None = None
        self._disconnects = Disconnects(self._resume_reading, self._wait)
        # The request that is being processed; `cycle` is the newest request.
        self._running: RequestResponseCycle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""  # bytes received before the handshake began

    # -- connections -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.connections.add(self)
        full = len(self.connections) > self.limits.max_connections and not self._make_room()
        if self.tls is None:
            self._begin(transport, full=full)
        elif full:
            transport.abort()  # an answer is not possible before the handshake
        else:
            self.waiting[self] = None
            self._handshake = self.loop.create_task(self._shake_hands(transport, self.tls))
            self.loop.call_soon(self._pass_on, transport)

    def _pass_on(self, transport: asyncio.Transport) -> None:
        """Pass the bytes that came before the call of `start_tls` to the handshake, before the handshake reads more."""
        early, self._early = self._early, b""
        handshake: Any = transport.get_protocol()  # an asyncio.BufferedProtocol
        if handshake is self:
            return  # `start_tls` has failed
        while early:
            buffer = handshake.get_buffer(len(early))
            size = min(len(early), len(buffer))
            buffer[:size], early = early[:size], early[size:]
            handshake.buffer_updated(size)

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=self.limits.header_timeout_seconds,
                ssl_shutdown_timeout=self.limits.write_timeout_seconds,
            )
        except OSError as error:
            self.connection_lost(error)
            return
        if secured is None or transport.is_closing():  # closed by `_make_room` or `shutdown`
            self.connection_lost(ConnectionAbortedError())
            return
        self._begin(secured, full=False)

    def _begin(self, transport: asyncio.Transport, *, full: bool) -> None:
        """Expect the first request on an open connection."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        if full:
            self._phase = _COMPLETE
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
        self.pipeline.clear()
        if self._running is not None:  # uvicorn reports the end to the newest request only
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    # -- a request arrives -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self.scheme is None:  # the handshake has not begun
            self._early += data
            return
        if self._phase is _IDLE:
            self._expect_head()
        self._received += len(data)
        super().data_received(data)
        # The parser calls on_header only for complete headers and trailers, and keeps what is incomplete.
        if (
            self._received > HEADER_BYTES_MAX
            and self._phase in (_HEAD, _BODY)
            and not self._refused
        ):
            self._refuse_head()
        self._limit_arrival()

    def _expect_head(self) -> None:
        self._phase = _HEAD
        self._received = self._head_bytes = self._headers = 0
        cycle = self._newest_cycle()
        if cycle is None or cycle.response_complete:
            self.waiting[self] = None
        self._cancel_arrival()

    def on_message_begin(self) -> None:
        if self._refused:
            return
        if len(self.pipeline) >= PIPELINED_MAX:
            self._take_no_more()
            return
        if self._phase is not _HEAD:
            self._expect_head()
        super().on_message_begin()

    def _take_no_more(self) -> None:
        """Answer the queued requests, then close the connection. The client must send further requests on another
        connection."""
        self._refused = True
        self._cancel_arrival()
        self.cycle.keep_alive = False

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes <= HEADER_BYTES_MAX and not self._refused:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request. The parser calls this method for the trailers of a chunked body, too, which must
        not become headers (RFC 9110, 6.5.1)."""
        if self._phase is not _HEAD or self._refused:
            return
        self._head_bytes += len(name) + len(value) + 4  # b": " and b"\r\n"
        self._headers += 1
        if self._head_bytes <= HEADER_BYTES_MAX and self._headers <= HEADERS_MAX:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        if self._head_bytes > HEADER_BYTES_MAX or self._headers > HEADERS_MAX:
            self._refuse_head()
            return
        self.waiting.pop(self, None)
        self._phase = _BODY
        self._received = self._lingered = 0
        self._cancel_arrival()
        self.scope["extensions"] = {EXTENSION: self._disconnects}  # type: ignore[dict-item]
        super().on_headers_complete()
        self.cycle.transport = AnswerWriter(self.transport, self.loop)  # type: ignore[assignment]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._received = 0
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
        self._phase = _COMPLETE
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
            self._limit_closing()
        elif self.cycle.response_complete:
            if self._phase is _COMPLETE:
                self._become_idle()
            else:
                self.waiting[self] = None

    def _resume_reading(self) -> None:
        self.flow.resume_reading()

    def _wait(self, waits: bool) -> None:
        if waits:
            self.waiting[self] = None
        elif not self.transport.is_closing():
            self.waiting.pop(self, None)

    def _become_idle(self) -> None:
        self._phase = _IDLE
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
        if self.transport.is_closing():
            self._limit_closing()

    def _unsupported_upgrade_warning(self) -> None:
        """An `Upgrade` header is ignored (RFC 9110, 7.8). uvicorn would log two warnings for each."""

    # -- refusals --------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse_head(self) -> None:
        self._refuse(
            431, f"more than {HEADER_BYTES_MAX} bytes of headers, or {HEADERS_MAX} headers"
        )

    def _refuse(self, status: int, what: str) -> None:
        """Close the connection. Before that, answer the newest request with the refusal. Do not answer it if nothing of
        a request has arrived, if the answer to the request has begun, or if earlier requests are not answered yet."""
        if self._refused:
            return
        self._refused = True
        self.waiting.pop(self, None)
        self._cancel_arrival()
        cycle = self._newest_cycle()
        silent = self._phase is _HEAD and not self._received
        answered = cycle is None or cycle.response_complete
        if silent or (self._phase is _BODY and answered):
            self._close()  # no request waits for an answer
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
        """Close the connection when the written bytes are sent, or at the write timeout."""
        self._refused = True
        self.transport.close()
        self._limit_closing()

    def _limit_closing(self) -> None:
        """Limit how long the close of the connection takes. Until the connection is closed, `_make_room` may abort
        it."""
        if self not in self.connections:
            return
        self.waiting[self] = None
        if self.transport.get_write_buffer_size():
            self._limit_drain()
        elif self.tls is not None:
            # A TLS connection ends only when the client closes it, too. An idle client notices the daemon's close only
            # when it sends its next request.
            self._drain = self._drain or self.loop.call_later(TLS_CLOSE_S, self.transport.abort)

    # -- timers ----------------------------------------------------------------------------------------------

    def _limit_arrival(self) -> None:
        """Start a timer for the rest of the headers or of the body, if no such timer runs. Most requests arrive in one
        read and need no timer."""
        if self._arrival is not None or self._refused:
            return
        if self._phase is _HEAD:
            what, after_s = "headers", self.limits.header_timeout_seconds
        elif self._phase is _BODY:
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


def bounded_protocol(limits: ApiLimitSettings) -> type[BoundedProtocol]:
    """Returns a protocol class for one listener with these limits, for `uvicorn.Config(http=...)`. The listener sets
    its `tls` before it starts."""

    class Protocol(BoundedProtocol):
        pass

    Protocol.limits = limits
    Protocol.waiting = {}
    return Protocol
