"""The command line. Exit codes: 0 fine, 2 the user's input or settings, 1 anything else.

Expected faults end in their one line on stderr, never in a traceback. What a command needs is
imported when it runs, so that `--help` does not wait for a database driver and a web server.
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
from dispatcher.calls import EXIT_INPUT, Ca, DaemonAddress, TokenFile, Url, call, faults, unexpected
from dispatcher.model.errors import BinlogError

if TYPE_CHECKING:
    from rich.table import Table

    from dispatcher.settings.model import ConsumerSettings, Settings

# Typer's own tracebacks would show local variables, and with them passwords.
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
        help="YAML file, or a folder of them; may be given several times, later ones win.",
        show_default=False,
    ),
]


def main() -> None:
    app()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"binlog-dispatcher {version('binlog-dispatcher')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which, and end."),
    ] = False,
) -> None:
    pass


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """What an import makes stays: looking for garbage in it makes a start a tenth longer, and each later look too."""
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
        bool, typer.Option("--strict", help="Check the servers first; any finding ends it.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option(help="host:port of the HTTP API, instead of api.listen.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error, instead of log.level.")
    ] = None,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C. SIGHUP reads the settings again."""
    with faults():

        def load() -> Settings:
            return _settings(config, listen=listen, log_level=log_level)

        settings = load()
        if strict:
            _end_on(_server_findings(settings))
        with _nothing_collected():
            from dispatcher import app as daemon  # noqa: PLC0415

        code = daemon.run_daemon(settings, load)
    raise typer.Exit(code)


@app.command("check")
def check_command(config: Config) -> None:
    """Check the settings, then all servers that they name, and say everything that is wrong."""
    with faults():
        settings = _settings(config)
        from dispatcher.settings.exposure import password_warnings  # noqa: PLC0415

        for warning in (*settings.warnings, *password_warnings(settings.consumers)):
            typer.echo(f"warning: {warning}", err=True)
        _end_on(_server_findings(settings))
        consumers = len(settings.consumers)
        typer.echo(f"fine: {consumers} consumer{'s' if consumers != 1 else ''}, no findings")


@app.command("binlogs")
def binlogs_command(
    url: Url,
    as_json: Annotated[bool, typer.Option("--json", help="The daemon's answer as it is.")] = False,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Show the daemon's consumers: states, queues, lags."""
    with faults():
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
        # Piped to a file or another program there is no width to keep to.
        width = console.width if console.is_terminal else 200
        console.print(table, width=width)


@app.command("inspect")
def inspect_command(  # noqa: PLR0913 - one parameter per option
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="Binlog files in order, - for standard input; or a server: mysql://USER@HOST:PORT from its"
            " oldest file on, mysql://USER@HOST:PORT/FILE from that one.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per event and line.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Counts per table, the largest transactions.")
    ] = False,
    hexdump: Annotated[
        bool, typer.Option("--hexdump", help="The bytes of each event too.")
    ] = False,
    database: Annotated[
        list[str] | None, typer.Option(help="Only what concerns this database; repeatable.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only what concerns this table, database.table or table; repeatable."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Begin at a position (1234, binlog.000003:1234), the first transaction of a GTID set,"
            " or a time (ISO 8601; UTC unless it says otherwise).",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        str | None, typer.Option(help="End before it; written like --start.", show_default=False)
    ] = None,
    invalid_dates: Annotated[
        str, typer.Option(help="What '0000-00-00' and the like become: text, null or error.")
    ] = "text",
    follow: Annotated[
        bool, typer.Option("--follow", help="Of a server: go on at the end of its log.")
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(help="File with the account's password.", show_default=False)
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the account's password.", show_default=False),
    ] = None,
    tls_mode: Annotated[
        str, typer.Option(help="disabled, preferred, required, verify_ca or verify_identity.")
    ] = "preferred",
    ca: Annotated[
        Path | None, typer.Option(help="PEM file of whom to trust for TLS.", show_default=False)
    ] = None,
    server_public_key: Annotated[
        Path | None,
        typer.Option(help="Without TLS: PEM file with the server's RSA key.", show_default=False),
    ] = None,
    get_server_public_key: Annotated[
        bool,
        typer.Option("--get-server-public-key", help="Without TLS: take the key that it sends."),
    ] = False,
) -> None:
    """Print a binlog: events, positions, GTIDs, rows with their columns' names.

    What cannot be read ends in one message and exit code 2, after everything before it was printed.
    """
    from dispatcher.inspect import command  # noqa: PLC0415

    with faults():
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

    options = {"api.listen": ("--listen", listen), "log.level": ("--log-level", log_level)}
    return load_settings(
        config, {key: given for key, given in options.items() if given[1] is not None}
    )


def _end_on(findings: list[str]) -> None:
    if findings:
        typer.echo("\n".join(findings), err=True)
        raise typer.Exit(EXIT_INPUT)


def _server_findings(settings: Settings) -> list[str]:
    """One line for each thing that is wrong with a server or a folder of files, in the order of the settings."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    groups: dict[object, list[str]] = {}
    for name, consumer in settings.consumers.items():
        groups.setdefault((consumer.connection_key, consumer.tls), []).append(name)
    readers = list(groups.values())

    def findings(names: list[str]) -> list[tuple[str, BinlogError]]:
        return _examine([settings.consumers[name] for name in names])

    # Side by side: one server that does not answer must not hold up what is to be said of the
    # others.
    with ThreadPoolExecutor(min(len(readers), 16)) as pool:
        found = list(pool.map(findings, readers))
    return [
        f"{label}: {error.kind}: {error.what}; {error.remedy}"
        f" (for consumers.{', consumers.'.join(names)})"
        for names, errors in zip(readers, found, strict=True)
        for label, error in errors
    ]


def _examine(consumers: list[ConsumerSettings]) -> list[tuple[str, BinlogError]]:
    """What is wrong with the source that these consumers share, each with the label of its host or folder."""
    from dispatcher.source.files.source import files_source  # noqa: PLC0415
    from dispatcher.source.mysql.login import endpoints_of  # noqa: PLC0415
    from dispatcher.source.mysql.server_facts import examine_hosts  # noqa: PLC0415

    one = consumers[0]
    if one.files is None:
        databases = [database for consumer in consumers for database in consumer.databases]
        return examine_hosts(endpoints_of(one), databases)
    try:
        files_source(one.files, UUID(int=0)).open(1)
    except BinlogError as error:
        return [(one.label, error)]
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
    """None: no end is known."""
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
