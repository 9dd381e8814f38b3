"""The commands `binlogs` and `top`, which show the consumers of a running daemon."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from dispatcher.cli.calls import (
    Ca,
    DaemonAddress,
    TokenFile,
    Url,
    errors_as_exit_codes,
    rows_of,
    unexpected,
)
from dispatcher.cli.output import say, say_json
from dispatcher.cli.status_text import Row, print_binlogs
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.2, help="Time between two readings.")
]


@contextmanager
def _ended_by_ctrl_c(expected: bool) -> Iterator[None]:
    """Ctrl-C is how a person ends a command that goes on until then: exit code 0."""
    try:
        yield
    except KeyboardInterrupt:
        if not expected:
            raise


def binlogs_command(
    url: Url,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the daemon's JSON answer.")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Also print connection, sizes, runway, detaches.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print again and again, with the time, until Ctrl-C.")
    ] = False,
    every: Every = 2.0,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """List the consumers of a daemon: state, lag, queue, position."""
    address = DaemonAddress(url, token_file, ca)
    with errors_as_exit_codes(), _ended_by_ctrl_c(watch):
        rows = rows_of(address)
        if not watch:
            _print(rows, address, as_json=as_json, wide=wide)
            return
        while True:
            if not as_json:
                _begin_reading()
            _print(rows, address, as_json=as_json, wide=wide, indent=None)
            sys.stdout.flush()
            rows = _next_reading(address, every, as_json=as_json)


def _print(
    rows: list[Row], address: DaemonAddress, *, as_json: bool, wide: bool, indent: int | None = 2
) -> None:
    if as_json:
        say_json(rows, indent=indent)
        return
    try:
        print_binlogs(rows, wide=wide)
    except (KeyError, TypeError, ValueError):
        raise unexpected(address.url) from None


def _begin_reading() -> None:
    """Clear a terminal; begin each reading with the time, which also separates readings in a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415

        Console().clear()
    say(_now())


def _next_reading(address: DaemonAddress, every_s: float, *, as_json: bool) -> list[Row]:
    """Wait, and read again. A daemon that does not answer, because it is restarted, is asked until it does."""
    while True:
        time.sleep(every_s)
        try:
            return rows_of(address)
        except BinlogError as error:
            # A reader of JSON gets readings only.
            say(f"{_now()} {error}", err=as_json)
            sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def top_command(
    url: Url,
    once: Annotated[bool, typer.Option("--once", help="Print one view and end.")] = False,
    every: Every = 1.0,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Show connections, dispatchers and consumers live.

    q or Ctrl-C ends it.
    """
    address = DaemonAddress(url, token_file, ca)
    with errors_as_exit_codes(), _ended_by_ctrl_c(True):
        from dispatcher.cli import top  # noqa: PLC0415

        if once:
            top.print_once(address, every)
        elif sys.stdin.isatty() and sys.stdout.isatty():
            top.run_live(address, every)
        else:
            what = "top needs a terminal"
            raise UserError(ErrorKind.SETTINGS, what, remedy="pass --once to print one view")
