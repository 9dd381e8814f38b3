"""What the commands share that call a running daemon: their options, one HTTP call, and faults as exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dispatcher.model.errors import Action, BinlogError, ErrorKind, UserError

EXIT_FAULT, EXIT_INPUT = 1, 2
TOKEN_VARIABLE = "DISPATCHER_TOKEN"  # noqa: S105 - its name
TIMEOUT_S = 60

Url = Annotated[str, typer.Option(help="Where the daemon listens.", envvar="DISPATCHER_URL")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File with a token for the API, instead of the environment variable {TOKEN_VARIABLE}.",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None, typer.Option(help="PEM file of whom to trust for https.", show_default=False)
]


@contextmanager
def faults() -> Iterator[None]:
    """Expected faults become a message and an exit code."""
    try:
        yield
    except BinlogError as error:
        typer.echo(str(error), err=True)
        wrong_input = isinstance(error, UserError) or error.kind in (
            ErrorKind.SETTINGS,
            ErrorKind.UNAUTHORIZED,
        )
        raise typer.Exit(EXIT_INPUT if wrong_input else EXIT_FAULT) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_FAULT) from None


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """A daemon, as the options name it. `token_file`, `ca`: None = not given."""

    url: str
    token_file: Path | None
    ca: Path | None


def call(address: DaemonAddress, path: str, body: object = None) -> Any:
    """The JSON answer of the daemon to a GET, or to a POST of `body`; raises BinlogError for everything else."""
    import http.client  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    if not address.url.startswith(("http://", "https://")):
        what = f"not a URL: {address.url}"
        raise UserError(ErrorKind.SETTINGS, what, remedy="write it like http://host:8085")
    url = address.url.rstrip("/") + path
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data)  # noqa: S310 - the scheme was checked
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if token := _token(address.token_file):
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        context = ssl.create_default_context(cafile=address.ca) if address.ca else None
    except (OSError, ValueError) as error:
        names = " or ".join(str(file) for file in (address.token_file, address.ca) if file) or url
        remedy = "name readable files and a well-formed URL"
        raise UserError(
            ErrorKind.SETTINGS, f"cannot use {names}: {error}", remedy=remedy
        ) from error
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise _refused(error, url) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _unreachable(error, url) from error


def _token(file: Path | None) -> str:
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    return os.environ.get(TOKEN_VARIABLE, "").strip()


_PORT = "check the port: that of api.listen is needed"


def _unreachable(error: Exception, url: str) -> BinlogError:
    """A port that is closed, speaks TLS or something else than HTTP, or answers what is not JSON."""
    import http.client  # noqa: PLC0415
    import ssl  # noqa: PLC0415

    cause = getattr(error, "reason", error)
    remedy = "check the URL, and that the daemon is running"
    if isinstance(cause, ssl.SSLCertVerificationError):
        what, remedy = (
            f"its certificate is not trusted: {cause.verify_message}",
            "name its authority by --ca",
        )
    elif isinstance(cause, ssl.SSLError):
        what, remedy = "it does not answer in TLS", "write http:// if the daemon has no api.tls"
    elif isinstance(cause, ConnectionResetError | BrokenPipeError):
        what = "it closed the connection without an answer"
        remedy = f"write https:// if the daemon has api.tls; {_PORT}"
    elif isinstance(cause, http.client.HTTPException):
        what, remedy = "it does not answer in HTTP", _PORT
    elif isinstance(cause, json.JSONDecodeError | UnicodeDecodeError):
        what, remedy = "it does not answer in JSON", "check the URL: another program listens there"
    else:
        what = str(getattr(cause, "strerror", None) or cause)
    return BinlogError(ErrorKind.CONNECT_FAILED, f"{url}: {what}", remedy=remedy)


def _refused(error: Any, url: str) -> BinlogError:
    """The daemon's problem document as the fault that it is."""
    import http.client  # noqa: PLC0415

    kind, what, remedy = "", str(error.reason), None
    try:
        problem = json.load(error)
        what, remedy = str(problem["detail"]), problem.get("hint")
        kind = str(problem.get("kind", ""))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        pass  # another program's answer: its status says enough
    found = ErrorKind.__members__.get(kind, ErrorKind.CONNECT_FAILED)
    # The daemon's text begins with the kind and ends with the hint, as this one's will.
    what = what.removeprefix(f"{found.value}: ")
    if remedy:
        what = what.removesuffix(f"; {remedy}")
    told = f"{url}: {error.code} {what}"
    if error.code in (401, 403):
        if remedy and error.code == 401:
            remedy = f"{remedy}; name a file that holds it by --token-file, or set {TOKEN_VARIABLE}"
        return UserError(
            ErrorKind.FORBIDDEN if error.code == 403 else ErrorKind.UNAUTHORIZED,
            told,
            remedy=remedy,
        )
    fault = BinlogError(found, told, remedy=remedy)
    if fault.action is Action.REFUSE:
        return UserError(found, told, remedy=remedy)
    return fault


def unexpected(url: str) -> BinlogError:
    """For an answer that is JSON, and not the daemon's."""
    what = f"{url}: it answers, but not as binlog-dispatcher does"
    return BinlogError(
        ErrorKind.CONNECT_FAILED, what, remedy="check the URL, and the daemon's version"
    )
