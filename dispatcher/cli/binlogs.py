"""The commands `binlogs` and `top`, which show the consumers of a running daemon."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from dispatcher.cli.status_text import Row, print_binlogs
from dispatcher.model.errors import ErrorKind, UserError

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
        bool, typer.Option("--watch", help="Print again and again, until Ctrl-C.")
    ] = False,
    every: Every = 2.0,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """List the consumers of a daemon: state, lag, queue, position."""
    address = DaemonAddress(url, token_file, ca)
    with errors_as_exit_codes(), _ended_by_ctrl_c(watch):
        while True:
            rows = rows_of(address)
            if as_json:
                typer.echo(json.dumps(rows, indent=None if watch else 2, ensure_ascii=False))
            else:
                _print_table(rows, address, wide=wide, again=watch)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(every)


def _print_table(rows: list[Row], address: DaemonAddress, *, wide: bool, again: bool) -> None:
    if again and sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415

        Console().clear()
    try:
        print_binlogs(rows, wide=wide)
    except (KeyError, TypeError, ValueError):
        raise unexpected(address.url) from None


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
