"""The command `init`: examines a server, prints or applies the settings that the server lacks, creates the daemon's
account, and writes the daemon's settings.

The password of the account is made here and written into a file that only its owner can read. It is never printed,
because other people may see the terminal, its history and a recording of a CI job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.calls import (
    EXIT_FAULT,
    GetServerPublicKey,
    PasswordEnv,
    PasswordFile,
    TlsCa,
    TlsMode,
    errors_as_exit_codes,
)
from dispatcher.model.errors import BinlogError
from dispatcher.model.sizes import duration_text, size_text
from dispatcher.mysql.server_address import (
    Login,
    parse_address,
    password_of,
    refused_login_as_input,
    wrong,
)
from dispatcher.terminal.output import say, say_lines

if TYPE_CHECKING:
    from dispatcher.cli.init_text import Files
    from dispatcher.mysql.databases import DatabaseSize
    from dispatcher.mysql.driver import Connection
    from dispatcher.mysql.login import Endpoint
    from dispatcher.mysql.server_facts import ServerFacts
    from dispatcher.mysql.server_settings import SettingChange

_FORM = (
    "write it like mysql://root@db1:3306, or mysql://root@db1:3306/shop,billing for some databases"
)
_ANSWER_S = 60.0
_DATABASES_SHOWN = 20


def init_command(  # noqa: PLR0913 - one parameter per option
    server: Annotated[
        str,
        typer.Argument(
            metavar="SERVER",
            help="mysql://USER@HOST:PORT, or mysql://USER@HOST:PORT/DATABASES with names or patterns, such as"
            " shop,billing_*. The user is an administrator; the daemon gets an account of its own.",
            show_default=False,
        ),
    ],
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Change the server's settings and create the account."),
    ] = False,
    mirror: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Also write mirror.yaml, for Delta tables in this folder.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Write the files into this folder.")
    ] = Path(),
    account: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the daemon's account.")
    ] = "repl",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only ask and print: write and change nothing.")
    ] = False,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    tls_mode: TlsMode = "preferred",
    ca: TlsCa = None,
    get_server_public_key: GetServerPublicKey = False,
) -> None:
    """Prepare a server and write the daemon's settings.

    Example: binlog-dispatcher init mysql://root@db1/shop --apply

    Without --apply the statements are written into init.sql, for an administrator. The new account's password is
    written into repl.password and never printed. Existing files and accounts are never changed.
    """
    with errors_as_exit_codes():
        login = Login(password_file, password_env, tls_mode, ca, None, get_server_public_key)
        with refused_login_as_input(login):
            done = _init(server, login, _Wanted(folder, account, mirror or "", apply, dry_run))
    if not done:
        raise typer.Exit(EXIT_FAULT)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options. `target`: the mirror's target, or ""."""

    folder: Path
    account: str
    target: str
    apply: bool
    dry_run: bool

    @property
    def adds_mirror(self) -> bool:
        """True if the folder has the settings of a daemon, and only those of a mirror are to be written."""
        from dispatcher.cli import init_text  # noqa: PLC0415

        return bool(self.target) and (self.folder / init_text.SETTINGS_FILE).exists()


def _init(url: str, login: Login, wanted: _Wanted) -> bool:
    """Returns False if --apply could not do everything. Raises BinlogError."""
    from dispatcher.cli.init_text import Files, databases_of, unknown_databases  # noqa: PLC0415
    from dispatcher.model.nearest import did_you_mean  # noqa: PLC0415
    from dispatcher.mysql.databases import read_database_sizes  # noqa: PLC0415
    from dispatcher.mysql.login import connect  # noqa: PLC0415
    from dispatcher.mysql.server_facts import read_variables, refuse_service  # noqa: PLC0415
    from dispatcher.mysql.server_settings import needed_changes  # noqa: PLC0415

    if wanted.apply and wanted.dry_run:
        raise wrong("both --apply and --dry-run", "use one of them")
    administrator, names = _address(url, login, wanted.account)
    _refuse_existing(wanted)
    with closing(connect(administrator, timeout_s=_ANSWER_S)) as connection:
        refuse_service(connection)
        facts = read_variables(connection)
        found = read_database_sizes(connection)
        existing = [each.name for each in found]
        databases = databases_of(names, existing)
        files = Files(
            replace(administrator, user=wanted.account), _version(facts), databases, wanted.target
        )
        _say_server(administrator, facts, found)
        for name in unknown_databases(names, existing):
            hint = did_you_mean(name, existing)
            say(
                f"  warning: the server has no database {name}; the settings name it all the same{hint}"
            )
        changes = needed_changes(facts)
        if wanted.adds_mirror:
            _add_mirror(connection, facts, files, wanted)
            return True
        _say_changes(changes, apply=wanted.apply)
        _refuse_account(connection, wanted)
        return _carry_out(connection, administrator, facts, changes, files, wanted)


