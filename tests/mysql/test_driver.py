"""A login never sends the password to a server that merely asks for it.

The hostile server records all bytes that it receives, including bytes that the client has encrypted with the server's
key.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql import driver
from dispatcher.mysql.login import Endpoint, Tls, TlsMode, connect
from tests.servers import Server
from tests.support.hostile_server import SALT, Answers, HostileServer

SECRET = "p@ss: wörd'17"
CLEAR = ("mysql_clear_password", "dialog")
SHA2 = ("caching_sha2_password", "sha256_password")
UNVERIFIED = (TlsMode.PREFERRED, TlsMode.REQUIRED)


def asks(plugin: str) -> Answers:
    """Returns the answers of a server that switches to an authentication method and completes it."""
    data = b"\x04Password: " if plugin == "dialog" else SALT + b"\0"
    return Answers(switch=(plugin.encode(), data), full_authentication=True)


def greets_with(plugin: str) -> Answers:
    return Answers(plugin=plugin.encode(), full_authentication=True)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the client treat the loopback address as another machine."""
    monkeypatch.setattr(driver, "is_loopback_peer", lambda _: False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a self-signed certificate of 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hostile")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_pem, key_pem = folder / "cert.pem", folder / "key.pem"
    cert_pem.write_bytes(made.public_bytes(Encoding.PEM))
    key_pem.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    return cert_pem, key_pem


@contextmanager
def server(answers: Answers, tls: tuple[Path, Path] | None = None) -> Iterator[HostileServer]:
    files = None if tls is None else (str(tls[0]), str(tls[1]))
    with HostileServer(answers, tls=files) as running:
        yield running


def endpoint(running: HostileServer, tls: Tls) -> Endpoint:
    return Endpoint("127.0.0.1", running.port, "repl", SECRET, tls)


def learned(running: HostileServer) -> bool:
    return SECRET.encode() in running.learned


def refused(running: HostileServer, tls: Tls) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        connect(endpoint(running, tls), timeout_s=5)
    assert caught.value.kind is ErrorKind.CONNECT_FAILED
    assert caught.value.where == f"repl@127.0.0.1:{running.port}"
    return caught.value


# -- the password in clear text -------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", CLEAR)
@pytest.mark.parametrize("mode", UNVERIFIED)
def test_clear_text_is_refused_where_the_certificate_was_not_verified(
    plugin: str, mode: TlsMode, certificate: tuple[Path, Path]
) -> None:
    with server(asks(plugin), certificate) as running:
        error = refused(running, Tls(mode))
    assert not learned(running)
    assert "clear text" in error.what and "verify_identity" in error.remedy


@pytest.mark.parametrize("plugin", CLEAR)
def test_clear_text_is_refused_without_tls(plugin: str) -> None:
    with server(asks(plugin)) as running:
        refused(running, Tls(TlsMode.PREFERRED))
    assert not learned(running)


@pytest.mark.parametrize("plugin", CLEAR)
@pytest.mark.parametrize("mode", [TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY])
def test_clear_text_is_sent_to_a_server_with_a_verified_certificate(
    plugin: str, mode: TlsMode, certificate: tuple[Path, Path]
) -> None:
    with server(asks(plugin), certificate) as running:
        connect(endpoint(running, Tls(mode, ca=certificate[0]))).close()
    assert learned(running)


# -- the password encrypted with the server's key -------------------------------------------------------------


@pytest.mark.parametrize("answers", [asks, greets_with])
@pytest.mark.parametrize("plugin", SHA2)
@pytest.mark.usefixtures("far")
def test_a_key_that_the_server_sends_is_refused(
    plugin: str, answers: Callable[[str], Answers]
) -> None:
    with server(answers(plugin)) as running:
        for mode in (TlsMode.PREFERRED, TlsMode.DISABLED):
            error = refused(running, Tls(mode))
            for remedy in ("verify_identity", "server_public_key", "allow_public_key_retrieval"):
                assert f"tls.{remedy}" in error.remedy or remedy in error.remedy
    assert not learned(running)


@pytest.mark.parametrize("answers", [asks, greets_with])
@pytest.mark.parametrize("plugin", SHA2)
@pytest.mark.usefixtures("far")
def test_a_key_that_the_server_sends_does_not_replace_the_pinned_one(
    plugin: str, answers: Callable[[str], Answers], tmp_path: Path
) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    pinned = tmp_path / "server.pem"
    pinned.write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with server(answers(plugin)) as running:
        connect(endpoint(running, Tls(TlsMode.DISABLED, server_public_key=pinned))).close()
    assert running.logins == 1 and not learned(running)


@pytest.mark.parametrize("plugin", SHA2)
@pytest.mark.usefixtures("far")
def test_a_key_that_the_server_sends_is_accepted_if_the_settings_allow_it(plugin: str) -> None:
    with server(asks(plugin)) as running:
        connect(endpoint(running, Tls(allow_public_key_retrieval=True))).close()
    assert learned(running)


@pytest.mark.parametrize("plugin", SHA2)
def test_a_key_that_the_server_sends_is_accepted_on_the_loopback(plugin: str) -> None:
    with server(asks(plugin)) as running:
        connect(endpoint(running, Tls())).close()
    assert learned(running)


@pytest.mark.parametrize("text", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_an_invalid_pinned_key_is_reported(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_bytes(text)
    tls = Tls(TlsMode.DISABLED, server_public_key=tmp_path / "server.pem")
    with server(Answers()) as running:
        error = refused(running, tls)
    assert "server.pem" in error.what and "tls.server_public_key" in error.remedy


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False), ("0.0.0.0", False), ("fe80::1%eth0", False), ("::ffff:10.0.0.1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_the_loopback(address: str, expected: bool) -> None:
    assert driver.is_loopback_peer(address) is expected


# -- a real server --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account(mysql97: Server) -> Iterator[Endpoint]:
    mysql97.add_user("passwords", SECRET)
    yield Endpoint(mysql97.host, mysql97.port, "passwords", SECRET)
    mysql97.execute("DROP USER 'passwords'@'%'")


def logs_in(server: Server, to: Endpoint) -> None:
    """Empty the server's cache of passwords, and log in."""
    server.execute("FLUSH PRIVILEGES")
    with closing(connect(to)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        assert cursor.fetchall() == (("passwords@%",),)


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PREFERRED, TlsMode.REQUIRED])
def test_mysql_on_the_loopback(mysql97: Server, account: Endpoint, mode: TlsMode) -> None:
    logs_in(mysql97, replace(account, tls=Tls(mode)))


@pytest.mark.usefixtures("far")
def test_mysql_by_tls_from_another_machine(mysql97: Server, account: Endpoint) -> None:
    logs_in(mysql97, account)


@pytest.mark.usefixtures("far")
def test_mysql_by_its_pinned_key(mysql97: Server, account: Endpoint, tmp_path: Path) -> None:
    ((_, key),) = mysql97.execute("SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'")
    (tmp_path / "server.pem").write_text(key)
    tls = Tls(TlsMode.DISABLED, server_public_key=tmp_path / "server.pem")
    logs_in(mysql97, replace(account, tls=tls))


@pytest.mark.usefixtures("far")
def test_mysql_by_the_key_that_it_sends(mysql97: Server, account: Endpoint) -> None:
    mysql97.execute("FLUSH PRIVILEGES")
    with pytest.raises(BinlogError, match="public key"):
        connect(replace(account, tls=Tls(TlsMode.DISABLED)))
    logs_in(mysql97, replace(account, tls=Tls(TlsMode.DISABLED, allow_public_key_retrieval=True)))
