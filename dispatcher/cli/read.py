"""The command `read`: changes of a daemon's consumer, a server or a folder of files as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from dispatcher.cli.calls import (
    URL_VARIABLE,
    Ca,
    DaemonAddress,
    PasswordEnv,
    PasswordFile,
    TlsMode,
    TokenFile,
    call,
    consumer_row,
    errors_as_exit_codes,
    parse_place,
    unexpected,
)
from dispatcher.cli.kernel_loads import load_with_progress, read_each_type
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.server_address import (
    Login,
    parse_address,
    password_of,
    refused_login_as_input,
    secret_of_options,
    wrong,
)
from dispatcher.terminal.output import say

if TYPE_CHECKING:
    from dispatcher.library.options import StartAt
    from dispatcher.reader.change_lines import LineForm, MaskedColumn
    from dispatcher.reader.change_sources import ChangeSource

_FILES = "files:"
_MARIADB_GTID = re.compile(r"\d+-\d+-\d+(,|\Z)")
_FORMS = "write the name of a consumer, mysql://user@host:3306/shop,billing.orders, or files:FOLDER"
# How much longer a call may take than the time for which the daemon waits for transactions.
_CALL_S = 60.0

Run = Callable[["ChangeSource"], Awaitable[None]]


def read_command(  # noqa: PLR0913 - one parameter per option
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A consumer of a running daemon, by its name (needs --url). Or a server without a daemon:"
            " mysql://USER@HOST:PORT/DATABASES, with names or patterns of databases and tables, such as"
            " shop,billing.orders. Or a folder of binlog files: files:FOLDER.",
            show_default=False,
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=URL_VARIABLE,
            help="URL of the daemon, such as http://127.0.0.1:8085; of several daemons all, with commas.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Begin at earliest, latest, a position (binlog.000003:1234), an executed GTID set, or a time (ISO"
            " 8601, UTC by default). Default: for a consumer where its reader stopped; for a server latest; for files"
            " earliest; with --state where the last run stopped.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="End at the present end of the log. Default: wait for more."),
    ] = False,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Of a consumer only this table: database.table or a pattern. Repeatable.",
        ),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schema", help="Also print a line with a table's columns and types.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORM",
            help="plain, or debezium: the envelope of Debezium's MySQL connector.",
        ),
    ] = "plain",
    masks: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="COLUMN=FORM",
            help="Mask a column, such as shop.users.email=sha256. Forms: sha256, null, last4 (its last characters) and"
            " keyed (a hash with a secret). Repeatable.",
        ),
    ] = None,
    mask_if_exists: Annotated[
        bool,
        typer.Option(
            "--mask-if-exists",
            help="Let a table lack a masked column, such as one that was added or renamed later. Default: end with an"
            " error before a row of such a table is printed.",
        ),
    ] = False,
    mask_secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File that contains the secret of the masks keyed, at least 16 characters.",
            show_default=False,
        ),
    ] = None,
    mask_secret_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable that contains the secret of the masks keyed.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="COMMAND",
            help="Give the lines to this shell command instead of printing them, some transactions at a time. Exit"
            " code 0 acknowledges them; after another code the command gets them again.",
            show_default=False,
        ),
    ] = None,
    no_ack: Annotated[
        bool,
        typer.Option("--no-ack", help="Acknowledge nothing: read beside a consumer's own reader."),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For a server or files: store the position in this file, and continue there at the next run.",
            show_default=False,
        ),
    ] = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    tls_mode: TlsMode = "preferred",
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Print changes as lines of JSON.

    There is a line per changed row and per DDL statement.

    Example: binlog-dispatcher read mysql://repl@db1/shop --from earliest --once

    Changes are acknowledged after they were written. Ctrl-C and a closed pipe end the command with exit code 0.
    """
    from dispatcher.reader.change_lines import ChangeLines  # noqa: PLC0415
    from dispatcher.reader.outputs import CommandOutput, LineOutput, StreamOutput  # noqa: PLC0415
    from dispatcher.reader.read import copy_changes, end_at_signals  # noqa: PLC0415

    output: LineOutput = (
        StreamOutput(sys.stdout.buffer) if command is None else CommandOutput(command)
    )

    async def run(opened: ChangeSource) -> None:
        lines = ChangeLines(
            tables or (),
            lower_case_table_names=opened.lower_case_table_names,
            schemas=schemas,
            masks=masked,
            masks_may_lack=mask_if_exists,
            form=line_form,
        )
        await copy_changes(opened, lines, output, once=once)

    async def until_ended(read: Callable[[Run], Awaitable[None]]) -> None:
        end_at_signals()
        with suppress(asyncio.CancelledError):
            await read(run)

    with errors_as_exit_codes():
        masked = _masked_columns(masks or (), mask_secret_file, mask_secret_env)
        line_form = _line_form(form, source, schemas=schemas)
        place = None if start is None else parse_place(start, "--from")
        if source.startswith(("mysql://", _FILES)):
            if no_ack:
                raise wrong("--no-ack is for a consumer", "leave out --state to store nothing")
            if tables:
                raise wrong("--table is for a consumer", f"name tables in the address: {_FORMS}")
            login = Login(password_file, password_env, tls_mode, ca)
            from dispatcher.stream.warmup import KERNEL_LOADS  # noqa: PLC0415

            splitting = KERNEL_LOADS  # without a daemon, this program splits the log
            read = partial(_read_directly, source, place, state, login, once=once)
        else:
            if state is not None:
                raise wrong("--state is for a server or files", "a daemon stores the position")
            if url is None:
                what = f"{source!r} would be a consumer of a daemon, but --url is missing"
                raise wrong(what, f"pass --url or set {URL_VARIABLE}; or {_FORMS}")
            address, splitting = DaemonAddress(url, token_file, ca), ()
            _say_reader(consumer_row(address, source), acknowledges=not no_ack)
            read = partial(
                _read_consumer,
                address,
                source,
                place,
                tables or (),
                acknowledges=not no_ack,
                once=once,
            )
        try:
            load_with_progress([*splitting, read_each_type])
            asyncio.run(until_ended(read))
        except BrokenPipeError:
            # When Python exits, it flushes standard output once more. This flush must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line_form(form: str, source: str, *, schemas: bool) -> LineForm:
    """Returns the form of `--format`. Raises `UserError`."""
    from dispatcher.reader.change_lines import PlainForm  # noqa: PLC0415
    from dispatcher.reader.debezium_lines import DebeziumForm  # noqa: PLC0415

    if form == "plain":
        return PlainForm()
    if form != "debezium":
        raise wrong(f"--format {form!r}", "use plain or debezium")
    if schemas:
        raise wrong("--schema is for --format plain", "leave out one of them")
    if source.startswith(_FILES):
        return DebeziumForm("files")
    if source.startswith("mysql://"):
        return DebeziumForm(parse_address(source, _FORMS)[1])
    return DebeziumForm(source)