def _address(url: str, login: Login, account: str) -> tuple[Endpoint, list[str]]:
    """Returns the administrator's login, and the databases of the address."""
    from dispatcher.mysql.account import ACCOUNT_NAME  # noqa: PLC0415
    from dispatcher.mysql.login import Endpoint, Tls, TlsMode  # noqa: PLC0415

    if not ACCOUNT_NAME.match(account):
        rule = "use at most 32 letters, digits, '_', '.' and '-'"
        raise wrong(f"--account: {account!r} is not a name for an account", rule)
    if login.tls_mode not in tuple(TlsMode):
        raise wrong(f"--tls-mode: {login.tls_mode!r}", f"use one of {', '.join(TlsMode)}")
    user, host, port, rest = parse_address(url, _FORM)
    tls = Tls(
        TlsMode(login.tls_mode), login.ca, allow_public_key_retrieval=login.get_server_public_key
    )
    endpoint = Endpoint(host, port, user, password_of(login, user, host), tls)
    return endpoint, [name for name in rest.split(",") if name]


def _refuse_existing(wanted: _Wanted) -> None:
    """Raise UserError if one of the files to write already exists."""
    from dispatcher.cli import init_text  # noqa: PLC0415

    names = [init_text.MIRROR_FILE] if wanted.target else []
    if not wanted.adds_mirror:
        names += [init_text.SETTINGS_FILE, init_text.PASSWORD_FILE]
        names += [] if wanted.apply else [init_text.SQL_FILE]
    for name in names if not wanted.dry_run else ():
        if (wanted.folder / name).exists():
            what = f"{wanted.folder / name} exists already"
            raise wrong(
                what, "init overwrites nothing: name another folder with --folder, or remove it"
            )


# -- what the server is ----------------------------------------------------------------------------------------


def _version(facts: ServerFacts) -> str:
    kind = "MariaDB" if facts.flavour == "mariadb" else "MySQL"
    version = facts.version.partition("-")[0]
    return f"{facts.service.name or kind} {version}"


def _say_server(server: Endpoint, facts: ServerFacts, databases: Sequence[DatabaseSize]) -> None:
    kept = (
        "for ever" if facts.expire_seconds is None else f"for {duration_text(facts.expire_seconds)}"
    )
    gtids = "" if facts.flavour == "mariadb" else f", GTIDs {(facts.gtid_mode or 'off').lower()}"
    log = f", binlogs are kept {kept}" if facts.log_bin else ""
    say(f"{server.label.rpartition('@')[2]}: {_version(facts)}{gtids}{log}")
    if not databases:
        say("  no databases yet")
    width = max((len(each.name) for each in databases[:_DATABASES_SHOWN]), default=0)
    for each in databases[:_DATABASES_SHOWN]:
        tables = f"{each.tables} table{'s' if each.tables != 1 else ''}"
        say(f"  {each.name:{width}}  {tables:>12}  {size_text(each.size):>10}")
    if len(databases) > _DATABASES_SHOWN:
        say(f"  and {len(databases) - _DATABASES_SHOWN} more")


def _say_changes(changes: Sequence[SettingChange], *, apply: bool) -> None:
    say("")
    say("Settings of the server:" if changes else "The settings of the server need no change.")
    for change in changes:
        say(f"  {change.what}")
        by_init = apply and change.statement
        say(f"    {'apply' if by_init else 'do'}: {change.remedy}")


