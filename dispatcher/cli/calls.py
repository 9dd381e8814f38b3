"""Functions and options of several commands: common options, the settings, the HTTP call to a running daemon, exit
codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.model.api_addresses import AddressChoice, parse_addresses
from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, UserError
from dispatcher.model.nearest import nearest_name
from dispatcher.terminal.output import say_error

if TYPE_CHECKING:
    from dispatcher.settings.model import Settings, StateSettings

EXIT_FAULT, EXIT_INPUT = 1, 2
TOKEN_VARIABLE = "DISPATCHER_TOKEN"  # noqa: S105 - the name, not a token
URL_VARIABLE = "DISPATCHER_URL"
TIMEOUT_S = 60.0
# The timeout of a GET if the user gave several addresses. If a host is down, an attempt to connect may take minutes.
QUESTION_TIMEOUT_S = 10.0

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="URL of the daemon, such as http://127.0.0.1:8085; of several daemons all, with commas.",
        envvar=URL_VARIABLE,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"File that contains an API token. Default: the environment variable {TOKEN_VARIABLE}.",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="For https: PEM file of the trusted authorities.", show_default=False
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File that contains the password.", show_default=False),
]
PasswordEnv = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Environment variable that contains the password.", show_default=False
    ),
]
TlsMode = Annotated[
    str,
    typer.Option(
        metavar="MODE", help="disabled, preferred, required, verify_ca or verify_identity."
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="For TLS: PEM file of the trusted certificate authorities.",
        show_default=False,
    ),
]
GetServerPublicKey = Annotated[
    bool,
    typer.Option(
        "--get-server-public-key", help="Without TLS: accept the key that the server sends."
    ),
]
Config = Annotated[
    list[Path],
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="DISPATCHER_CONFIG",
        help="YAML file, or folder of YAML files. Repeatable; later files override earlier ones.",
        show_default=False,
    ),
]

_FORMS = (
    "write earliest, latest, a position like binlog.000003:1234, an executed GTID set, or a time like"
    " 2026-01-31T12:00:00Z"
)


def read_settings(
    config: list[Path], *, listen: str | None = None, log_level: str | None = None
) -> Settings:
    """The settings of `--config`, overridden by options. Raises SettingsError."""
    from dispatcher.settings.load import load_settings  # noqa: PLC0415

    overrides = {"api.listen": ("--listen", listen), "log.level": ("--log-level", log_level)}
    return load_settings(config, {key: o for key, o in overrides.items() if o[1] is not None})


def state_of(state: StateSettings) -> dict[str, Any]:
    """The contents of the state store that these settings name; see `dump_state`. Raises BinlogError."""
    if state.mysql is None:
        from dispatcher.state.copies import dump_state  # noqa: PLC0415

        return dump_state(state.path)
    from dispatcher.state.database_dump import dump_database  # noqa: PLC0415

    return dump_database(state)


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Print a BinlogError in one line and exit: with 2 if the user's input, settings or token is wrong, else with 1."""
    try:
        yield
    except BinlogError as error:
        say_error(error)
        input_kinds = (ErrorKind.SETTINGS, ErrorKind.UNAUTHORIZED)
        wrong_input = isinstance(error, UserError) or error.kind in input_kinds
        raise typer.Exit(EXIT_INPUT if wrong_input else EXIT_FAULT) from None


@dataclass(slots=True)
class DaemonAddress:
    """The options that name a daemon. `url`: the address of the daemon, or the addresses of a leader and its standbys,
    separated by commas; `token_file`, `ca`: None if the option was not given."""

    url: str
    token_file: Path | None
    ca: Path | None
    _choice: AddressChoice | None = field(default=None, init=False)

    @property
    def choice(self) -> AddressChoice:
        """The choice among the addresses in `url`. Raises UserError if `url` is wrong."""
        if self._choice is None:
            self._choice = AddressChoice(parse_addresses(self.url))
        return self._choice


_NOT_READY, _LINE_MAX = 503, 1000


