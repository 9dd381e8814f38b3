"""The commands `consumers forget` and `consumers seek`, which call a running daemon."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from dispatcher.calls import (
    Ca,
    DaemonAddress,
    TokenFile,
    Url,
    call,
    errors_as_exit_codes,
    unexpected,
)
from dispatcher.model.errors import ErrorKind, UserError

app = typer.Typer(
    help="Move a consumer of a running daemon.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the consumer.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def forget(
    name: _Name, url: Url, yes: _Yes = False, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Delete a consumer's stored position: it begins at the `start` of its settings, in a new epoch."""
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
            help="earliest, latest, a position (binlog.000003:1234), an executed GTID set, or a time (ISO 8601, UTC by"
            " default): the first transaction committed then or later."
        ),
    ],
    yes: _Yes = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Move a consumer to another position in the server's log, in a new epoch."""
    with errors_as_exit_codes():
        start = _start(to)
        _confirm(f"Move consumer {name} to {to}?", yes)
        _move(DaemonAddress(url, token_file, ca), name, "seek", {"to": start})


def _start(to: str) -> object:
    """The value of `--to` in the API's form. Raises UserError."""
    from dispatcher.inspect.bounds import GtidBound, TimeBound, parse_bound  # noqa: PLC0415

    if to in ("earliest", "latest"):
        return to
    bound = parse_bound(to, "--to")
    if isinstance(bound, GtidBound):
        return {"gtid": to.strip().removeprefix("gtid:")}
    if isinstance(bound, TimeBound):
        return {"timestamp": to.strip()}
    if not bound.file:
        what = f"--to: {to!r} has no file"
        raise UserError(ErrorKind.SETTINGS, what, remedy="write a position like binlog.000003:1234")
    return {"file": bound.file, "offset": bound.offset}


def _confirm(question: str, yes: bool) -> None:
    """Raises UserError if there is no terminal, and typer.Abort if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        what = "there is no terminal to ask for confirmation"
        raise UserError(ErrorKind.SETTINGS, what, remedy="pass --yes")
    typer.confirm(f"{question} Its readers must open new sessions.", abort=True)


def _move(address: DaemonAddress, name: str, operation: str, body: dict[str, Any]) -> None:
    answer = call(address, f"/v1/consumers/{quote(name, safe='')}/{operation}", body)
    try:
        position = answer["position"]
        place = f"{position['file']}:{position['offset']}" if position["file"] else position["gtid"]
        message = f"{name}: continues at {place}, epoch {position['epoch']}"
    except (KeyError, TypeError):
        raise unexpected(address.url) from None
    typer.echo(message)
