"""The command `binlog-dispatcher inspect`: its arguments, passwords, output and exit code.

Exit codes: 0 for success; 2 if the input is the cause of the error (an argument, a damaged file, events that could not
be shown); 1 if a server is the cause. If the reader of the output closes the pipe (`| head`), the exit code is 0.
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
from typing import Any, BinaryIO
from urllib.parse import unquote

from numba.core import event as numba_event

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.bounds import Bound, parse_bound
from dispatcher.inspect.inspector import Inspection, InspectOptions, Write
from dispatcher.inspect.sources import STDIN, FileArguments, InspectSource
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.printable import printable

_SCHEME = "mysql://"
_ADDRESS_REMEDY = "write it like mysql://user@host:3306 or mysql://user@host:3306/binlog.000003"
_INPUT_KINDS = (
    ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT, ErrorKind.UNSUPPORTED_TYPE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Login:
    """The options for the login at a server."""

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
    """Returns the checked options. Raises `UserError`."""
    start, stop = bounds
    try:
        policy = InvalidDates(invalid_dates)
    except ValueError:
        what = f"--invalid-dates: {invalid_dates!r}"
        raise _wrong(what, f"use one of {', '.join(InvalidDates)}") from None
    return InspectOptions(
        as_json=as_json,
        summary=summary,
        hexdump=hexdump,
        databases=tuple(databases),
        tables=tuple(tables),
        start=None if start is None else parse_bound(start, "--start"),
        stop=None if stop is None else parse_bound(stop, "--stop"),
        invalid_dates=policy,
    )


def run_inspection(
    logs: Sequence[str], options: InspectOptions, login: Login, *, follow: bool
) -> int:
    """Print the logs and return the exit code. At an error, print everything before the error and then raise
    `BinlogError`."""
    out = sys.stdout.buffer
    inspection = Inspection(options, _flushed(out) if follow else out.write)
    try:
        source = _source(logs, login, options.start, follow=follow)
        try:
            with compilation_announced(), _collector_disabled(unless=follow):
                inspection.run(source)
        except BinlogError as error:
            out.flush()
            raise _as_input(error) from None
        out.flush()
    except BrokenPipeError:
        # When Python exits, it flushes standard output once more. This flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if inspection.unread:
        events = "1 event" if inspection.unread == 1 else f"{inspection.unread} events"
        first = printable(inspection.first_unread)
        print(f"not shown: the content of {events}; first: {first}", file=sys.stderr)
        return 2
    return 0


class _Announcing(numba_event.Listener):
    """Prints once that kernels are being compiled, which delays the output."""

    def __init__(self) -> None:
        self._told = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if not self._told:
            self._told = True
            print("compiling kernels, once per version and machine", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def compilation_announced() -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    with numba_event.install_listener("numba:compile", _Announcing()):
        yield


@contextmanager
def _collector_disabled(*, unless: bool) -> Iterator[None]:
    """Disable the garbage collector if `unless` is False. The collector would use half of the run time to search for
    cycles among the entries, which have none."""
    if unless or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _flushed(out: BinaryIO) -> Write:
    def write(data: bytes | memoryview) -> None:
        out.write(data)
        out.flush()

    return write


def _as_input(error: BinlogError) -> BinlogError:
    """Returns a `UserError` for a damaged file, which is the user's input; returns other errors unchanged."""
    if error.kind not in _INPUT_KINDS or isinstance(error, UserError):
        return error
    return UserError(error.kind, error.what, where=error.where, remedy=error.remedy)


def _wrong(what: str, remedy: str) -> UserError:
    return UserError(ErrorKind.SETTINGS, what, remedy=remedy)


def _source(
    logs: Sequence[str], login: Login, start: Bound | None, *, follow: bool
) -> InspectSource:
    if not any(log.startswith(_SCHEME) for log in logs):
        if follow:
            raise _wrong("--follow needs a server", "leave it out for files")
        if logs.count(STDIN) > 1:
            raise _wrong("- is given twice", "standard input can be read once")
        return FileArguments(logs)
    if len(logs) > 1:
        raise _wrong(
            "a server cannot be read together with other logs",
            "give one mysql:// address, or files",
        )
    # PyMySQL is loaded only if the input is a server.
    from dispatcher.inspect.server_log import RemoteLog  # noqa: PLC0415
    from dispatcher.mysql.login import Endpoint, Tls, TlsMode  # noqa: PLC0415
    from dispatcher.source.mysql.blocking_dump import LogServer  # noqa: PLC0415

    user, host, port, file = _address(logs[0])
    try:
        mode = TlsMode(login.tls_mode)
    except ValueError:
        what = f"--tls-mode: {login.tls_mode!r}"
        raise _wrong(what, f"one of {', '.join(TlsMode)}") from None
    tls = Tls(
        mode,
        login.ca,
        server_public_key=login.server_public_key,
        allow_public_key_retrieval=login.get_server_public_key,
    )
    endpoint = Endpoint(host, port, user, _password(login, user, host), tls)
    return RemoteLog(LogServer(endpoint), file, start, follow=follow)


def _address(url: str) -> tuple[str, str, int, str]:
    """Returns (user, host, port, file) of mysql://user@host:port/file."""
    from dispatcher.yaml_settings.values import split_host_port  # noqa: PLC0415 - pydantic

    address, _, file = url.removeprefix(_SCHEME).partition("/")
    user, _, server = address.rpartition("@")
    if ":" in user:
        raise _wrong(
            "the address holds a password; every user of this machine can read it in the list of processes",
            "leave the password out, and use --password-file FILE or --password-env VARIABLE, or enter it when asked",
        )
    if not user or not server:
        raise _wrong(f"not the address of a server: {url}", _ADDRESS_REMEDY)
    try:
        host, port = split_host_port(server, 3306)
    except ValueError as error:
        raise _wrong(f"{url}: {error}", _ADDRESS_REMEDY) from None
    return unquote(user), host, port, file


def _password(login: Login, user: str, host: str) -> str:
    file, variable = login.password_file, login.password_env
    if file is not None and variable is not None:
        raise _wrong("both --password-file and --password-env", "use one of them")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise _wrong(f"--password-file {file}: {reason}", "name a readable file") from None
    if variable is not None:
        if variable not in os.environ:
            raise _wrong(f"--password-env: {variable} is not set", "set and export it")
        return os.environ[variable]
    return getpass.getpass(f"password of {user}@{host}: ") if sys.stdin.isatty() else ""
