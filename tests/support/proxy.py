"""A TCP proxy on the loopback. A test can slow, stop, damage or cut its connections while they are in use.

A link is a client's connection together with the connection to the server that the proxy has opened for this client.
The link's `Conditions` determine what happens to its bytes; `Proxy.set` returns when the new conditions apply. All
links run in one thread of this process, with `selectors`. The proxy counts and damages bytes when it sends them, so
`Conditions.cut_at` and `garble_at` name a byte of the stream, independent of the sizes of reads.

A link that swallows bytes simulates a half-open connection: nothing arrives on either side, and neither side detects
that the other side has closed. When the conditions change, the proxy ends such a link, because TCP never continues
after missing bytes. `Link.server_side` is the link's address in the server's thread list. This address identifies the
link of a dump even if the link's bytes are encrypted.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self, TypeVar

T = TypeVar("T")

_READ_BYTES = 1 << 16
_HELD_BYTES = 1 << 18  # small, so that a sender soon has to wait if the other side does not read
_THROTTLE_S = 0.01


@dataclass(frozen=True)
class Conditions:
    """What happens to a link's bytes. Offsets count bytes of the server's stream from the link's beginning."""

    stall: bool = False  # no byte moves in either direction, so both sides have to wait
    swallow: bool = False  # True: the proxy reads everything, and forwards nothing
    bytes_per_s: int = 0  # bytes per second of the server's stream, 0 = without limit
    delay_s: float = (
        0.0  # each byte of the server's stream arrives this much later, in steps of 10 ms
    )
    cut_at: int | None = None  # the link ends after this many bytes
    garble_at: int | None = None  # one bit of this byte is flipped
    garble_bit: int = 0


NORMAL = Conditions()
STALLED = Conditions(stall=True)
SWALLOWING = Conditions(swallow=True)


class _Way:
    """One direction of a link."""

    def __init__(self, source: socket.socket, sink: socket.socket, *, from_server: bool) -> None:
        self.source = source
        self.sink = sink
        self.from_server = from_server
        self.held = bytearray()
        self.due: deque[tuple[float, int]] = deque()  # (when these bytes may be sent, number)
        self.passed = 0
        self.source_ended = False
        self.sink_ended = False

    @property
    def over(self) -> bool:
        return self.sink_ended

    def delayed(self, now: float) -> int:
        """Return how many of the held bytes may not be sent yet."""
        while self.due and self.due[0][0] <= now:
            self.due.popleft()
        return sum(size for _, size in self.due)


class Link:
    """A connection through the proxy. Any thread may read its counters."""

    def __init__(self, number: int, client: socket.socket, server: socket.socket) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.server_side = "{}:{}".format(*server.getsockname())
        self.conditions = NORMAL
        self.up = _Way(client, server, from_server=False)
        self.down = _Way(server, client, from_server=True)
        self.is_open = True
        self.allowance = 0.0
        self.allowed_at = time.monotonic()

    @property
    def bytes_down(self) -> int:
        """Returns the number of the server's bytes that were sent to the client."""
        return self.down.passed

    @property
    def bytes_up(self) -> int:
        return self.up.passed

    def add_allowance(self, now: float) -> None:
        """Add to `allowance` the bytes that `bytes_per_s` permits for the time since the last call. `allowance` never
        exceeds the bytes of a tenth of a second."""
        rate = self.conditions.bytes_per_s
        allowance = self.allowance + (now - self.allowed_at) * rate
        self.allowance = min(allowance, max(1.0, rate / 10))
        self.allowed_at = now


