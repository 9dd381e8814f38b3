"""The commands `consumers show`, `forget`, `seek`, `pause` and `resume`, which call a running daemon."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from dispatcher.cli.calls import (
    URL_VARIABLE,
    Ca,
    DaemonAddress,
    TokenFile,
    Url,
    binlog_rows,
    call,
    consumer_row,
    errors_as_exit_codes,
    parse_place,
    unexpected,
)
from dispatcher.cli.status_text import print_consumer
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.terminal.output import say, say_json
from dispatcher.terminal.plain_help import PlainTyper

COMPLETION_S = 2.0

app = PlainTyper(help="Show, move or pause a consumer of a running daemon.")


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the daemon's consumers for a shell's completion; [] if the daemon does not answer within
    `COMPLETION_S`."""
    given = context.params
    url = given.get("url") or os.environ.get(URL_VARIABLE)
    if not url:
        return []
    address = DaemonAddress(url, given.get("token_file"), given.get("ca"))
    try:
        rows = binlog_rows(address, timeout_s=COMPLETION_S)
    except BinlogError:  # a message would appear in the middle of the command line
        return []
    return [name for row in rows if (name := str(row.get("name"))).startswith(incomplete)]


_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the consumer.", autocompletion=_names)
]
_REFUSED_POSITIONS = (
    ErrorKind.HISTORY_DIFFERS,
    ErrorKind.POSITION_PURGED,
    ErrorKind.SERVER_SETTING,
    ErrorKind.SETTINGS,
)
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command("show")
def show_consumer(
    name: _Name,
    url: Url,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the consumer's part of the daemon's answer.")
    ] = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Print all that the daemon says of one consumer.

    Example: binlog-dispatcher consumers show shop --url http://127.0.0.1:8085
    """
    address = DaemonAddress(url, token_file, ca)
    with errors_as_exit_codes():
        row = consumer_row(address, name)
        if as_json:
            say_json(row, indent=2)
            return
        try:
            print_consumer(row)
        except (KeyError, TypeError, ValueError):
            raise unexpected(url) from None


@app.command()
def forget(
    name: _Name, url: Url, yes: _Yes = False, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Delete a consumer's stored position.

    Example: binlog-dispatcher consumers forget shop --url http://127.0.0.1:8085

    It begins at the `start` of its settings, in a new epoch.
    """
    with errors_as_exit_codes():
        _confirm(f"Delete the position of consumer {name} and begin at its start?", yes)
        _move(DaemonAddress(url, token_file, ca), name, "forget", {})


@app.command()
def seek(
    name: _Name,
    url: Url,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="earliest, latest, a position (binlog.000003:1234), an executed GTID set, or a time (ISO 8601, UTC by"
            " default): the first transaction committed then or later.",
        ),
    ],
    yes: _Yes = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Move a consumer to another position, in a new epoch.

    Example: binlog-dispatcher consumers seek shop --to earliest --url http://127.0.0.1:8085
    """
    with errors_as_exit_codes():
        start = parse_place(to, "--to")
        _confirm(f"Move consumer {name} to {to}?", yes)
        try:
            _move(DaemonAddress(url, token_file, ca), name, "seek", {"to": start})
        except BinlogError as error:
            if error.kind in _REFUSED_POSITIONS:
                raise type(error)(error.kind, f"--to: {error.what}", remedy=error.remedy) from None
            raise


@app.command("pause")
def pause_consumer(name: _Name, url: Url, token_file: TokenFile = None, ca: Ca = None) -> None:
    """Stop the delivery to a consumer's reader.

    Example: binlog-dispatcher consumers pause shop --url http://127.0.0.1:8085

    Until `resume`, also after a restart of the daemon, polls answer that the consumer is paused. Other consumers are
    not affected.
    """
    _set_paused(DaemonAddress(url, token_file, ca), name, "pause")


@app.command("resume")
def resume_consumer(name: _Name, url: Url, token_file: TokenFile = None, ca: Ca = None) -> None:
    """Resume the delivery where it was paused.

    Example: binlog-dispatcher consumers resume shop --url http://127.0.0.1:8085
    """
    _set_paused(DaemonAddress(url, token_file, ca), name, "resume")


def _set_paused(address: DaemonAddress, name: str, operation: str) -> None:
    with errors_as_exit_codes():
        answer = call(address, _path(name, operation), {})
        try:
            message = f"{name}: delivery is {'paused' if answer['paused'] else 'on'}"
        except (KeyError, TypeError):
            raise unexpected(address.url) from None
        say(message)


def _path(name: str, operation: str) -> str:
    return f"/v1/consumers/{quote(name, safe='')}/{operation}"


def _confirm(question: str, yes: bool) -> None:
    """Ask the user, unless `yes`. Raises UserError if there is no terminal, and typer.Abort if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        what = "there is no terminal to ask for confirmation"
        raise UserError(ErrorKind.SETTINGS, what, remedy="pass --yes")
    typer.confirm(f"{question} Its readers must open new sessions.", abort=True)


def _move(address: DaemonAddress, name: str, operation: str, body: dict[str, Any]) -> None:
    answer = call(address, _path(name, operation), body)
    try:
        position = answer["position"]
        place = f"{position['file']}:{position['offset']}" if position["file"] else position["gtid"]
        message = f"{name}: continues at {place}, epoch {position['epoch']}"
    except (KeyError, TypeError):
        raise unexpected(address.url) from None
    say(message)
