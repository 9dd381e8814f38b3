"""Logins: accounts, TLS, and ports without a MySQL server; errors never contain the password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.login import Endpoint, Tls, TlsMode, connect
from tests.servers.plugin import ServerFactory
from tests.servers.server import Server
from tests.support.accounts import SECRET, account


def refusal(endpoint: Endpoint, *, timeout_s: float = 10) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        connect(endpoint, timeout_s=timeout_s)
    error = caught.value
    assert error.where == endpoint.label
    seen: BaseException | None = error
    while seen is not None:
        assert endpoint.password not in f"{seen!r}{seen}"
        seen = seen.__cause__
    return error


def whoami(endpoint: Endpoint) -> tuple[str, bool]:
    """Return the account's name on the server, and True if the connection uses TLS."""
    with closing(connect(endpoint)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT USER()")
        (row,) = cursor.fetchall()
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        ((_, cipher),) = cursor.fetchall()
        return str(row[0]).partition("@")[0], cipher != ""


def test_an_endpoint_never_shows_its_password() -> None:
    endpoint = Endpoint("db1", 3306, "repl", SECRET)
    assert SECRET not in repr(endpoint)
    assert str(endpoint) == endpoint.label == "repl@db1:3306"
    assert Endpoint("::1", 3306, "repl", "x").label == "repl@[::1]:3306"


def test_login(any_server: Server) -> None:
    with account(any_server, "plain_login") as endpoint:
        assert whoami(endpoint)[0] == "plain_login"


def test_login_without_tls(any_server: Server) -> None:
    """If MySQL 9.7 does not have the account in its cache, it requests the password encrypted with its RSA key."""
    with account(any_server, "no_tls", tls=Tls(TlsMode.DISABLED)) as endpoint:
        any_server.execute("FLUSH PRIVILEGES")
        assert whoami(endpoint) == ("no_tls", False)
        assert whoami(endpoint) == ("no_tls", False)


def test_a_wrong_password(any_server: Server) -> None:
    with account(any_server, "wrong_password") as endpoint:
        error = refusal(replace(endpoint, password="not this one"))
    assert error.kind is ErrorKind.ACCESS_DENIED
    assert "password" in error.remedy


def test_an_unknown_user(any_server: Server) -> None:
    error = refusal(Endpoint(any_server.host, any_server.port, "nobody_known", "secret 17"))
    assert error.kind is ErrorKind.ACCESS_DENIED


def test_tls(mysql97: Server) -> None:
    with account(mysql97, "with_tls", require="SSL") as endpoint:
        assert whoami(endpoint) == ("with_tls", True)
        assert whoami(replace(endpoint, tls=Tls(TlsMode.REQUIRED))) == ("with_tls", True)
        error = refusal(replace(endpoint, tls=Tls(TlsMode.DISABLED)))
        assert error.kind is ErrorKind.ACCESS_DENIED


def test_tls_with_a_verified_certificate(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97")
    with account(server, "verified") as endpoint:
        trusting = Tls(TlsMode.VERIFY_CA, ca=server.ca_pem)
        assert whoami(replace(endpoint, tls=trusting)) == ("verified", True)

        # The server's own certificate names no host.
        identity = refusal(replace(endpoint, tls=replace(trusting, mode=TlsMode.VERIFY_IDENTITY)))
        stranger = refusal(replace(endpoint, tls=Tls(TlsMode.VERIFY_CA)))
    for error in (identity, stranger):
        assert error.kind is ErrorKind.CONNECT_FAILED
        assert "certificate is not trusted" in error.what and "tls.ca" in error.remedy


def test_tls_where_the_server_has_none(mysql56: Server) -> None:
    with account(mysql56, "wants_tls") as endpoint:
        assert whoami(endpoint) == ("wants_tls", False)
        error = refusal(replace(endpoint, tls=Tls(TlsMode.REQUIRED)))
    assert error.kind is ErrorKind.CONNECT_FAILED and "SSL is required" in error.what


def test_invalid_tls_files_are_reported(tmp_path: Path) -> None:
    missing = Tls(TlsMode.VERIFY_CA, ca=tmp_path / "missing.pem")
    error = refusal(Endpoint("127.0.0.1", 1, "u", "secret 17", missing))
    assert error.kind is ErrorKind.CONNECT_FAILED and "missing.pem" in error.what
    (tmp_path / "text.pem").write_text("no certificate")
    broken = Tls(TlsMode.REQUIRED, cert=tmp_path / "text.pem")
    assert "text.pem" in refusal(Endpoint("127.0.0.1", 1, "u", "secret 17", broken)).what


@contextmanager
def listener(answer: Callable[[socket.socket], None] | None) -> Iterator[int]:
    """Yields the port of a listener that answers with `answer`. If `answer` is None, it does not accept connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                assert answer is not None
                answer(peer)
                stop.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            if answer is not None:
                thread.join(10)


def local(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port, "repl", "secret 17")


def test_a_port_without_a_listener() -> None:
    with listener(None) as port:
        pass
    error = refusal(local(port))
    assert error.kind is ErrorKind.CONNECT_FAILED and "refused" in error.what.lower()


def test_an_unknown_host() -> None:
    error = refusal(Endpoint("no-such-host.invalid", 3306, "repl", "secret 17"))
    assert error.kind is ErrorKind.CONNECT_FAILED


def test_a_listener_that_does_not_answer() -> None:
    with listener(lambda _: None) as port:
        error = refusal(local(port), timeout_s=0.2)
    assert error.kind is ErrorKind.CONNECT_FAILED and "timed out" in error.what


def test_a_listener_that_hangs_up() -> None:
    with listener(lambda peer: peer.shutdown(socket.SHUT_RDWR)) as port:
        error = refusal(local(port), timeout_s=5)
    assert error.kind is ErrorKind.CONNECT_FAILED


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 5,
        b"\x05\0\0\0\x0a8.0\0",
        b"\x01\0\0\0\x0a",
        b"\0\0\0\0",
        bytes(64),
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_a_listener_that_is_not_mysql(greeting: bytes) -> None:
    with listener(lambda peer: peer.sendall(greeting)) as port:
        error = refusal(local(port), timeout_s=0.3)
    assert error.kind is ErrorKind.CONNECT_FAILED


def handshake(plugin: bytes) -> bytes:
    """Returns the Protocol::HandshakeV10 of a server without TLS whose default authentication is `plugin`."""
    capabilities = 0x000FF7FF & ~0x0800
    body = b"\x0a8.0.36\0" + (7).to_bytes(4, "little") + b"12345678\0"
    body += (capabilities & 0xFFFF).to_bytes(2, "little") + b"\xff\2\0"
    body += (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10)
    body += b"901234567890\0" + plugin + b"\0"
    return len(body).to_bytes(3, "little") + b"\0" + body


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_sent_in_clear_text(plugin: bytes) -> None:
    heard = bytearray()

    def ask(peer: socket.socket) -> None:
        peer.sendall(handshake(b"mysql_native_password"))
        heard.extend(peer.recv(4096))
        switch = b"\xfe" + plugin + b"\0" + b"\x04Password: "
        peer.sendall(len(switch).to_bytes(3, "little") + b"\2" + switch)
        heard.extend(peer.recv(4096))

    with listener(ask) as port:
        error = refusal(local(port), timeout_s=5)
    assert error.kind is ErrorKind.CONNECT_FAILED and "clear text" in error.what
    assert heard and b"secret 17" not in heard