def _masked_columns(
    texts: Sequence[str], secret_file: Path | None, secret_env: str | None
) -> list[MaskedColumn]:
    """Returns the columns of `--mask`. Raises `UserError`."""
    from dispatcher.binlog.table_map.column_types import Mask, MaskForm  # noqa: PLC0415
    from dispatcher.reader.change_lines import MaskedColumn  # noqa: PLC0415

    found = []
    for text in texts:
        name, _, form = text.rpartition("=")
        table, _, column = name.rpartition(".")
        if table.count(".") != 1 or not column or form not in set(MaskForm):
            what = f"--mask {text!r} is not COLUMN=FORM"
            raise wrong(
                what, "write it like shop.users.email=sha256; forms: " + ", ".join(MaskForm)
            )
        is_keyed = form == MaskForm.KEYED
        secret = _mask_secret(secret_file, secret_env) if is_keyed else b""
        found.append(MaskedColumn(table, column, Mask(MaskForm(form), secret)))
    return found


def _mask_secret(file: Path | None, variable: str | None) -> bytes:
    """Returns the secret of the masks `keyed`. Raises `UserError`."""
    from dispatcher.binlog.table_map.column_types import MASK_SECRET_MIN  # noqa: PLC0415

    secret = secret_of_options("mask-secret", file, variable)
    if secret is None:
        raise wrong(
            "the mask keyed needs one secret", "pass --mask-secret-file or --mask-secret-env"
        )
    if len(secret.strip()) < MASK_SECRET_MIN:
        raise wrong(
            f"the secret of --mask has fewer than {MASK_SECRET_MIN} characters",
            "use a longer one",
        )
    return secret.encode()


def _say_reader(row: dict[str, Any], *, acknowledges: bool) -> None:
    """Warn if another reader reads the consumer: the session of this command ends that reader's session."""
    if acknowledges and row.get("reader") == "waiting":
        name, by = row["name"], row.get("reader_address") or "another program"
        say(
            f"warning: {by} reads {name} now, and its session ends; to read beside it: --no-ack",
            err=True,
        )


def _say_missing(findings: Iterable[BinlogError]) -> None:
    for error in findings:
        say(f"warning: {error.what}; waiting for changes of this name", err=True)


async def _read_consumer(
    address: DaemonAddress,
    name: str,
    place: str | dict[str, Any] | None,
    tables: Sequence[str],
    run: Run,
    *,
    acknowledges: bool,
    once: bool,
) -> None:
    from dispatcher.reader.change_sources import WAIT_S, DaemonConsumer  # noqa: PLC0415

    def send(operation: str, body: dict[str, Any]) -> Any:
        path = f"/v1/consumers/{quote(name, safe='')}/{operation}"
        read = _answer_and_bytes if operation == "read" else json.load
        return call(address, path, body, timeout_s=WAIT_S + _CALL_S, read=read)

    consumer = DaemonConsumer(
        send, acknowledges=acknowledges, start=place, wait_s=1.0 if once else WAIT_S
    )
    try:
        await consumer.open()
    except (KeyError, TypeError):
        raise unexpected(address.url) from None
    try:
        _say_missing(_unknown_tables(address, name, tables))
        await run(consumer)
    finally:
        await consumer.close()


