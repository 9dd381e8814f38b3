"""What `binlog-dispatcher inspect` does with its arguments: sources, passwords, where output goes, how it ends.

Exit codes: 0; 2 where the input is at fault, be it an argument, a damaged file, or events that could not be shown; 1
where a server is. A reader that goes away (`| head`) ends the output quietly.
"""

from __future__ import annotations

import gc
import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.bounds import Bound, parse_bound
from dispatcher.inspect.inspector import Inspection, InspectOptions, Write
from dispatcher.inspect.sources import STDIN, FileArguments, InspectSource
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

_SCHEME = "mysql://"
_HOW = "write it like mysql://user@host:3306 or mysql://user@host:3306/binlog.000003"
_INPUT_KINDS = (
    ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT, ErrorKind.UNSUPPORTED_TYPE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Login:
    """How to get into a server."""

    password_file: Path | None = None
    password_env: str | None = None
    tls_mode: str = "preferred"
    ca: Path | None = None
    server_public_key: Path | None = None
    get_server_public_key: bool = False


def parse_options(
    *,
    as_json: bool,
    summary: bool,
    hexdump: bool,
    databases: Sequence[str],
    tables: Sequence[str],
    bounds: tuple[str | None, str | None],
    invalid_dates: str,
) -> InspectOptions:
    """Raises `UserError`."""
    start, stop = (
        None if text is None else parse_bound(text, name)
        for name, text in zip(("--start", "--stop"), bounds, strict=True)
    )
    return InspectOptions(
        as_json=as_json,
        summary=summary,
        hexdump=hexdump,
        databases=tuple(databases),
        tables=tuple(tables),
        start=start,
        stop=stop,
        invalid_dates=_invalid_dates(invalid_dates),
    )


def _invalid_dates(text: str) -> InvalidDates:
    try:
        return InvalidDates(text)
    except ValueError:
        known = ", ".join(InvalidDates)
        raise UserError(
            ErrorKind.SETTINGS, f"--invalid-dates: {text!r}", remedy=f"say one of {known}"
        ) from None


def run_inspection(
    logs: Sequence[str], wanted: InspectOptions, login: Login, *, follow: bool
) -> int:
    """Print everything; the exit code. Raises `BinlogError` behind what could be read."""
    out = sys.stdout.buffer
    inspection = Inspection(wanted, _flushed(out) if follow else out.write)
    try:
        source = _source(logs, login, wanted.start, follow=follow)
        try:
            with _no_collector(unless=follow):
                inspection.run(source)
        except BinlogError as error:
            out.flush()
            raise _as_input(error) from None
        out.flush()
    except BrokenPipeError:
        # Nobody reads on. What Python still holds for standard output must not fail when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if inspection.unread:
        events = "1 event" if inspection.unread == 1 else f"{inspection.unread} events"
        print(f"not shown: what {events} hold; first: {inspection.first_unread}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def _no_collector(*, unless: bool) -> Iterator[None]:
    """Half of the time would go into looking for cycles among the entries of a block, where there are none."""
    if unless or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _flushed(out: BinaryIO) -> Write:
    def write(data: bytes) -> None:
        out.write(data)
        out.flush()

    return write


def _as_input(error: BinlogError) -> BinlogError:
    """A damaged file is the user's input, which a server's fault is not."""
    if error.kind not in _INPUT_KINDS or isinstance(error, UserError):
        return error
    return UserError(error.kind, error.what, where=error.where, remedy=error.remedy)


def _source(
    logs: Sequence[str], login: Login, start: Bound | None, *, follow: bool
) -> InspectSource:
    servers = [log for log in logs if log.startswith(_SCHEME)]
    if not servers:
        if follow:
            raise UserError(
                ErrorKind.SETTINGS, "--follow needs a server", remedy="leave it out for files"
            )
        if logs.count(STDIN) > 1:
            raise UserError(
                ErrorKind.SETTINGS, "- is given twice", remedy="standard input can be read once"
            )
        return FileArguments(logs)
    if len(logs) > 1:
        raise UserError(
            ErrorKind.SETTINGS,
            "a server is read alone",
            remedy="give one mysql:// address, or files",
        )
    # PyMySQL is loaded for servers only.
    from dispatcher.inspect.remote import RemoteLog  # noqa: PLC0415
    from dispatcher.source.mysql.blocking_dump import LogServer  # noqa: PLC0415
    from dispatcher.source.mysql.login import Endpoint, Tls, TlsMode  # noqa: PLC0415

    user, host, port, file = _address(logs[0])
    try:
        mode = TlsMode(login.tls_mode)
    except ValueError:
        modes = ", ".join(TlsMode)
        raise UserError(
            ErrorKind.SETTINGS, f"--tls-mode: {login.tls_mode!r}", remedy=f"one of {modes}"
        ) from None
    tls = Tls(
        mode,
        login.ca,
        server_public_key=login.server_public_key,
        allow_public_key_retrieval=login.get_server_public_key,
    )
    endpoint = Endpoint(host, port, user, _password(login, user, host), tls)
    return RemoteLog(LogServer(endpoint), file, start, follow=follow)


def _address(url: str) -> tuple[str, str, int, str]:
    """(user, host, port, file) of mysql://user@host:port/file."""
    from dispatcher.settings.values import split_host_port  # noqa: PLC0415 - pydantic

    address, _, file = url.removeprefix(_SCHEME).partition("/")
    user, at, place = address.rpartition("@")
    if ":" in user:
        raise UserError(
            ErrorKind.SETTINGS,
            "a password does not belong into an address: everybody on this machine can read it there",
            remedy="leave it out, and say --password-file FILE or --password-env VARIABLE, or be asked for it",
        )
    if not at or not user or not place:
        raise UserError(ErrorKind.SETTINGS, f"not the address of a server: {url}", remedy=_HOW)
    try:
        host, port = split_host_port(place, 3306)
    except ValueError as error:
        raise UserError(ErrorKind.SETTINGS, f"{url}: {error}", remedy=_HOW) from None
    return unquote(user), host, port, file


def _password(login: Login, user: str, host: str) -> str:
    if login.password_file is not None and login.password_env is not None:
        raise UserError(
            ErrorKind.SETTINGS, "both --password-file and --password-env", remedy="say one of them"
        )
    if login.password_file is not None:
        try:
            return login.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UserError(
                ErrorKind.SETTINGS,
                f"--password-file {login.password_file}: {reason}",
                remedy="name a readable file",
            ) from None
    if login.password_env is not None:
        if login.password_env not in os.environ:
            raise UserError(
                ErrorKind.SETTINGS,
                f"--password-env: {login.password_env} is not set",
                remedy="set and export it",
            )
        return os.environ[login.password_env]
    return getpass.getpass(f"password of {user}@{host}: ") if sys.stdin.isatty() else ""
