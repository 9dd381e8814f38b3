"""The commands of administrators: `consumers forget` and `consumers seek`, as calls of a running daemon."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from dispatcher.calls import Ca, DaemonAddress, TokenFile, Url, call, faults, unexpected
from dispatcher.model.errors import ErrorKind, UserError

app = typer.Typer(
    help="Move the consumers of a running daemon.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def forget(
    name: _Name, url: Url, yes: _Yes = False, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Drop what is stored of a consumer: it begins at the `start` of its settings, in a new epoch."""
    with faults():
        _ask(f"Drop the position of consumer {name}, and begin at its start?", yes)
        _move(DaemonAddress(url, token_file, ca), name, "forget", {})


@app.command()
def seek(
    name: _Name,
    url: Url,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, a position (binlog.000003:1234), a GTID set, or a time (ISO 8601; UTC unless it"
            " says otherwise): the first transaction committed then or later.",
        ),
    ],
    yes: _Yes = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Move a consumer to a place of the server's log, in a new epoch."""
    with faults():
        where = _place(to)
        _ask(f"Move consumer {name} to {to}?", yes)
        _move(DaemonAddress(url, token_file, ca), name, "seek", {"to": where})


def _place(to: str) -> object:
    """As the API takes it. Raises UserError."""
    from dispatcher.inspect.bounds import GtidBound, TimeBound, parse_bound  # noqa: PLC0415

    if to in ("earliest", "latest"):
        return to
    bound = parse_bound(to, "--to")
    if isinstance(bound, GtidBound):
        return {"gtid": to.strip().removeprefix("gtid:")}
    if isinstance(bound, TimeBound):
        return {"timestamp": to.strip()}
    if not bound.file:
        what = f"--to: {to!r} names no file"
        raise UserError(ErrorKind.SETTINGS, what, remedy="write a position like binlog.000003:1234")
    return {"file": bound.file, "offset": bound.offset}


def _ask(question: str, yes: bool) -> None:
    """Raises UserError where there is no terminal to ask on, and typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        what = "there is no terminal to ask on"
        raise UserError(ErrorKind.SETTINGS, what, remedy="say --yes")
    typer.confirm(f"{question} Its readers have to begin anew.", abort=True)


def _move(address: DaemonAddress, name: str, what: str, body: dict[str, Any]) -> None:
    answer = call(address, f"/v1/consumers/{quote(name, safe='')}/{what}", body)
    try:
        position = answer["position"]
        place = f"{position['file']}:{position['offset']}" if position["file"] else position["gtid"]
        told = f"{name}: goes on at {place}, epoch {position['epoch']}"
    except (KeyError, TypeError):
        raise unexpected(address.url) from None
    typer.echo(told)