def _unknown_tables(
    address: DaemonAddress, consumer: str, tables: Sequence[str]
) -> Iterator[BinlogError]:
    """Yields the daemon's error for each table, which is no pattern, that the server lacks."""
    from dispatcher.model.subscription import is_pattern  # noqa: PLC0415

    for table in tables:
        if is_pattern(table):
            continue
        names = f"{quote(consumer, safe='')}/tables/{quote(table, safe='')}"
        try:
            call(address, f"/v1/consumers/{names}")
        except BinlogError as error:
            if error.kind is ErrorKind.UNKNOWN_TABLE:
                yield error


def _answer_and_bytes(answer: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    return json.loads(answer.readline()), answer.read()


async def _read_directly(
    source: str,
    place: str | dict[str, Any] | None,
    state: Path | None,
    login: Login,
    run: Run,
    *,
    once: bool,
) -> None:
    from dispatcher.library.client import BinlogClient  # noqa: PLC0415
    from dispatcher.mysql.login import Endpoint, Tls, TlsMode  # noqa: PLC0415
    from dispatcher.reader.change_sources import WAIT_S, LibraryBinlog  # noqa: PLC0415
    from dispatcher.source.mysql.examination import missing_names  # noqa: PLC0415
    from dispatcher.yaml_settings.section import HostPort  # noqa: PLC0415

    limits: dict[str, Any] = {}
    missing: Callable[[], list[BinlogError]] = list
    if source.startswith(_FILES):
        folder = source.removeprefix(_FILES)
        databases = ["*"]
        begin = "earliest"
        client = BinlogClient(state=state, files={"path": folder, "follow": not once})
    else:
        user, host, port, names = parse_address(source, _FORMS)
        databases, tables = _selection(names)
        limits = {"tables": tables} if tables else {}
        begin = "latest"
        tls: Any = {"mode": login.tls_mode} | ({} if login.ca is None else {"ca": str(login.ca)})
        password = password_of(login, user, host)
        client = BinlogClient(
            f"{user}@{HostPort(host=host, port=port)}", state=state, password=password, tls=tls
        )
        pairs = [(d, t) for d, _, t in (name.partition(".") for name in tables)]

        def missing() -> list[BinlogError]:
            tls = Tls(TlsMode(login.tls_mode), login.ca)
            return missing_names(
                Endpoint(host, port, user, password, tls), databases, pairs or None
            )

    start = _start_at(begin if place is None else place)
    # The client logs why it cannot connect, and then raises the same error.
    log = logging.getLogger("dispatcher")
    log.addHandler(logging.NullHandler())
    with refused_login_as_input(login):
        async with client:
            binlog = await client.create_binlog("read", databases, start=start, **limits)
            log.addHandler(logging.StreamHandler())
            _say_missing(await asyncio.to_thread(missing))
            wait_s = 1.0 if once else WAIT_S
            await run(LibraryBinlog(binlog, acknowledges=state is not None, wait_s=wait_s))


def _selection(names: str) -> tuple[list[str], list[str]]:
    """Returns the databases and the tables that an address's path names. No tables, (), means all tables of the
    databases."""
    given = [name for name in names.strip("/").split(",") if name]
    tables = [name for name in given if "." in name]
    whole = [name for name in given if "." not in name]
    databases = list(dict.fromkeys([*whole, *(name.partition(".")[0] for name in tables)]))
    if tables:
        tables += [f"{name}.*" for name in whole]
    return databases or ["*"], tables


def _start_at(place: str | dict[str, Any]) -> StartAt:
    """Returns a place in the form of the library. Raises `UserError`."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from dispatcher.model.gtid import GtidSet, MariadbGtids  # noqa: PLC0415
    from dispatcher.yaml_settings.values import parse_timestamp  # noqa: PLC0415

    if isinstance(place, str):
        return "earliest" if place == "earliest" else "latest"
    if "gtid" in place:
        text = place["gtid"]
        try:
            parse = MariadbGtids.parse if _MARIADB_GTID.match(text) else GtidSet.parse
            return parse(text)
        except BinlogError as error:
            raise wrong(f"--from: {error.what}", error.remedy or "") from None
    if "timestamp" in place:
        try:
            micros = parse_timestamp(place["timestamp"])
        except ValueError as error:
            raise wrong(f"--from: {error}", "write it like 2026-01-31T12:00:00Z") from None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return place["file"], place["offset"]
