"""The command `binlog-dispatcher inspect`: its arguments, passwords, output and exit code.

Exit codes: 0 for success; 2 if the input is the cause of the error (an argument, a damaged file, events that could not
be shown); 1 if a server is the cause. If the reader of the output closes the pipe (`| head`), the exit code is 0.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from numba.core import event as numba_event

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.bounds import Bound, parse_bound
from dispatcher.inspect.inspector import Inspection, InspectOptions, Write
from dispatcher.inspect.sources import STDIN, FileArguments, InspectSource
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.printable import printable
from dispatcher.mysql.server_address import (
    SCHEME,
    Login,
    parse_address,
    password_of,
    refused_login_as_input,
    wrong,
)

_INPUT_KINDS = (
    ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT, ErrorKind.UNSUPPORTED_TYPE,
)  # fmt: skip


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
        raise wrong(what, f"use one of {', '.join(InvalidDates)}") from None
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
            with (
                refused_login_as_input(login),
                compilation_announced(),
                _collector_disabled(unless=follow),
            ):
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
        self._printed = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if not self._printed:
            self._printed = True
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


def _source(
    logs: Sequence[str], login: Login, start: Bound | None, *, follow: bool
) -> InspectSource:
    if not any(log.startswith(SCHEME) for log in logs):
        if follow:
            raise wrong("--follow needs a server", "leave it out for files")
        if logs.count(STDIN) > 1:
            raise wrong("- is given twice", "standard input can be read once")
        return FileArguments(logs)
    if len(logs) > 1:
        raise wrong(
            "a server cannot be read together with other logs",
            "give one mysql:// address, or files",
        )
    # PyMySQL is loaded only if the input is a server.
    from dispatcher.inspect.server_log import RemoteLog  # noqa: PLC0415
    from dispatcher.mysql.login import Endpoint, Tls, TlsMode  # noqa: PLC0415
    from dispatcher.source.mysql.blocking_dump import LogServer  # noqa: PLC0415

    user, host, port, file = parse_address(logs[0])
    try:
        mode = TlsMode(login.tls_mode)
    except ValueError:
        what = f"--tls-mode: {login.tls_mode!r}"
        raise wrong(what, f"one of {', '.join(TlsMode)}") from None
    tls = Tls(
        mode,
        login.ca,
        server_public_key=login.server_public_key,
        allow_public_key_retrieval=login.get_server_public_key,
    )
    endpoint = Endpoint(host, port, user, password_of(login, user, host), tls)
    return RemoteLog(LogServer(endpoint), file, start, follow=follow)