# -- doing it ----------------------------------------------------------------------------------------------------


def _carry_out(
    connection: Connection,
    administrator: Endpoint,
    facts: ServerFacts,
    changes: Sequence[SettingChange],
    files: Files,
    wanted: _Wanted,
) -> bool:
    from dispatcher.cli import init_text  # noqa: PLC0415
    from dispatcher.mysql.account import account_statements, random_password  # noqa: PLC0415

    password = random_password()
    account = account_statements(
        facts,
        wanted.account,
        password,
        files.databases,
        copies=bool(files.target),
        partial_revokes=_partial_revokes(connection),
    )
    say("")
    say("The account of the daemon:")
    for statement in account:
        say(f"  {_without(password, statement)};")
    texts = {init_text.PASSWORD_FILE: password + "\n", init_text.SETTINGS_FILE: files.settings()}
    if files.target:
        texts[init_text.MIRROR_FILE] = files.mirror()
    if not wanted.apply:
        texts[init_text.SQL_FILE] = init_text.sql_text(changes, account)
    if wanted.dry_run:
        _say_files(texts, password)
        return True
    with _written(wanted.folder, texts):
        if wanted.apply:
            say("")
            for statement in [each.statement for each in changes if each.statement] + account:
                _execute(connection, statement, password)
                say(f"done: {_without(password, statement)}")
    say("")
    into = "" if wanted.folder == Path() else f" into {wanted.folder}"
    say(f"Written{into}: {', '.join(texts)}")
    remaining = _examined(files, password) if wanted.apply else []
    options = [each.option for each in changes if each.option]
    _say_next(files, wanted, administrator, options, remaining)
    return not remaining


def _add_mirror(connection: Connection, facts: ServerFacts, files: Files, wanted: _Wanted) -> None:
    """Write mirror.yaml beside the settings of a daemon, and print what the daemon's settings and account need."""
    from dispatcher.cli import init_text  # noqa: PLC0415
    from dispatcher.mysql.account import account_statements, random_password  # noqa: PLC0415

    password = random_password()  # of the statement that creates the account, which is left out
    _, *grants = account_statements(
        facts,
        wanted.account,
        password,
        files.databases,
        copies=True,
        partial_revokes=_partial_revokes(connection),
    )
    settings = wanted.folder / init_text.SETTINGS_FILE
    say("")
    say(f"{settings} exists and stays as it is.")
    texts = {init_text.MIRROR_FILE: files.mirror()}
    if wanted.dry_run:
        _say_files(texts, password)
    else:
        with _written(wanted.folder, texts):
            for statement in grants if wanted.apply else ():
                _execute(connection, statement, password)
                say(f"done: {statement}")
        say(f"Written: {wanted.folder / init_text.MIRROR_FILE}")
    say("")
    if not wanted.apply:
        say("The account of the daemon needs these privileges (init --apply grants them):")
        for statement in grants:
            say(f"  {statement};")
    if not (wanted.folder / init_text.PASSWORD_FILE).exists():
        say(f"Write the password of the account into {wanted.folder / init_text.PASSWORD_FILE}.")
    if not _has_key(settings, init_text.MIRROR):
        say(f"Put this line under `consumers` of {settings}, and end and start the daemon:")
        say(files.consumer(init_text.MIRROR))
    _say_commands(files, wanted)


def _has_key(settings: Path, key: str) -> bool:
    """True if a line of a YAML file begins with a key."""
    lines = settings.read_text(encoding="utf-8").splitlines()
    return any(line.strip().startswith(f"{key}:") for line in lines)


def _say_files(texts: dict[str, str], password: str) -> None:
    from dispatcher.cli.init_text import PASSWORD_FILE  # noqa: PLC0415

    for name, text in texts.items():
        if name != PASSWORD_FILE:
            say("")
            say(f"{name}:")
            say_lines(_without(password, text).rstrip())


