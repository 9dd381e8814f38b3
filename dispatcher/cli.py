"""The command line. Exit codes: 0 success, 2 invalid input or settings, 1 any other error.

Expected errors are printed to stderr in one line, without a traceback. Each command imports what it needs when it runs,
so that `--help` does not load the database driver and the web server.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from dispatcher import consumers
from dispatcher.calls import (
    EXIT_INPUT,
    Ca,
    DaemonAddress,
    TokenFile,
    Url,
    call,
    errors_as_exit_codes,
    unexpected,
)
from dispatcher.model.errors import BinlogError

if TYPE_CHECKING:
    from rich.table import Table

    from dispatcher.settings.model import ConsumerSettings, Settings

# Typer's own tracebacks show local variables, and with them passwords.
app = typer.Typer(
    name="binlog-dispatcher",
    help="One MySQL replication connection, fanned out to many consumers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(consumers.app, name="consumers")

Config = Annotated[
    list[Path],
    typer.Option(
        "--config",
        "-c",
        envvar="DISPATCHER_CONFIG",
        help="YAML file, or folder of YAML files. Repeatable; later files override earlier ones.",
        show_default=False,
    ),
]


def main() -> None:
    app()


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"binlog-dispatcher {version('binlog-dispatcher')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@contextmanager
def _without_gc() -> Iterator[None]:
    """Import without garbage collection, and exempt what was imported from later collections.

    Imported modules stay in memory, and searching them for garbage makes the start about 10 % slower.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@app.command("run")
