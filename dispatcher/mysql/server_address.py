"""The address of a server and its password, as a person gives them on a command line."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from dispatcher.model.errors import BinlogError, ErrorKind, UserError

SCHEME = "mysql://"
ADDRESS_REMEDY = "write it like mysql://user@host:3306 or mysql://user@host:3306/binlog.000003"


@dataclass(frozen=True, slots=True)
class Login:
    """The options for the login at a server."""

    password_file: Path | None = None
    password_env: str | None = None
    tls_mode: str = "preferred"
    ca: Path | None = None
    server_public_key: Path | None = None
    get_server_public_key: bool = False

    @property
    def has_password(self) -> bool:
        return self.password_file is not None or self.password_env is not None


def wrong(what: str, remedy: str) -> UserError:
    """Returns the error for a wrong argument."""
    return UserError(ErrorKind.SETTINGS, what, remedy=remedy)


def parse_address(url: str, remedy: str = ADDRESS_REMEDY) -> tuple[str, str, int, str]:
    """Returns (user, host, port, rest) of mysql://user@host:port/rest. Raises `UserError`."""
    from dispatcher.yaml_settings.values import split_host_port  # noqa: PLC0415 - pydantic

    address, _, rest = url.removeprefix(SCHEME).partition("/")
    user, _, server = address.rpartition("@")
    if ":" in user:
        raise wrong(
            "the address holds a password; every user of this machine can read it in the list of processes",
            "leave the password out, and use --password-file FILE or --password-env VARIABLE, or enter it when asked",
        )
    if not user or not server:
        raise wrong(f"not the address of a server: {url}", remedy)
    try:
        host, port = split_host_port(server, 3306)
    except ValueError as error:
        raise wrong(f"{url}: {error}", remedy) from None
    return unquote(user), host, port, rest


def secret_of_options(option: str, file: Path | None, variable: str | None) -> str | None:
    """Returns the secret from the file or the environment variable of the options `--OPTION-file` and `--OPTION-env`;
    None if neither was given. Raises `UserError`."""
    if file is not None and variable is not None:
        raise wrong(f"both --{option}-file and --{option}-env", "use one of them")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise wrong(f"--{option}-file {file}: {reason}", "name a readable file") from None
    if variable is not None:
        if variable not in os.environ:
            raise wrong(f"--{option}-env: {variable} is not set", "set and export it")
        return os.environ[variable]
    return None


def password_of(login: Login, user: str, host: str) -> str:
    """Returns the password from the file, the variable, or the terminal, and "" without any of these. Raises
    `UserError`."""
    given = secret_of_options("password", login.password_file, login.password_env)
    if given is not None:
        return given
    if sys.stdin.isatty():
        return getpass.getpass(f"password of {user}@{host}: ")
    return ""


@contextmanager
def refused_login_as_input(login: Login) -> Iterator[None]:
    """Raises ACCESS_DENIED as a `UserError`, because the account is an argument. If the arguments gave no password and
    there was no terminal to ask for one, the error says so."""
    try:
        yield
    except BinlogError as error:
        if error.kind is not ErrorKind.ACCESS_DENIED:
            raise
        what, remedy = error.what, error.remedy
        if not (login.has_password or sys.stdin.isatty()):
            what = f"{what}; no password was given, and standard input is not a terminal"
            remedy = "pass --password-file FILE or --password-env VARIABLE"
        raise UserError(error.kind, what, where=error.where, remedy=remedy) from error
