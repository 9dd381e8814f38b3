"""One connection of a client: reads exactly one packet at a time, and waits for a client that reads slowly.

The channel asks the transport for the bytes of exactly one packet: first its header, then its payload. After a
payload's last packet it pauses reading. So a ClientHello, which a client sends directly after its request for TLS,
stays in the socket until the TLS handshake reads it. The channel refuses a packet that is too large as soon as it has
the header, before it allocates memory for the payload.

A channel that does not read does not notice that its client has disconnected. During a dump, the front does not wait
for a command. So `watch` reads what the client sends. The future `closed` is then done as soon as the client
disconnects.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import sys
import termios
from collections.abc import Callable, Iterable
from typing import cast

from dispatcher.front.wire.errors import WireError, out_of_order, too_large
from dispatcher.front.wire.packets import HEADER_BYTES, PACKET_BYTES_MAX, framed, packets_in

CLOSE_S = 5.0
"""How long `close` waits for the client to receive the written bytes, in seconds."""
UNSENT_BYTES_MAX = 1 << 19
"""`drain` waits while more bytes than this are written but not yet accepted by the socket."""

# After 30 s without a received byte, the operating system sends a probe every 10 s. After the third unanswered probe,
# it closes the connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ClientGone(ConnectionError):
    """The connection is closed: by the client, or by the channel because the client received nothing for too long."""


class TlsFailed(ClientGone):
    """The handshake of TLS failed: the client does not speak TLS, or does not accept the certificate."""


class Channel(asyncio.BufferedProtocol):
    """One connection. `bytes_max`: the greatest size of the first packet that the client sends.

    Both directions share one sequence number, which `send` and the read methods increment. `write` sends complete
    packets and does not change the number.
    """

    def __init__(self, bytes_max: int, on_open: Callable[[Channel], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_open = on_open
        self._bytes_max = bytes_max
        self._socket: asyncio.Transport | None = None  # the transport of the network connection
        self._transport: asyncio.Transport | None = (
            None  # the transport of the packets: with TLS the TLS transport, otherwise `_socket`
        )
        self._securing = False
        self._sequence = 0

        self._wanted = True  # a packet is being read
        self._begins = False  # the packet that is being read begins a new sequence
        self._header = bytearray(HEADER_BYTES)
        self._body = bytearray()  # the body of the packet that is being read
        self._filled = 0  # how many bytes of the header or body have been read
        self._in_body = False
        self._earlier: list[bytes] = []  # bodies of earlier packets of the same payload
        # A complete payload that no read method has returned yet.
        self._payload: bytes | None = None
        self._fault: WireError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._watcher: Callable[[bytes], None] | None = None

        self._writable: asyncio.Future[None] | None = None  # set while writing is paused
        self._closing: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once either side has closed the connection. Wait for this future only with `asyncio.wait`; a direct
        `await` could cancel it."""
        self.host = "unknown"
        """The client's address."""
        self.tls = False

    # -- asyncio calls these -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = cast("asyncio.Transport", transport)  # uvloop's transport has another base class
        self._socket = self._transport = opened
        opened.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        peer = opened.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.host = str(peer[0])
        _keep_alive(opened)
        self._on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - exactly what is missing
        if not self._wanted:
            # For a byte that the client must not send: see `buffer_updated`.
            return memoryview(bytearray(1))
        return memoryview(self._body if self._in_body else self._header)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if not self._wanted:
            # Reading cannot be paused during the TLS handshake. A client that sends a second packet there breaks the
            # protocol.
            self._fail(out_of_order())
            return
        self._filled += nbytes
        if not self._in_body and self._filled == HEADER_BYTES:
            self._begin_body()
        if self._in_body and self._filled == len(self._body):
            self._end_body()

    def eof_received(self) -> None:
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was lost
        self._end()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # -- reading -----------------------------------------------------------------------------------------------

    async def read_packet(self, bytes_max: int, timeout_s: float | None) -> bytes:
        """Return the next payload of the current sequence, of at most `bytes_max` bytes.

        Raises WireError for a payload that is too large and for a wrong sequence number; nothing can be read after this
        error. Raises ClientGone and TimeoutError.
        """
        return await self._read(bytes_max, timeout_s, begins=False)

    async def read_command(self, bytes_max: int, timeout_s: float | None) -> bytes:
        """Return the payload of the next command, which begins a new sequence. Raises the errors of `read_packet`."""
        return await self._read(bytes_max, timeout_s, begins=True)

    async def _read(self, bytes_max: int, timeout_s: float | None, *, begins: bool) -> bytes:
        assert self._watcher is None
        if self._payload is None:
            self._want(bytes_max, begins=begins)
            await self._complete(timeout_s)
        payload, self._payload = self._payload, None
        assert payload is not None
        return payload

    def watch(self, on_packet: Callable[[bytes], None], bytes_max: int) -> None:
        """Until `unwatch`, call `on_packet` with each payload that the client sends, such as COM_QUIT during a dump.
        Each payload begins a new sequence. The channel closes the connection at a packet that `read_packet` would
        refuse, and if `on_packet` raises WireError."""
        self._watcher = on_packet
        self._want(bytes_max, begins=True)

    def unwatch(self) -> None:
        self._watcher = None

    async def _complete(self, timeout_s: float | None) -> None:
        """Wait until a payload is complete."""
        while self._payload is None:
            if self._fault is not None:
                raise self._fault
            self._raise_if_gone()
            self._reader = self._loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._reader
            finally:
                self._reader = None

    def _want(self, bytes_max: int, *, begins: bool) -> None:
        self._bytes_max, self._begins = bytes_max, begins
        if not self._wanted and self._fault is None and self._transport is not None:
            self._wanted = True
            self._transport.resume_reading()

    def _begin_body(self) -> None:
        size = int.from_bytes(self._header[:3], "little")
        sequence = self._header[3]
        expected = 0 if self._begins and not self._earlier else self._sequence
        self._sequence = (
            sequence + 1
        ) & 0xFF  # an error that refuses this packet has this number, too
        if sequence != expected:
            self._fail(out_of_order())
        elif size + PACKET_BYTES_MAX * len(self._earlier) > self._bytes_max:
            self._fail(too_large(self._bytes_max))
        else:
            self._body = bytearray(size)
            self._filled, self._in_body = 0, True

    def _end_body(self) -> None:
        body = bytes(self._body)
        self._body = bytearray()
        self._filled, self._in_body = 0, False
        if len(body) == PACKET_BYTES_MAX:
            self._earlier.append(body)
            return
        payload = b"".join((*self._earlier, body))
        self._earlier.clear()
        if self._watcher is None:
            self._pause()
            self._payload = payload
            self._wake()
            return
        try:
            self._watcher(payload)
        except WireError as error:
            self._fail(error)

    def _pause(self) -> None:
        self._wanted = False
        if not self._securing and self._transport is not None:
            self._transport.pause_reading()

    def _fail(self, error: WireError) -> None:
        self._fault = error
        self._pause()
        self._wake()
        if self._watcher is not None or self._securing:
            self.abort()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # -- writing -----------------------------------------------------------------------------------------------

    def send(self, payloads: Iterable[bytes]) -> None:
        """Write payloads as packets of this sequence. Raises ClientGone."""
        packets = []
        for payload in payloads:
            packets.append(framed(payload, self._sequence))
            self._sequence = (self._sequence + packets_in(payload)) & 0xFF
        self.write(b"".join(packets))

    def write(self, packets: bytes | memoryview) -> None:
        """Write complete packets. To bound the memory, call `drain` before the next `write`. Raises ClientGone."""
        self._raise_if_gone()
        assert self._transport is not None
        self._transport.write(packets)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the client has received most of the written bytes. If the client receives nothing for `timeout_s`,
        close the connection and raise ClientGone. If the client has received bytes at the beginning of the wait, this
        may take up to twice `timeout_s`."""
        while (writable := self._writable) is not None and not self.closed.done():
            unsent = self._unsent()
            done, _ = await asyncio.wait(
                (writable, self.closed), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and self._unsent() >= unsent:
                self.abort()
        self._raise_if_gone()

    def _unsent(self) -> int:
        """Bytes that the client's machine has not acknowledged."""
        transports = {self._socket, self._transport}
        waiting = sum(each.get_write_buffer_size() for each in transports if each is not None)
        return waiting + _queued_by_kernel(self._socket)

    # -- TLS and the end ---------------------------------------------------------------------------------------

    async def start_tls(self, context: ssl.SSLContext, bytes_max: int, timeout_s: float) -> None:
        """Do the TLS handshake as the server. The first packet after it may have at most `bytes_max` bytes.

        Raises TlsFailed if the handshake fails or takes longer than `timeout_s`.
        """
        self._raise_if_gone()
        assert self._socket is not None and self._payload is None
        self._bytes_max, self._wanted, self._securing = bytes_max, True, True
        try:
            secured = await self._loop.start_tls(
                self._socket,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except OSError as error:
            self._end_handshake()
            raise TlsFailed(str(error)) from error
        except asyncio.CancelledError:
            self._end_handshake()
            raise
        finally:
            self._securing = False
        if secured is None or secured.is_closing():  # the client disconnected during the handshake
            self._end_handshake()
            raise ClientGone("the client has gone")
        self._transport = secured
        self.tls = True
        secured.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        if not self._wanted:
            secured.pause_reading()

    def _end_handshake(self) -> None:
        """End the channel after a failed TLS handshake, and close the socket, unless the handshake has closed it."""
        if self._socket is not None and not self._socket.is_closing():
            self._socket.abort()
        self._end()

    def close(self) -> None:
        """Close the connection when the client has received all written bytes, at the latest after CLOSE_S."""
        if self._transport is None or self._closing is not None:
            return
        self._transport.close()
        self._closing = self._loop.call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._socket is not None:
            self._socket.abort()
        self._end()

    def _end(self) -> None:
        """Wake all tasks that wait for the client. They then raise ClientGone."""
        self._socket = self._transport = None
        if self._closing is not None:
            self._closing.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self._wake()

    def _raise_if_gone(self) -> None:
        closing = self._socket is None or self._socket.is_closing()
        if closing or self.closed.done():
            raise ClientGone("the client has gone")


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # the client has disconnected already


def _queued_by_kernel(transport: asyncio.Transport | None) -> int:
    """The number of bytes that were written to the socket and that the client's machine has not acknowledged. Source:
    tcp(7), SIOCOUTQ."""
    if transport is None or transport.is_closing() or not sys.platform.startswith("linux"):
        return 0
    answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)