def run_command(
    config: Config,
    strict: Annotated[
        bool, typer.Option("--strict", help="Check the servers first; exit if one has an error.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option(help="host:port of the HTTP API; overrides api.listen.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error; overrides log.level.")
    ] = None,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C. SIGHUP reloads the settings."""
    with errors_as_exit_codes():

        def load() -> Settings:
            return _settings(config, listen=listen, log_level=log_level)

        settings = load()
        if strict:
            _exit_on(_server_findings(settings))
        with _without_gc():
            from dispatcher import app as daemon  # noqa: PLC0415

        code = daemon.run_daemon(settings, load)
    raise typer.Exit(code)


@app.command("check")
def check_command(config: Config) -> None:
    """Check the settings and every server that they name, and print all errors."""
    with errors_as_exit_codes():
        settings = _settings(config)
        from dispatcher.settings.exposure import password_warnings  # noqa: PLC0415

        for warning in (*settings.warnings, *password_warnings(settings.consumers)):
            typer.echo(f"warning: {warning}", err=True)
        _exit_on(_server_findings(settings))
        consumers = len(settings.consumers)
        typer.echo(f"OK: {consumers} consumer{'s' if consumers != 1 else ''} checked, no errors")


@app.command("binlogs")
def binlogs_command(
    url: Url,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the daemon's JSON answer.")
    ] = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """List the consumers of a running daemon: state, position, queue, lag."""
    with errors_as_exit_codes():
        rows = call(DaemonAddress(url, token_file, ca), "/v1/binlogs")
        if as_json:
            typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        from rich.console import Console  # noqa: PLC0415

        try:
            table = _table(rows)
        except (KeyError, TypeError, ValueError):
            raise unexpected(url) from None
        console = Console()
        # Output to a file or a pipe need not fit a terminal.
        width = console.width if console.is_terminal else 200
        console.print(table, width=width)


@app.command("inspect")
def inspect_command(  # noqa: PLR0913 - one parameter per option
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="Binlog files in order, or - for standard input. Or a server: mysql://USER@HOST:PORT begins at its"
            " oldest file, mysql://USER@HOST:PORT/FILE at the named one.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per event and line.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print counts per table and the largest transactions.")
    ] = False,
    hexdump: Annotated[
        bool, typer.Option("--hexdump", help="Also print the bytes of each event.")
    ] = False,
    database: Annotated[
        list[str] | None, typer.Option(help="Only this database. Repeatable.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table: database.table or table. Repeatable.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Begin at a position (1234, binlog.000003:1234), at the first transaction of a GTID set, or at a"
            " time (ISO 8601, UTC by default).",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(help="End before this point; same forms as --start.", show_default=False),
    ] = None,
    invalid_dates: Annotated[
        str, typer.Option(help="Print invalid dates such as '0000-00-00' as: text, null or error.")
    ] = "text",
    follow: Annotated[
        bool,
        typer.Option("--follow", help="For a server: wait for new events at the end of its log."),
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(help="File that contains the password.", show_default=False)
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that contains the password.", show_default=False),
    ] = None,
    tls_mode: Annotated[
        str, typer.Option(help="disabled, preferred, required, verify_ca or verify_identity.")
    ] = "preferred",
    ca: Annotated[
        Path | None,
        typer.Option(
            help="For TLS: PEM file of the trusted certificate authorities.", show_default=False
        ),
    ] = None,
    server_public_key: Annotated[
        Path | None,
        typer.Option(
            help="Without TLS: PEM file of the server's RSA public key.", show_default=False
        ),
    ] = None,
    get_server_public_key: Annotated[
        bool,
        typer.Option(
            "--get-server-public-key", help="Without TLS: accept the key that the server sends."
        ),
    ] = False,
) -> None:
    """Print a binlog: events, positions, GTIDs, rows with column names.

    If an event cannot be read, everything before it is printed, then one error; the exit code is 2.
    """
    from dispatcher.inspect import command  # noqa: PLC0415

    with errors_as_exit_codes():
        login = command.Login(
            password_file, password_env, tls_mode, ca, server_public_key, get_server_public_key
        )
        options = command.parse_options(
            as_json=as_json, summary=summary, hexdump=hexdump, databases=database or (), tables=table or (),
            bounds=(start, stop), invalid_dates=invalid_dates,
        )  # fmt: skip
        code = command.run_inspection(logs, options, login, follow=follow)
    raise typer.Exit(code)


def _settings(
    config: list[Path], *, listen: str | None = None, log_level: str | None = None
) -> Settings:
    from dispatcher.settings.load import load_settings  # noqa: PLC0415

    overrides = {"api.listen": ("--listen", listen), "log.level": ("--log-level", log_level)}
    return load_settings(config, {key: o for key, o in overrides.items() if o[1] is not None})


def _exit_on(findings: list[str]) -> None:
    if findings:
        typer.echo("\n".join(findings), err=True)
        raise typer.Exit(EXIT_INPUT)


def _server_findings(settings: Settings) -> list[str]:
    """One line per error of a server or folder of files, in the order of the settings."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    groups: dict[object, list[str]] = {}
    for name, consumer in settings.consumers.items():
        groups.setdefault((consumer.connection_key, consumer.tls), []).append(name)

    def examine(names: list[str]) -> list[str]:
        errors = _examine([settings.consumers[name] for name in names])
        readers = f"(for consumers.{', consumers.'.join(names)})"
        return [f"{label}: {e.kind}: {e.what}; {e.remedy} {readers}" for label, e in errors]

    # In parallel, so that a server that does not answer does not delay the others.
    with ThreadPoolExecutor(min(len(groups), 16)) as pool:
        return [line for lines in pool.map(examine, groups.values()) for line in lines]


def _examine(consumers: list[ConsumerSettings]) -> list[tuple[str, BinlogError]]:
    """The errors of the source that these consumers share, each with the label of its host or folder."""
    from dispatcher.source.files.source import files_source  # noqa: PLC0415
    from dispatcher.source.mysql.login import endpoints_of  # noqa: PLC0415
    from dispatcher.source.mysql.server_facts import examine_hosts  # noqa: PLC0415

    first = consumers[0]
    if first.files is None:
        databases = [database for consumer in consumers for database in consumer.databases]
        return examine_hosts(endpoints_of(first), databases)
    try:
        files_source(first.files, UUID(int=0)).open(1)
    except BinlogError as error:
        return [(first.label, error)]
    return []


_STYLES = {
    "streaming": "green",
    "ended": "green",
    "failed": "red",
    "connecting": "yellow",
    "paused": "yellow",
    "closed": "yellow",
    "detached": "yellow",
}


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("consumer", "connection", "dispatcher", "state", "position"):
        table.add_column(heading)
    for heading in ("queue", "of", "unacknowledged", "lag s", "runway", "events/s"):
        table.add_column(heading, justify="right")
    table.add_column("last error")
    for row in rows:
        state = str(row["state"])
        table.add_row(
            escape(row["name"]),
            escape(row["binlog_client_name"]),
            escape(row["dispatcher_name"] or "-"),
            f"[{_STYLES.get(state, 'default')}]{escape(state)}[/]",
            escape(_position(row)),
            _size(row["bytes"]),
            _size(row["max_bytes"]),
            _size(row["unacknowledged_bytes"]),
            f"{row['lag_seconds']:.1f}",
            _duration(row["runway_seconds"]),
            f"{row['dispatcher_events_read_per_sec']:.0f}",
            escape(row["last_error"] or ""),
        )
    return table


def _position(row: dict[str, Any]) -> str:
    acknowledged = row["acknowledged"]
    if acknowledged is None:
        return "-"
    return f"{acknowledged['file']}:{acknowledged['offset']}"


def _duration(seconds: float | None) -> str:
    """`seconds`: None = unknown, or without an end."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
