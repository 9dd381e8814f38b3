"""How a connection to a MySQL or MariaDB server begins: where to, as whom, and under which TLS.

PyMySQL does the handshake (caching_sha2_password with its RSA exchange, native passwords, TLS);
`driver` says to whom it tells the password. Passwords are UTF-8, as `mysql` sends them. Everything
that can go wrong is a `BinlogError` by the time it leaves this module, and none of its texts holds
the password.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pymysql
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.model import ConnectionSettings
from dispatcher.source.mysql.answers import not_understood
from dispatcher.source.mysql.driver import ClearText, Connection, Driver, trusting_context
from dispatcher.source.mysql.error_map import client_error

# After 30 s without a byte, a probe every 10 s; the third that is not answered ends the connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class TlsMode(StrEnum):
    """The words of MySQL's own --ssl-mode."""

    DISABLED = "disabled"  # never
    PREFERRED = "preferred"  # when the server offers it, its certificate unseen
    REQUIRED = "required"  # or no connection; certificate unseen
    VERIFY_CA = "verify_ca"  # and the certificate must come from `ca`
    VERIFY_IDENTITY = "verify_identity"  # and must name the host


@dataclass(frozen=True, slots=True)
class Tls:
    """`ca`: whom to trust (None: the system's list); `cert` and `key`: who we are. PEM files.

    Of use without TLS: `server_public_key`, a PEM file with the server's RSA key, with which the password is encrypted;
    `allow_public_key_retrieval`: take the key that the server sends.
    """

    mode: TlsMode = TlsMode.PREFERRED
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_public_key: Path | None = None
    allow_public_key_retrieval: bool = False

    @property
    def verifies(self) -> bool:
        """True if a connection is made only to a server whose certificate is trusted."""
        return self.mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A connection key, `user:pass@host:port`, and how to be safe on the way there."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: Tls = Tls()

    @property
    def label(self) -> str:
        """What people, logs and metrics see: `user@host:port`, never the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"

    def __str__(self) -> str:
        return self.label


def label_of(endpoints: Sequence[Endpoint]) -> str:
    """`user@host:port`, or `user@host1:port,host2:port` of those that stand in for each other."""
    first, *rest = endpoints
    return ",".join((first.label, *(other.label.rpartition("@")[2] for other in rest)))


def endpoints_of(connection: ConnectionSettings) -> tuple[Endpoint, ...]:
    """Where its consumers read from. Those that may share a connection get equal ones."""
    mysql, tls = connection.mysql, connection.tls
    assert mysql is not None, "a folder of files has no server"
    tls_ = Tls(
        TlsMode(tls.mode),
        tls.ca,
        tls.cert,
        tls.key,
        tls.server_public_key,
        tls.allow_public_key_retrieval,
    )
    return tuple(
        Endpoint(address.host, address.port, mysql.user, connection.secret, tls_)
        for address in mysql.addresses
    )


def connect(endpoint: Endpoint, *, timeout_s: float = 10) -> Connection:
    """A logged-in connection in autocommit mode, in utf8mb4.

    `timeout_s` bounds the TCP connect and each wait for an answer. Raises `BinlogError` of the
    kinds CONNECT_FAILED and ACCESS_DENIED, or of what else the server answered.
    """
    place = endpoint.label
    try:
        connection = Driver(
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password.encode(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=timeout_s,
            read_timeout=timeout_s,
            write_timeout=timeout_s,
            program_name="binlog-dispatcher",
            conv=pymysql.converters.encoders,  # type: ignore[arg-type] # answers stay text
            auth_plugin_map={"mysql_clear_password": ClearText, "dialog": ClearText},
            defer_connect=True,
            **_tls_arguments(endpoint),
        )
        connection.where = place
        connection.verified = endpoint.tls.verifies
        connection.pinned_key = _pinned_key(endpoint)
        connection.takes_key = endpoint.tls.allow_public_key_retrieval
        connection.connect()
        _keep_alive(connection)
        return connection
    except pymysql.Error as error:
        fault = client_error(error, where=place)
        # Before the login is through, a lost connection is one that never was: "2013 lost
        # connection" is what PyMySQL says of a port that accepts and then is silent, or hangs up.
        if fault.kind is ErrorKind.CONNECTION_LOST:
            raise BinlogError(ErrorKind.CONNECT_FAILED, fault.what, where=place) from error
        raise fault from error
    except RuntimeError as error:  # a package that an authentication method needs
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            str(error),
            where=place,
            remedy="let the account use caching_sha2_password or mysql_native_password",
        ) from error
    except BinlogError:
        raise
    except Exception as error:
        # PyMySQL parses the greeting on trust; whatever else listens on the port ends up here.
        raise not_understood("the login", repr(error), place) from error


def _tls_arguments(endpoint: Endpoint) -> dict[str, Any]:
    tls = endpoint.tls
    if tls.mode is TlsMode.DISABLED:
        return {"ssl_disabled": True}
    if tls.mode is TlsMode.PREFERRED:
        return {}  # PyMySQL's own default
    try:
        context = ssl.create_default_context(cafile=tls.ca) if tls.verifies else trusting_context()
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:  # SSLError is one, too
        files = ", ".join(str(file) for file in (tls.ca, tls.cert, tls.key) if file is not None)
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            f"cannot use the TLS files {files}: {error.strerror or error}",
            where=endpoint.label,
            remedy="tls.ca, tls.cert and tls.key name readable PEM files that belong together",
        ) from error
    # MySQL's own certificates are X.509 version 1 or lack key identifiers, which strict checking
    # refuses.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.mode is TlsMode.VERIFY_IDENTITY
    return {"ssl": context}


def _pinned_key(endpoint: Endpoint) -> bytes | None:
    file = endpoint.tls.server_public_key
    if file is None:
        return None
    try:
        key = file.read_bytes()
        load_pem_public_key(key)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            f"cannot use the public key in {file}: {getattr(error, 'strerror', None) or error}",
            where=endpoint.label,
            remedy="tls.server_public_key names a readable PEM file with the server's public RSA key",
        ) from error
    return key


def _keep_alive(connection: Connection) -> None:
    """Have the system find out about a peer that is gone, also while nobody reads."""
    sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
