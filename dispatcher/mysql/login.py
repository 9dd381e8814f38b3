"""Connects to a MySQL or MariaDB server: address, account, TLS.

PyMySQL makes the handshake (caching_sha2_password with its RSA exchange, native passwords, TLS); `driver` decides
whether PyMySQL may send the password. Passwords are encoded as UTF-8, as the `mysql` client does. Every failure raises
a `BinlogError`, and no message contains the password.
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
from dispatcher.mysql.answers import not_understood
from dispatcher.mysql.driver import ClearText, Connection, Driver, trusting_context
from dispatcher.mysql.error_map import client_error
from dispatcher.yaml_settings.server import MysqlTlsSettings

# After 30 s without a byte the kernel sends a probe every 10 s; the third unanswered probe ends the connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class TlsMode(StrEnum):
    """The values of MySQL's own --ssl-mode."""

    DISABLED = "disabled"  # no TLS
    PREFERRED = "preferred"  # TLS if the server offers it; any certificate
    REQUIRED = "required"  # TLS or no connection; any certificate
    VERIFY_CA = "verify_ca"  # `ca` must have signed the certificate
    VERIFY_IDENTITY = "verify_identity"  # also, the certificate must contain the host name


@dataclass(frozen=True, slots=True)
class Tls:
    """`ca`: the trusted authorities (None: the system's). `cert`, `key`: the client's certificate and its key. All are
    PEM files.

    For connections without TLS: `server_public_key`: a PEM file with the server's RSA key, which encrypts the password.
    `allow_public_key_retrieval`: True to accept a key that the server sends.
    """

    mode: TlsMode = TlsMode.PREFERRED
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_public_key: Path | None = None
    allow_public_key_retrieval: bool = False

    @property
    def verifies(self) -> bool:
        """True if a connection requires that the server's certificate is trusted."""
        return self.mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host of a connection key, `user:pass@host:port`, with its TLS settings."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: Tls = Tls()

    @property
    def label(self) -> str:
        """The endpoint's name in messages, logs and metrics: `user@host:port`, without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"

    def __str__(self) -> str:
        return self.label


def label_of(endpoints: Sequence[Endpoint]) -> str:
    """Return `user@host:port`, or `user@host1:port,host2:port` for several hosts."""
    first, *rest = endpoints
    return ",".join((first.label, *(other.label.rpartition("@")[2] for other in rest)))


def tls_of(settings: MysqlTlsSettings) -> Tls:
    return Tls(**dict(settings) | {"mode": TlsMode(settings.mode)})


def connect(endpoint: Endpoint, *, timeout_s: float = 10) -> Connection:
    """Return a logged-in connection in autocommit mode, with the character set utf8mb4.

    `timeout_s`: the longest time for the TCP connect, and for each wait for an answer. Raises `BinlogError`
    CONNECT_FAILED, ACCESS_DENIED, or the kind of the server's error.
    """
    label = endpoint.label
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
        connection.where = label
        connection.verified = endpoint.tls.verifies
        connection.pinned_key = _pinned_key(endpoint)
        connection.accepts_key = endpoint.tls.allow_public_key_retrieval
        connection.connect()
        _keep_alive(connection)
        return connection
    except pymysql.Error as error:
        mapped = client_error(error, where=label)
        # PyMySQL reports "2013 lost connection" if the port accepts the connection and then is silent or closes it.
        if mapped.kind is ErrorKind.CONNECTION_LOST:
            raise BinlogError(ErrorKind.CONNECT_FAILED, mapped.what, where=label) from error
        raise mapped from error
    except RuntimeError as error:  # an authentication method needs a package that is not installed
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            str(error),
            where=label,
            remedy="let the account use caching_sha2_password or mysql_native_password",
        ) from error
    except BinlogError:
        raise
    except Exception as error:
        # PyMySQL does not validate the greeting, so any exception may come from another program on the port.
        raise not_understood("the login", repr(error), label) from error


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
    except OSError as error:  # including SSLError
        files = ", ".join(str(file) for file in (tls.ca, tls.cert, tls.key) if file is not None)
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            f"cannot use the TLS files {files}: {error.strerror or error}",
            where=endpoint.label,
            remedy="set tls.ca, tls.cert and tls.key to readable PEM files that belong together",
        ) from error
    # Strict checking would refuse the certificates that MySQL generates, which are X.509 version 1 or lack key
    # identifiers.
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
            remedy="set tls.server_public_key to a readable PEM file with the server's public RSA key",
        ) from error
    return key


def _keep_alive(connection: Connection) -> None:
    """Let the kernel detect a dead peer even while the daemon does not read the connection."""
    sock = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
