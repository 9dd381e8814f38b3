"""The API with a certificate."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.daemon.harness import PASSWORD, Daemon, until
from tests.support.certificates import make_certificate

CONNECTIONS_MAX = 40
MIB = 1 << 20


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    make_certificate(tmp_path)
    tls = {"cert": str(tmp_path / "ca.pem"), "key": str(tmp_path / "key.pem")}
    # These tests need no MySQL server.
    consumer = {"mysql": "reader@127.0.0.1:1", "password": PASSWORD, "databases": ["d"]}
    api = {"tls": tls, "max_connections": CONNECTIONS_MAX}
    daemon = Daemon(tmp_path, {"consumers": {"c": consumer}, "api": api})
    daemon.ca = tmp_path / "ca.pem"
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()


def test_an_idle_client_does_not_delay_the_end(daemon: Daemon) -> None:
    trusting = ssl.create_default_context(cafile=str(daemon.ca))
    with closing(http.client.HTTPSConnection("127.0.0.1", daemon.port, context=trusting)) as idle:
        idle.request("GET", "/livez")
        assert idle.getresponse().read() == b"ok\n"
        daemon.stop()
    assert "the shutdown took more than" not in daemon.log


def test_a_client_that_does_not_know_the_authority_is_refused(daemon: Daemon) -> None:
    distrustful = http.client.HTTPSConnection("127.0.0.1", daemon.port)
    with closing(distrustful), pytest.raises(ssl.SSLCertVerificationError):
        distrustful.request("GET", "/livez")


def is_closed(connection: socket.socket) -> bool:
    """True if the daemon has closed the connection."""
    connection.settimeout(0)
    try:
        return not connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def test_connections_in_the_handshake_are_counted_and_make_room(daemon: Daemon) -> None:
    with ExitStack() as stack:
        half_sent = []
        for _ in range(3 * CONNECTIONS_MAX):
            connection = socket.create_connection(("127.0.0.1", daemon.port), timeout=20)
            half_sent.append(stack.enter_context(connection))
            connection.sendall(b"\x16\x03\x01\x40\x00\x01")  # the beginning of a TLS record
        until(
            lambda: sum(not is_closed(one) for one in half_sent) <= CONNECTIONS_MAX,
            "the daemon closes those beyond the limit",
        )
        assert daemon.api.text("/livez") == "ok\n"


def secured(daemon: Daemon, *, receive_buffer: int | None = None) -> ssl.SSLSocket:
    plain = socket.socket()
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(20)
    plain.connect(("127.0.0.1", daemon.port))
    trusting = ssl.create_default_context(cafile=str(daemon.ca))
    return trusting.wrap_socket(plain, server_hostname="127.0.0.1")


def test_refused_clients_that_do_not_close_make_room(daemon: Daemon) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            refused = stack.enter_context(secured(daemon))
            refused.sendall(b"no HTTP\r\n\r\n")
            assert refused.recv(12) == b"HTTP/1.1 400"
        assert daemon.api.text("/livez") == "ok\n"


def test_a_large_file_that_is_not_read_is_held_in_part(daemon: Daemon) -> None:
    api, path = daemon.api, "/docs/swagger-ui-bundle.js"
    size = len(api.raw("GET", path))
    before = daemon.resident_bytes
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX - 2):
            unread = stack.enter_context(secured(daemon, receive_buffer=4096))
            unread.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert unread.recv(15) == b"HTTP/1.1 200 OK"
        assert daemon.resident_bytes - before < CONNECTIONS_MAX * size / 4


def test_pipelined_requests_take_no_memory(daemon: Daemon) -> None:
    before = daemon.resident_bytes
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX - 10):
            flooding = stack.enter_context(secured(daemon))
            with suppress(OSError):  # the daemon closes the connection meanwhile
                flooding.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 7000)
        assert daemon.api.text("/livez") == "ok\n"
        assert daemon.resident_bytes - before < 64 * MIB