def call(
    address: DaemonAddress,
    path: str,
    body: object = None,
    *,
    timeout_s: float = TIMEOUT_S,
    read: Callable[[IO[bytes]], Any] = json.load,
) -> Any:
    """Send a GET, or a POST of `body`, and return what `read` makes of the daemon's answer: by default its JSON. Raises
    BinlogError for any other answer.

    If there are several addresses, each of them gets at most one request. If a standby answers, the call asks the
    leader that the standby names. If an address does not answer, the call asks the next address.
    """
    import http.client  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415

    choice = address.choice
    if body is None and choice.has_several:
        timeout_s = min(timeout_s, QUESTION_TIMEOUT_S)
    choice.begin()
    while True:
        url = f"{choice.current}{path}"
        try:
            answer = _send(address, url, body, timeout_s, read)
        except urllib.error.HTTPError as error:
            problem = _problem_of(error)
            fault = _refused(error, problem)
            if fault.kind is not ErrorKind.NOT_LEADER:
                raise _at(url, fault) from error
            another = choice.not_leader(fault, problem.get("leader"))
        except (OSError, ValueError, http.client.HTTPException) as error:
            another = choice.failed(_unreachable(error))
        else:
            choice.answered()
            return answer
        if not another:  # with several addresses, the text of the fault contains all addresses
            raise choice.fault() if choice.has_several else _at(url, choice.fault())


def _send(
    address: DaemonAddress,
    url: str,
    body: object,
    timeout_s: float,
    read: Callable[[IO[bytes]], Any],
) -> Any:
    """Returns the answer. Raises UserError for files that cannot be used, and the errors of urllib and of `read`."""
    import ssl  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

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
        remedy = "pass readable files and a valid URL"
        raise UserError(
            ErrorKind.SETTINGS, f"cannot use {names}: {error}", remedy=remedy
        ) from error
    with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:  # noqa: S310
        return read(answer)


def _at(url: str, fault: BinlogError) -> BinlogError:
    return type(fault)(fault.kind, f"{url}: {fault.what}", remedy=fault.remedy)


