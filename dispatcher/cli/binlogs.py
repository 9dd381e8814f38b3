"""The commands `binlogs` and `top`, which show the consumers of a running daemon."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from dispatcher.cli.calls import (
    Ca,
    DaemonAddress,
    TokenFile,
    Url,
    binlog_rows,
    errors_as_exit_codes,
    leader_of,
    readiness,
    unexpected,
)
from dispatcher.cli.status_text import print_binlogs
from dispatcher.terminal.output import say, say_json


def binlogs_command(
    url: Url,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the daemon's JSON answer.")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Also print connection, sizes, runway, detaches.")
    ] = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """List the consumers of a daemon: state, lag, queue, position.

    Example: binlog-dispatcher binlogs --url http://127.0.0.1:8085
    """
    address = DaemonAddress(url, token_file, ca)
    with errors_as_exit_codes():
        rows = binlog_rows(address)
        if as_json:
            say_json(rows, indent=2)
            return
        leader = leader_of(address)
        try:
            if leader is not None:
                say(f"{leader['leader']} leads, term {leader['term']}", err=True)
            print_binlogs(rows, wide=wide)
            connecting = any(row["state"] == "connecting" for row in rows)
            if connecting and (reason := readiness(address)).startswith("not ready"):
                say(f"the daemon is {reason}", err=True)
        except (KeyError, TypeError, ValueError):
            raise unexpected(address.url) from None


def top_command(
    url: Url,
    once: Annotated[bool, typer.Option("--once", help="Print one view and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The daemon's JSON answer, one line per reading.")
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.2, help="Time between two readings."),
    ] = 1.0,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Show connections, dispatchers and consumers live.

    Example: binlog-dispatcher top --url http://127.0.0.1:8085

    q or Ctrl-C ends it.
    """
    with errors_as_exit_codes(), suppress(KeyboardInterrupt):
        from dispatcher.cli.top import DaemonReadings  # noqa: PLC0415
        from dispatcher.terminal.live import check_terminal, show  # noqa: PLC0415

        check_terminal(once=once, as_json=as_json)
        readings = DaemonReadings(DaemonAddress(url, token_file, ca))
        show(readings, every, once=once, as_json=as_json)
