"""The options of a snapshot: the server from which rows are read, and the limit of rows per second.

Each process that logs in reads the password from a file or an environment variable. So neither an offset nor a Spark
plan contains the password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dispatcher.model.errors import ErrorKind, UserError

TLS_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_NEEDED = "mysql"
KEYS = {
    "mysql": "with startingOffsets=snapshot: the server that rows are read from, like reader@db1:3306",
    "mysqlPasswordFile": "file that holds the account's password; on the driver and on every executor",
    "mysqlPasswordVariable": "in place of mysqlPasswordFile: the environment variable that holds the password",
    "mysqlTls": "preferred (default), disabled, required, verify_ca or verify_identity, as MySQL's --ssl-mode",
    "mysqlCaFile": "with mysqlTls=verify_ca or verify_identity: PEM file of the authority that signed the server's"
    " certificate; default the system's authorities",
    "snapshotRowsPerSecond": "rows of a snapshot that are read per second; default no limit",
}


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """The parsed options of a snapshot. `rows_per_second`: 0 for no limit. Picklable, because Spark sends it to the
    executors."""

    user: str
    host: str
    port: int
    password_file: str = ""
    password_variable: str = ""
    tls: str = "preferred"
    ca_file: str = ""
    rows_per_second: int = 0

    def password(self) -> str:
        """Returns the password. Raises `UserError` if this process cannot read it."""
        if self.password_variable:
            password = os.environ.get(self.password_variable)
            if password is None:
                raise UserError(
                    ErrorKind.SETTINGS,
                    f"the environment variable {self.password_variable} is not set",
                    remedy="set it for the driver and for every executor, or use the option mysqlPasswordFile",
                )
            return password
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UserError(
                ErrorKind.SETTINGS,
                f"cannot read the password file {self.password_file}: {why}",
                remedy="make it readable on the driver and on every executor",
            ) from None


def parse_snapshot(values: Mapping[str, str], findings: list[str]) -> SnapshotSettings | None:
    """Parses the options of a stream whose `startingOffsets` is `snapshot`. If an option is invalid, adds to `findings`
    and returns None."""
    count = len(findings)
    if "table" not in values and "tables" not in values:
        findings.append(
            "startingOffsets=snapshot needs 'table' or 'tables': the rows of these tables are read"
        )
    findings += [
        f"startingOffsets=snapshot and {key!r} exclude each other"
        for key in ("raw", "flat", "ops", "databases")
        if values.get(key, "false").lower() != "false"
    ]
    secrets = [key for key in ("mysqlPasswordFile", "mysqlPasswordVariable") if values.get(key)]
    if len(secrets) != 1:
        findings.append(
            "startingOffsets=snapshot needs either 'mysqlPasswordFile' or 'mysqlPasswordVariable'"
        )
    tls = values.get("mysqlTls", "preferred").lower()
    if tls not in TLS_MODES:
        findings.append(f"option 'mysqlTls' must be one of {', '.join(TLS_MODES)}, not {tls!r}")
    elif values.get("mysqlCaFile") and not tls.startswith("verify"):
        findings.append(
            f"option 'mysqlCaFile' needs mysqlTls=verify_ca or verify_identity, because mysqlTls={tls} accepts any"
            " certificate"
        )
    rows = values.get("snapshotRowsPerSecond", "0")
    if not (rows.isdecimal() and len(rows) <= 9):
        findings.append(f"option 'snapshotRowsPerSecond' must be a number, not {rows!r}")
    address = _address(values.get(_NEEDED, ""), findings)
    if address is None or len(findings) > count:
        return None
    user, host, port = address
    return SnapshotSettings(
        user,
        host,
        port,
        password_file=values.get("mysqlPasswordFile", ""),
        password_variable=values.get("mysqlPasswordVariable", ""),
        tls=tls,
        ca_file=values.get("mysqlCaFile", ""),
        rows_per_second=int(rows),
    )


def _address(text: str, findings: list[str]) -> tuple[str, str, int] | None:
    """Returns user, host and port."""
    from dispatcher.yaml_settings.server import MysqlSettings  # noqa: PLC0415 - loads pydantic

    if not text:
        findings.append(
            "startingOffsets=snapshot needs 'mysql': the server that rows are read from"
        )
        return None
    try:
        login = MysqlSettings.parse(text)
    except ValueError as error:
        findings.append(f"option 'mysql': {error}")
        return None
    if len(login.addresses) != 1:
        findings.append(
            f"option 'mysql' names {len(login.addresses)} hosts, but a snapshot reads one server"
        )
        return None
    (address,) = login.addresses
    return login.user, address.host, address.port
