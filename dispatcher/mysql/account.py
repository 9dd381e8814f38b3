"""The statements that create the daemon's account: its privileges on each kind of server, and a random password."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Sequence

from dispatcher.model.subscription import is_pattern
from dispatcher.mysql.server_facts import ServerFacts

ACCOUNT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}\Z")
# MySQL 5.7 and older accept at most 32 characters for an account that replicates. These characters need no quotes in
# SQL, in an option file or in a shell.
_PASSWORD_LENGTH = 30
_ALPHABETS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, "_-.")


def random_password() -> str:
    """Return a password with a character of each kind, as the servers' password policies require."""
    every = "".join(_ALPHABETS)
    while True:
        password = "".join(secrets.choice(every) for _ in range(_PASSWORD_LENGTH))
        if all(set(password) & set(kind) for kind in _ALPHABETS):
            return password


def account_statements(
    facts: ServerFacts,
    name: str,
    password: str,
    databases: Sequence[str],
    *,
    copies: bool,
    partial_revokes: bool,
) -> list[str]:
    """Return the statements, without semicolons. `databases`: names or patterns of names. If one of them is a pattern,
    the account gets SELECT on all databases. `copies`: True if the mirror copies tables with the account.
    `partial_revokes`: the server's variable; if it is on, `_` and `%` in the name of a GRANT's database are not
    wildcards."""
    account = f"'{name}'@'%'"
    everywhere = ["REPLICATION SLAVE"]
    everywhere.append("BINLOG MONITOR" if facts.flavour == "mariadb" else "REPLICATION CLIENT")
    if copies and facts.flavour == "mysql" and facts.gtid_mode != "ON":
        everywhere.append("RELOAD")  # for the copy's FLUSH BINARY LOGS
    named = [] if any(map(is_pattern, databases)) else list(databases)
    if not named:
        everywhere.append("SELECT")
    return [
        f"CREATE USER {account} IDENTIFIED BY '{password}'",
        f"GRANT {', '.join(everywhere)} ON *.* TO {account}",
        *(
            f"GRANT SELECT ON {_level(database, partial_revokes)}.* TO {account}"
            for database in named
        ),
    ]


def _level(database: str, partial_revokes: bool) -> str:
    if not partial_revokes:
        database = re.sub(r"[_%\\]", r"\\\g<0>", database)
    return "`" + database.replace("`", "``") + "`"