@contextmanager
def _written(folder: Path, texts: dict[str, str]) -> Iterator[None]:
    """Create the files, which must not exist; only their owner can read them. If the body fails, remove them again."""
    made: list[Path] = []
    try:
        for name, text in texts.items():
            path = folder / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise wrong(
                    f"cannot write {path}: {error.strerror}", "name another --folder"
                ) from None
            made.append(path)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        yield
    except BaseException:
        for path in made:
            path.unlink()
        raise


def _partial_revokes(connection: Connection) -> bool:
    from dispatcher.mysql.answers import ask, text_value  # noqa: PLC0415

    query = "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'"
    return ask(connection, query, lambda row: text_value(row[1])) == ["ON"]


def _refuse_account(connection: Connection, wanted: _Wanted) -> None:
    """Raise UserError if the account exists; with --dry-run only say so. Does nothing if the administrator may not read
    the accounts."""
    from dispatcher.mysql.answers import ask, number_value  # noqa: PLC0415
    from dispatcher.mysql.error_map import is_refusal  # noqa: PLC0415

    query = "SELECT COUNT(*) FROM mysql.user WHERE User = %s AND Host = '%%'"
    account = wanted.account
    try:
        (number,) = ask(connection, query, lambda row: number_value(row[0]), (account,))
    except BinlogError as error:
        if not is_refusal(error):
            raise
        return
    if number:
        remedy = f"name another account with --account, or remove it: DROP USER '{account}'@'%'"
        what = f"the account '{account}'@'%' exists already"
        if not wanted.dry_run:
            raise wrong(what, remedy)
        say("")
        say(f"{what}: without --dry-run, init ends here; {remedy}")


def _execute(connection: Connection, statement: str, password: str) -> None:
    """Raises BinlogError without the password: the server may quote a statement in its error."""
    from dispatcher.mysql.answers import fetch  # noqa: PLC0415

    try:
        fetch(connection, statement)
    except BinlogError as error:
        what = f"{_without(password, statement)}: {_without(password, error.what)}"
        remedy = (
            f"{error.remedy}; what is listed above as done stays, and the files were removed again"
        )
        raise BinlogError(error.kind, what, where=error.where, remedy=remedy) from None


def _without(password: str, text: str) -> str:
    from dispatcher.cli.init_text import PASSWORD_FILE  # noqa: PLC0415

    return text.replace(password, f"<the content of {PASSWORD_FILE}>")


def _examined(files: Files, password: str) -> list[BinlogError]:
    """Log in with the new account, as the daemon does. Returns the errors that would make the daemon fail."""
    from dispatcher.model.subscription import is_pattern  # noqa: PLC0415
    from dispatcher.mysql.login import connect  # noqa: PLC0415
    from dispatcher.mysql.server_settings import examine  # noqa: PLC0415

    named = [name for name in files.databases if not is_pattern(name)]
    try:
        with closing(connect(replace(files.server, password=password))) as connection:
            return examine(connection, named)
    except BinlogError as error:
        return [error]


def _say_next(
    files: Files,
    wanted: _Wanted,
    administrator: Endpoint,
    options: Sequence[str],
    remaining: Sequence[BinlogError],
) -> None:
    """`options`: lines of the server's option file; `remaining`: the errors that would make the daemon fail."""
    from dispatcher.cli.init_text import SQL_FILE  # noqa: PLC0415

    if options:
        say("")
        say("Put these lines into the server's option file, so that they last after a restart:")
        for line in ("[mysqld]", *options):
            say(f"  {line}")
    say("")
    if remaining:
        say("The daemon cannot read the server yet:")
        for error in remaining:
            say(f"  {error.what}: {error.remedy}")
    if not wanted.apply:
        server = f"-h {administrator.host} -P {administrator.port} -u {administrator.user}"
        say("First, as an administrator (or run init with --apply):")
        say(f"  mysql {server} -p < {wanted.folder / SQL_FILE}")
    _say_commands(files, wanted)


def _say_commands(files: Files, wanted: _Wanted) -> None:
    say(f"Next{'' if wanted.folder == Path() else f', in {wanted.folder}'}:")
    for command in files.commands():
        say(f"  {command}")