class Proxy:
    """A proxy for one server: `with Proxy(server.port) as proxy:`, and connect to `proxy.port`. At the end of the
    block, all links are closed."""

    def __init__(self, target_port: int) -> None:
        self.target = ("127.0.0.1", target_port)
        self.links: list[Link] = []  # all links so far
        self._conditions = NORMAL
        self._listener: socket.socket | None = _listen(0)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._orders: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ending = False
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._order(self._end)
        self._thread.join(10)
        assert not self._thread.is_alive()

    # -- for tests; each call returns when its change applies ----------------------------------------------

    @property
    def opened(self) -> int:
        """Returns the number of connections so far."""
        return len(self.links)

    @property
    def open_links(self) -> list[Link]:
        """Returns the links of which at least one side is open."""
        return [link for link in self.links if link.is_open]

    def set(self, conditions: Conditions, *links: Link) -> None:
        """Set the conditions of these links; without `links`, of all present and future links."""

        def change() -> None:
            if not links:
                self._conditions = conditions
            for link in links or self.open_links:
                if link.conditions.swallow and not conditions.swallow:
                    self._close(link, reset=True)
                    continue
                link.conditions = conditions
                link.down.due.clear()
                link.allowance, link.allowed_at = 0.0, time.monotonic()
                if conditions.swallow:
                    link.up.held.clear()
                    link.down.held.clear()

        self._order(change)

    def cut(self, *links: Link, reset: bool = True) -> None:
        """Close these links, or all links: with a reset (RST), or in order (FIN)."""

        def close() -> None:
            for link in links or self.open_links:
                self._close(link, reset=reset)

        self._order(close)

    def refuse(self) -> None:
        """Refuse new connections until `accept`."""

        def close() -> None:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None

        self._order(close)

    def accept(self) -> None:
        """Accept new connections again, on the same port."""

        def listen() -> None:
            if self._listener is None:
                self._listener = _listen(self.port)
                self._selector.register(self._listener, selectors.EVENT_READ)

        self._order(listen)

    def lead_to(self, port: int) -> None:
        """Connect new links to another server."""

        def change() -> None:
            self.target = ("127.0.0.1", port)

        self._order(change)

    def of_hosts(self, hosts: Iterable[str]) -> list[Link]:
        """Returns the open links that a server's thread list shows with these hosts."""
        wanted = list(hosts)
        return [link for link in self.open_links if link.server_side in wanted]

    def _order(self, action: Callable[[], T]) -> T:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(action())
            except BaseException as error:  # noqa: BLE001  it is raised where the order was given
                done.set_exception(error)

        with self._lock:
            self._orders.append(run)
        self._waker.send(b"!")
        return done.result(10)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending:
            throttled = any(
                link.conditions.bytes_per_s or link.conditions.delay_s for link in self.open_links
            )
            ready = self._selector.select(_THROTTLE_S if throttled else None)
            for key, _ in ready:
                if key.fileobj is self._woken:
                    self._obey()
                elif key.fileobj is self._listener:
                    self._welcome()
                elif key.data is not None and key.data.is_open:
                    self._move(key.data)
            if throttled:
                for link in self.open_links:
                    self._move(link)

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with self._lock:
            orders, self._orders = self._orders, []
        for order in orders:
            order()
        if not self._ending:
            for link in self.open_links:
                self._move(link)

    def _welcome(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError):
            client, _ = self._listener.accept()
            server = socket.socket()
            try:
                server.connect(self.target)
            except OSError:
                server.close()
                _reset(client)
                return
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(next(self._numbers), client, server)
            link.conditions = self._conditions
            self.links.append(link)
            self._move(link)

    def _move(self, link: Link) -> None:
        """Move the bytes that can be moved, and select the sockets that can move bytes next."""
        if not link.conditions.stall:
            link.add_allowance(time.monotonic())
            for way in (link.up, link.down):
                try:
                    self._read(link, way)
                    self._write(link, way)
                except OSError as error:
                    if not self._lost(link, way, error):
                        return
                if not link.is_open:
                    return
        if link.up.over and link.down.over:
            self._close(link, reset=False)
        else:
            self._await(link)

    def _lost(self, link: Link, way: _Way, error: OSError) -> bool:
        """Handle the end of one side. Returns True if the link continues, because the other side of a half-open link
        does not detect this end."""
        if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN):
            raise error
        if not link.conditions.swallow:
            self._close(link, reset=True)
            return False
        way.source_ended = way.sink_ended = True
        return True

    def _read(self, link: Link, way: _Way) -> None:
        while not way.source_ended and len(way.held) < _HELD_BYTES:
            try:
                data = way.source.recv(_READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                way.source_ended = True
                if link.conditions.swallow:
                    way.sink_ended = True  # no more bytes come from this side
            elif not link.conditions.swallow:
                way.held += data
                if way.from_server and link.conditions.delay_s:
                    way.due.append((time.monotonic() + link.conditions.delay_s, len(data)))

    def _write(self, link: Link, way: _Way) -> None:
        conditions = link.conditions
        while way.held:
            size = min(len(way.held) - way.delayed(time.monotonic()), _READ_BYTES)
            if size <= 0:
                return
            if way.from_server:
                if conditions.cut_at is not None:
                    size = min(size, conditions.cut_at - way.passed)
                    if size <= 0:
                        self._close(link, reset=False)
                        return
                if conditions.bytes_per_s:
                    size = min(size, int(link.allowance))
                    if size == 0:
                        return
                _garble(way, conditions, size)
            try:
                sent = way.sink.send(memoryview(way.held)[:size])
            except BlockingIOError:
                _garble(way, conditions, size)  # the next attempt damages the byte again
                return
            if way.from_server:
                # Undo the damage to a byte that was not sent; the next attempt damages it again.
                _garble(way, conditions, size, skip=sent)
                link.allowance -= sent
            way.passed += sent
            del way.held[:sent]
        if way.source_ended and not way.sink_ended and not conditions.swallow:
            way.sink_ended = True
            way.sink.shutdown(socket.SHUT_WR)

    def _await(self, link: Link) -> None:
        for end, out_of, into in (
            (link.client, link.up, link.down),
            (link.server, link.down, link.up),
        ):
            events = 0
            if not link.conditions.stall:
                if not out_of.source_ended and len(out_of.held) < _HELD_BYTES:
                    events |= selectors.EVENT_READ
                if into.held and not (into.from_server and link.conditions.bytes_per_s):
                    events |= selectors.EVENT_WRITE
            known = self._selector.get_map().get(end)
            if known is None and events:
                self._selector.register(end, events, link)
            elif known is not None and not events:
                self._selector.unregister(end)
            elif known is not None and known.events != events:
                self._selector.modify(end, events, link)

    def _close(self, link: Link, *, reset: bool) -> None:
        if not link.is_open:
            return
        link.is_open = False
        for end in (link.client, link.server):
            if end in self._selector.get_map():
                self._selector.unregister(end)
            if reset:
                _reset(end)
            else:
                end.close()

    def _end(self) -> None:
        self._ending = True
        for link in self.open_links:
            self._close(link, reset=True)
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
        self._selector.close()
        self._waker.close()
        self._woken.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _reset(end: socket.socket) -> None:
    """Close a socket with RST instead of FIN."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def _garble(way: _Way, conditions: Conditions, size: int, *, skip: int = 0) -> None:
    """Flip the bit `garble_bit` if its byte is one of the next `size` bytes, but not one of the first `skip` bytes."""
    if conditions.garble_at is None or not way.from_server:
        return
    at = conditions.garble_at - way.passed
    if skip <= at < size:
        way.held[at] ^= 1 << conditions.garble_bit