def binlog_rows(address: DaemonAddress, *, timeout_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """The rows of `GET /v1/binlogs`. Raises BinlogError."""
    rows = call(address, "/v1/binlogs", timeout_s=timeout_s)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise unexpected(address.url)
    return rows


def consumer_row(address: DaemonAddress, name: str) -> dict[str, Any]:
    """The row of `GET /v1/binlogs` of a consumer. Raises UserError if the daemon has no such consumer."""
    rows = binlog_rows(address)
    for row in rows:
        if row.get("name") == name:
            return row
    names = [str(row.get("name")) for row in rows]
    close = nearest_name(name, names)
    remedy = f"did you mean {close!r}?" if close else "binlog-dispatcher binlogs lists them"
    raise UserError(
        ErrorKind.UNKNOWN_CONSUMER, f"{address.url}: no consumer {name!r}", remedy=remedy
    )


def readiness(address: DaemonAddress) -> str:
    """The first line of `GET /readyz`: "ok", or why the daemon is not ready; "" if there is no such answer."""
    import urllib.error  # noqa: PLC0415

    def first_line(answer: IO[bytes]) -> str:
        return answer.readline(_LINE_MAX).decode("utf-8", "replace").strip()

    url = f"{address.choice.current}/readyz"
    try:
        return str(_send(address, url, None, QUESTION_TIMEOUT_S, first_line))
    except urllib.error.HTTPError as error:
        return first_line(error) if error.code == _NOT_READY else ""
    except OSError:
        return ""


def leader_of(address: DaemonAddress) -> dict[str, Any] | None:
    """The answer of `GET /v1/leader`; None if the daemon has its state in a file, if no leader is known, or if the
    daemon's version does not know the call. Raises BinlogError."""
    try:
        known = call(address, "/v1/leader")
    except UserError:
        return None
    return known if isinstance(known, dict) and known.get("term") is not None else None


def _token(file: Path | None) -> str:
    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    return os.environ.get(TOKEN_VARIABLE, "").strip()


_PORT = "check that the port is the one of api.listen"


def _unreachable(error: Exception) -> BinlogError:
    """The error for a closed port, for a protocol other than HTTP, or for an answer that is not JSON."""
    import http.client  # noqa: PLC0415
    import ssl  # noqa: PLC0415

    cause = getattr(error, "reason", error)
    remedy = "check the URL, and that the daemon is running"
    if isinstance(cause, ssl.SSLCertVerificationError):
        what = f"the server's certificate is not trusted: {cause.verify_message}"
        remedy = "pass the certificate's authority with --ca"
    elif isinstance(cause, ssl.SSLError):
        what = "the server does not speak TLS"
        remedy = "write http:// if the daemon has no api.tls"
    elif isinstance(cause, ConnectionResetError | BrokenPipeError):
        what = "the server closed the connection without an answer"
        remedy = f"check that the daemon is running; write https:// if it has api.tls; {_PORT}"
    elif isinstance(cause, http.client.HTTPException):
        what, remedy = "the server does not speak HTTP", _PORT
    elif isinstance(cause, json.JSONDecodeError | UnicodeDecodeError):
        what, remedy = "the answer is not JSON", "check the URL: another program listens there"
    else:
        what = str(getattr(cause, "strerror", None) or cause)
    return BinlogError(ErrorKind.CONNECT_FAILED, what, remedy=remedy)


def _problem_of(error: Any) -> dict[str, Any]:
    """The daemon's problem document; {} if another program answered. In that case the error contains only the HTTP
    status."""
    import http.client  # noqa: PLC0415

    try:
        problem = json.load(error)
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return problem if isinstance(problem, dict) and "detail" in problem else {}


def _refused(error: Any, problem: dict[str, Any]) -> BinlogError:
    """The error that a problem document describes."""
    what, remedy = str(problem.get("detail", error.reason)), problem.get("hint")
    kind = str(problem.get("kind", ""))
    error_kind = ErrorKind.__members__.get(kind, ErrorKind.CONNECT_FAILED)
    # The daemon's text begins with the kind and ends with the hint. The text of the BinlogError adds both, so remove
    # them here.
    what = what.removeprefix(f"{error_kind.value}: ")
    if remedy:
        what = what.removesuffix(f"; {remedy}")
    if error.code in (401, 403):
        error_kind = ErrorKind.FORBIDDEN if error.code == 403 else ErrorKind.UNAUTHORIZED
        if remedy and error.code == 401:
            remedy = (
                f"{remedy}; pass a file that contains it with --token-file, or set {TOKEN_VARIABLE}"
            )
    user_error = POLICY[error_kind].action is Action.REFUSE
    error_class = UserError if user_error else BinlogError
    return error_class(error_kind, f"{error.code} {what}", remedy=remedy)


def unexpected(url: str) -> BinlogError:
    """The error for a JSON answer that is not the daemon's."""
    what = f"{url}: the answer is not one of binlog-dispatcher"
    return BinlogError(
        ErrorKind.CONNECT_FAILED, what, remedy="check the URL, and the daemon's version"
    )


def parse_place(text: str, option: str) -> str | dict[str, Any]:
    """The value of `option`, a place in the log, in the API's form. Raises UserError."""
    from dispatcher.inspect.bounds import GtidBound, TimeBound, parse_bound  # noqa: PLC0415

    if text in ("earliest", "latest"):
        return text
    try:
        bound = parse_bound(text, option)
    except UserError as error:
        raise UserError(error.kind, error.what, remedy=_FORMS) from None
    if isinstance(bound, GtidBound):
        return {"gtid": text.strip().removeprefix("gtid:")}
    if isinstance(bound, TimeBound):
        return {"timestamp": text.strip()}
    if not bound.file:
        what = f"{option}: {text!r} is not a position, a GTID or a time"
        raise UserError(ErrorKind.SETTINGS, what, remedy=_FORMS)
    return {"file": bound.file, "offset": bound.offset}
