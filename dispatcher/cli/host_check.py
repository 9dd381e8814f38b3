"""Checks this machine for the command `check`: finds everything that would make a start of the daemon fail, except
faults of the servers."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind

if TYPE_CHECKING:
    from dispatcher.settings.model import Settings
    from dispatcher.yaml_settings.section import HostPort

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared
_ANSWER_S = 2.0


@dataclass(slots=True)
class HostFindings:
    """One line for each error and warning."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def examine_host(settings: Settings) -> HostFindings:
    """Check the files of the state, the addresses of the listeners, and the files of TLS. Changes nothing."""
    from dispatcher.state.examine import examine_files  # noqa: PLC0415

    files = examine_files(settings.state)
    found = HostFindings([*map(str, files.errors)], [*files.warnings])
    for error in _of_tls(settings, found.warnings):
        found.errors.append(str(error))
    running = f" (pid {files.owner.pid or 'unknown'})" if files.owner is not None else ""
    for key, listen in _listeners(settings):
        refused = None if running else _listen_error(key, listen)
        if refused is not None and key == "api.listen" and _is_daemon(settings):
            running = f" on {listen}"
        elif refused is not None:
            found.errors.append(str(refused))
    if running:
        found.warnings.append(
            f"a daemon runs already{running}, so check does not try its addresses; SIGHUP makes that"
            " daemon read the settings again, and run fails until that daemon has ended"
        )
    return found


def _listeners(settings: Settings) -> Iterator[tuple[str, HostPort]]:
    yield "api.listen", settings.api.listen
    if settings.front is not None:
        yield "front.listen", settings.front.listen


def _is_daemon(settings: Settings) -> bool:
    """True if a daemon answers at the address of the API. This daemon may be one of several daemons that share the
    state in a database."""
    listen, tls = settings.api.listen, settings.api.tls
    kind = http.client.HTTPConnection if tls is None else _connection_without_verification
    with closing(kind(_ANY.get(listen.host, listen.host), listen.port, timeout=_ANSWER_S)) as to:
        try:
            to.request("GET", "/livez")
            return to.getresponse().read() == b"ok\n"
        except (OSError, http.client.HTTPException):
            return False


def _connection_without_verification(
    host: str, port: int, timeout: float
) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=_no_verification())


def _no_verification() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _listen_error(key: str, listen: HostPort) -> BinlogError | None:
    from dispatcher.access.listening import open_sockets  # noqa: PLC0415

    try:
        for each in open_sockets(listen, key):
            each.close()
    except BinlogError as error:
        return error
    return None


def _of_tls(settings: Settings, warnings: list[str]) -> Iterator[BinlogError]:
    from dispatcher.access.listening import certificate_warning, tls_of_listener  # noqa: PLC0415

    front = settings.front
    listeners = {"api.tls": settings.api.tls, "front.tls": None if front is None else front.tls}
    for section, tls in listeners.items():
        try:
            if tls_of_listener(tls, section) is not None and tls is not None:
                warning = certificate_warning(tls.cert, section)
                warnings += [warning] if warning else []
        except BinlogError as error:
            yield error
    if settings.webhook is not None and settings.webhook.encrypted:
        from dispatcher.telemetry.webhook.request import receiver_tls  # noqa: PLC0415

        try:
            receiver_tls(settings.webhook)
        except OSError as error:
            remedy = "set webhook.tls.ca to the PEM file of an authority"
            yield BinlogError(ErrorKind.SETTINGS, f"webhook.tls.ca: {error}", remedy=remedy)
    if settings.mqtt is not None and settings.mqtt.url.tls:
        from dispatcher.telemetry.mqtt.publisher import tls_context  # noqa: PLC0415

        try:
            tls_context(settings.mqtt)
        except (OSError, ssl.SSLError) as error:
            remedy = (
                "set mqtt.tls.ca, mqtt.tls.cert and mqtt.tls.key to PEM files that belong together"
            )
            yield BinlogError(ErrorKind.SETTINGS, f"mqtt.tls: {error}", remedy=remedy)
