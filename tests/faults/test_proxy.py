"""The proxy changes a stream exactly as a test sets it, and its counters are right."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.daemon.harness import until
from tests.support.proxy import NORMAL, STALLED, SWALLOWING, Conditions, Link, Proxy

WAIT_S = 5.0


@dataclass
class Net:
    """A client and a server with a proxy between them."""

    proxy: Proxy
    listener: socket.socket
    ends: list[socket.socket]

    def connect(self) -> tuple[socket.socket, socket.socket, Link]:
        client = socket.create_connection(("127.0.0.1", self.proxy.port), WAIT_S)
        server, _ = self.listener.accept()
        server.settimeout(WAIT_S)
        self.ends += [client, server]
        link = until(
            lambda: next(
                (
                    link
                    for link in self.proxy.links
                    if link.server_side == "{}:{}".format(*server.getpeername())
                ),
                None,
            ),
            "the link is known",
        )
        assert link is not None
        return client, server, link


@pytest.fixture
def net() -> Iterator[Net]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(WAIT_S)
        with Proxy(listener.getsockname()[1]) as proxy:
            made = Net(proxy, listener, [])
            yield made
            for end in made.ends:
                end.close()


def read(end: socket.socket, size: int) -> bytes:
    """Read `size` bytes, or fewer if the stream ends."""
    data = bytearray()
    while len(data) < size and (more := end.recv(size - len(data))):
        data += more
    return bytes(data)


def is_silent(end: socket.socket) -> bool:
    end.settimeout(0.05)
    try:
        return end.recv(1, socket.MSG_PEEK) == b"never"
    except TimeoutError:
        return True
    finally:
        end.settimeout(WAIT_S)


def numbered(size: int) -> bytes:
    return bytes(itertools.islice(itertools.cycle(range(251)), size))


def test_the_proxy_passes_all_bytes_and_the_end_in_both_directions(net: Net) -> None:
    client, server, link = net.connect()
    stream = numbered(3_000_000)
    sender = threading.Thread(target=server.sendall, args=(stream,))
    sender.start()
    assert read(client, len(stream)) == stream
    sender.join()
    client.sendall(b"up")
    assert read(server, 2) == b"up"
    until(lambda: (link.bytes_down, link.bytes_up) == (len(stream), 2), "all is counted")
    server.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    client.sendall(b"half closed")
    assert read(server, 11) == b"half closed"
    assert net.proxy.open_links == [link]
    client.close()
    assert server.recv(1) == b""
    until(lambda: not net.proxy.open_links, "the link is over")
    assert net.proxy.opened == 1


@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_reaches_both_sides_and_spares_other_links(net: Net, reset: bool) -> None:
    client, server, link = net.connect()
    other_client, other_server, other = net.connect()
    net.proxy.cut(link, reset=reset)
    for end in (client, server):
        if reset:
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        else:
            assert end.recv(1) == b""
    other_client.sendall(b"x")
    assert read(other_server, 1) == b"x"
    assert net.proxy.open_links == [other]
    assert net.proxy.opened == 2


def test_a_stalled_link_makes_both_sides_wait_and_loses_nothing(net: Net) -> None:
    client, server, _ = net.connect()
    net.proxy.set(STALLED)
    stream = numbered(50_000_000)  # more than all buffers between client and server can hold
    sender = threading.Thread(target=server.sendall, args=(stream,))
    sender.start()
    client.sendall(b"up")
    assert is_silent(client)
    assert is_silent(server)
    assert sender.is_alive()
    later, _, _ = net.connect()  # a new connection has the same faults
    later.sendall(b"x")
    net.proxy.set(NORMAL)
    assert read(client, len(stream)) == stream
    assert read(server, 2) == b"up"
    sender.join()


def test_a_swallowing_link_is_noticed_by_neither_side(net: Net) -> None:
    client, server, link = net.connect()
    net.proxy.set(SWALLOWING, link)
    server.sendall(numbered(20_000_000))  # the proxy accepts all bytes at once
    client.sendall(b"up")
    assert is_silent(client)
    assert is_silent(server)
    client.close()
    assert is_silent(server)
    assert net.proxy.open_links == [link]
    assert (link.bytes_down, link.bytes_up) == (0, 0)
    net.proxy.set(NORMAL)  # bytes are now missing in the stream
    with pytest.raises(ConnectionResetError):
        server.recv(1)
    assert net.proxy.open_links == []


def test_a_throttled_link_keeps_to_its_rate(net: Net) -> None:
    client, server, _ = net.connect()
    net.proxy.set(Conditions(bytes_per_s=100_000))
    began = time.monotonic()
    server.sendall(numbered(30_000))
    assert read(client, 30_000) == numbered(30_000)
    took = time.monotonic() - began
    assert took > 0.19, f"{took:.2f} s"  # 0.3 s, minus the saved-up allowance
    server.sendall(b"x" * 1000)
    net.proxy.set(NORMAL)
    assert read(client, 1000) == b"x" * 1000


@pytest.mark.parametrize("at", [0, 1, 65_535, 65_536, 299_999])
def test_cut_and_garble_go_by_the_bytes_of_the_stream(net: Net, at: int) -> None:
    stream = numbered(300_000)
    net.proxy.set(Conditions(cut_at=at))
    client, server, _ = net.connect()
    server.sendall(stream)
    assert read(client, len(stream)) == stream[:at]
    until(lambda: not net.proxy.open_links, "the link is over")
    net.proxy.set(Conditions(garble_at=at, garble_bit=3))
    client, server, link = net.connect()
    server.sendall(stream[:at])
    server.sendall(stream[at:])
    expected = bytearray(stream)
    expected[at] ^= 8
    assert read(client, len(stream)) == expected
    server.sendall(stream)
    assert read(client, len(stream)) == stream
    until(lambda: link.bytes_down == 2 * len(stream), "all is counted")


def test_connections_are_refused_and_accepted_again_on_the_same_port(net: Net) -> None:
    client, server, _ = net.connect()
    net.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", net.proxy.port), WAIT_S)
    client.sendall(b"x")
    assert read(server, 1) == b"x"
    net.proxy.accept()
    net.connect()
    assert net.proxy.opened == 2


def test_a_server_that_is_gone_resets_links_and_can_be_replaced(net: Net) -> None:
    net.connect()
    with closing(socket.socket()) as gone:
        gone.bind(("127.0.0.1", 0))
        net.proxy.lead_to(gone.getsockname()[1])
        # The reset may arrive before `connect` returns.
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection(("127.0.0.1", net.proxy.port), WAIT_S) as client,
        ):
            client.recv(1)
    net.proxy.lead_to(net.listener.getsockname()[1])
    net.connect()
    assert net.proxy.opened == 2
