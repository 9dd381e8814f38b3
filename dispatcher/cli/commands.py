"""The commands `run` and `inspect`, and the program that holds all commands."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli import binlogs, check, consumers, init, read, settings, state
from dispatcher.cli import compile as compile_kernels
from dispatcher.cli.calls import (
    Config,
    GetServerPublicKey,
    PasswordEnv,
    PasswordFile,
    TlsCa,
    TlsMode,
    errors_as_exit_codes,
    read_settings,
)
from dispatcher.terminal.output import say
from dispatcher.terminal.plain_help import PlainTyper

if TYPE_CHECKING:
    from dispatcher.settings.model import Settings

app = PlainTyper(
    name="binlog-dispatcher",
    help="One MySQL replication connection, fanned out to many consumers.",
    epilog="Exit codes: 0 success, 2 the input or the settings are wrong, 1 any other error.",
)


def main() -> None:
    app()


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # noqa: PLC0415

        say(f"binlog-dispatcher {version('binlog-dispatcher')}")
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
    """Disable garbage collection while the body imports modules, and exempt these modules from later collections.

    Imported modules stay in memory, and searching them for garbage makes the start about 10 % slower.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_command(
    config: Config,
    strict: Annotated[
        bool, typer.Option("--strict", help="Check the servers first; exit if one has an error.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address of the HTTP API; overrides api.listen."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="debug, info, warning or error; overrides log.level."),
    ] = None,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    Example: binlog-dispatcher run --config dispatcher.yaml

    SIGHUP makes it read the settings again.
    """
    with errors_as_exit_codes():

        def load() -> Settings:
            return read_settings(config, listen=listen, log_level=log_level)

        settings = load()
        if strict:
            check.exit_on_errors(settings)
        with _without_gc():
            from dispatcher import app as daemon  # noqa: PLC0415

        code = daemon.run_daemon(settings, load)
    raise typer.Exit(code)


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
        list[str] | None, typer.Option(metavar="NAME", help="Only this database. Repeatable.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this table: database.table or table. Repeatable."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="POINT",
            help="Begin at a position (1234, binlog.000003:1234), at the first transaction of a GTID set, or at a"
            " time (ISO 8601, UTC by default).",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            metavar="POINT",
            help="End before this point; same forms as --start.",
            show_default=False,
        ),
    ] = None,
    invalid_dates: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="Print invalid dates such as '0000-00-00' as: text, null or error.",
        ),
    ] = "text",
    follow: Annotated[
        bool,
        typer.Option("--follow", help="For a server: wait for new events at the end of its log."),
    ] = False,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    tls_mode: TlsMode = "preferred",
    ca: TlsCa = None,
    server_public_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Without TLS: PEM file of the server's RSA public key.",
            show_default=False,
        ),
    ] = None,
    get_server_public_key: GetServerPublicKey = False,
) -> None:
    """Print a binlog: events, positions, GTIDs, rows.

    Example: binlog-dispatcher inspect --table shop.orders binlog.000042

    If an event cannot be read, everything before it is printed, then one error; the exit code is 2.
    """
    from dispatcher.inspect import command  # noqa: PLC0415
    from dispatcher.mysql.server_address import Login  # noqa: PLC0415

    with errors_as_exit_codes():
        login = Login(
            password_file, password_env, tls_mode, ca, server_public_key, get_server_public_key
        )
        options = command.parse_options(
            as_json=as_json, summary=summary, hexdump=hexdump, databases=database or (), tables=table or (),
            bounds=(start, stop), invalid_dates=invalid_dates,
        )  # fmt: skip
        code = command.run_inspection(logs, options, login, follow=follow)
    raise typer.Exit(code)


app.command("init")(init.init_command)
app.command("run")(run_command)
app.command("check")(check.check_command)
app.command("compile")(compile_kernels.compile_command)
app.command("binlogs")(binlogs.binlogs_command)
app.command("top")(binlogs.top_command)
app.add_typer(consumers.app, name="consumers")
app.add_typer(settings.app, name="settings")
app.add_typer(state.app, name="state")
app.command("inspect")(inspect_command)
app.command("read")(read.read_command)
