"""Opens the sockets of the daemon's listeners, and loads their certificates. The command `check` also uses this module,
so it reports the same errors about listeners as a start of the daemon."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.api import ListenerTlsSettings
from dispatcher.settings.model import Settings
from dispatcher.yaml_settings.section import HostPort

_REMEDIES = {
    errno.EADDRINUSE: "stop the program that uses the port (ss -ltnp shows it), or set another port in {key}",
    errno.EADDRNOTAVAIL: "set {key} to an address of this machine (ip address shows them), or to 0.0.0.0:{port}",
    errno.EACCES: "set a port above 1023 in {key}, or give the daemon the capability CAP_NET_BIND_SERVICE",
}
_UNKNOWN_HOST = "set {key} to an IP address of this machine, or to a name that leads to one"


def open_sockets(listen: HostPort, key: str) -> list[socket.socket]:
    """Return a bound socket for each address of `listen`; the sockets do not listen yet. `key`: the setting's path.
    Raises BinlogError (SETTINGS)."""
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            opened.append(socket.socket(family, kind, protocol))
            opened[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened[-1].bind(address)
    except OSError as error:
        _close(opened)
        remedy = _UNKNOWN_HOST if isinstance(error, socket.gaierror) else ""
        remedy = remedy or _REMEDIES.get(error.errno or 0, "set another address in {key}")
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"cannot listen on {listen}: {error.strerror or error}",
            remedy=remedy.format(key=key, port=listen.port),
        ) from None
    return opened


class ListenerSockets(NamedTuple):
    """The bound sockets of the daemon's listeners."""

    api: list[socket.socket]
    front: list[socket.socket]


@contextmanager
def listener_sockets(settings: Settings) -> Iterator[ListenerSockets]:
    """Bind the addresses of the listeners. The sockets are closed at the end of the block. Raises BinlogError."""
    with ExitStack() as stack:
        sockets = ListenerSockets(open_sockets(settings.api.listen, "api.listen"), [])
        stack.callback(_close, sockets.api)
        if settings.front is not None:
            sockets.front.extend(open_sockets(settings.front.listen, "front.listen"))
            stack.callback(_close, sockets.front)
        yield sockets


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()


def tls_of_listener(tls: ListenerTlsSettings | None, section: str) -> ssl.SSLContext | None:
    """Return the TLS context of a listener; None if `tls` is None. `section`: such as "api.tls". Raises BinlogError
    (SETTINGS) if the files do not contain a certificate and its key."""
    if tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without `password`, OpenSSL asks for the password of an encrypted key at the terminal.
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        remedy = (
            f"set {section}.cert to a certificate in PEM, and {section}.key to its key without a password"
            f" (openssl x509 -in {tls.cert} -noout -text, openssl pkey -in {tls.key} -check -noout)"
        )
        what = f"{section}: {_reason(error, tls)}"
        raise BinlogError(ErrorKind.SETTINGS, what, remedy=remedy) from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


def _reason(error: Exception, tls: ListenerTlsSettings) -> str:
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{tls.key} is not the key of the certificate {tls.cert}"
    return f"{tls.cert} and {tls.key} are not a certificate and a key in PEM"


def certificate_warning(cert: Path, section: str, now: datetime | None = None) -> str:
    """Return a warning if the certificate is not valid at this time; "" if the certificate is valid. `now`: the time,
    for tests."""
    now = now or datetime.now(UTC)
    found = x509.load_pem_x509_certificate(cert.read_bytes())
    first, last = found.not_valid_before_utc, found.not_valid_after_utc
    if first <= now <= last:
        return ""
    when = (
        f"expired on {last:%Y-%m-%d %H:%M} UTC"
        if now > last
        else f"begins to be valid on {first:%Y-%m-%d %H:%M} UTC"
    )
    remedy = "renew it, or set this machine's clock if it is wrong; until then clients that verify it refuse to connect"
    clock = f"the clock of this machine says {now:%Y-%m-%d %H:%M} UTC"
    return f"{section}.cert: the certificate {cert} {when}, and {clock}; {remedy}"
