"""Parses the answer to SHOW GRANTS as far as replication needs it, and finds the privileges that the account lacks.

The lines are SQL, `GRANT <privileges> ON <level> TO <account> ...`, in the server's own quoting. Other queries for
privileges need SELECT on the tables of the `mysql` database. Database names in the level of a GRANT may be patterns
(`shop\\_%`). MySQL 8.0 adds REVOKE lines (partial revokes), which restrict the GRANT on *.*. Source: MySQL manual,
"SHOW GRANTS Statement"; MariaDB knowledge base, "SHOW GRANTS".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.names import folded_name
from dispatcher.model.nearest import nearest
from dispatcher.mysql.answers import identifier

_NAME = r"""(?:`(?:[^`]|``)*`|'(?:[^']|'')*'|"(?:[^"]|"")*"|\*)"""
_LINE = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?:TABLE )?"
    rf"(?P<database>{_NAME})\.(?P<table>{_NAME})"
    rf" (?:TO|FROM) (?P<account>{_NAME}(?:@{_NAME})?)",
    re.DOTALL,
)
_COLUMNS = re.compile(r"\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Grants:
    """`everywhere`: privileges on *.*. `select`: for each line with SELECT on a database or a table, the pattern of the
    database, the table, and True for GRANT, False for REVOKE. `databases`: the privileges on whole databases, by their
    patterns."""

    account: str
    everywhere: frozenset[str]
    select: tuple[tuple[str, str, bool], ...]
    databases: tuple[tuple[str, frozenset[str]], ...] = ()

    def has(self, *names: str) -> bool:
        """True if the account has one of these privileges on *.*."""
        return "ALL PRIVILEGES" in self.everywhere or not self.everywhere.isdisjoint(names)

    def lacking(self, database: str, privileges: Iterable[str]) -> tuple[str, ...]:
        """Return those of `privileges` that the account does not have on the whole database."""
        held = set(self.everywhere)
        for pattern, names in self.databases:
            if _matches(pattern, database):
                held |= names
        return () if "ALL PRIVILEGES" in held else tuple(p for p in privileges if p not in held)

    def readable_databases(self) -> list[str]:
        """Return the names of databases with a GRANT of SELECT for the database or a table. Patterns with `%` are left
        out."""
        granted = (pattern for pattern, _, grants in self.select if grants)
        return [re.sub(r"\\(.)", r"\1", each) for each in granted if "%" not in each]

    def may_select(self, database: str, lower_case_table_names: int = 0) -> bool:
        """True if the account may read the database, or at least one table of it.

        A grant on any table of the database is enough, because a consumer may be declared for a few tables only.
        """
        allowed = self.has("SELECT")
        name = folded_name(database, lower_case_table_names)
        for pattern, _, granted in self.select:
            if _matches(folded_name(pattern, lower_case_table_names), name):
                allowed = granted
        return allowed


def parse_grants(lines: Iterable[str]) -> Grants:
    """Return the grants in the lines of SHOW GRANTS."""
    account, everywhere = "", set[str]()
    select: list[tuple[str, str, bool]] = []
    databases: list[tuple[str, frozenset[str]]] = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:  # the line grants a role or a proxy
            continue
        # A privilege on some columns, SELECT (id, name), counts as the whole privilege. The list is removed first,
        # because its commas would split the line.
        names = _COLUMNS.sub("", match["privileges"])
        privileges = {name.strip().upper() for name in names.split(",")}
        account = account or match["account"]
        database, table = match["database"], match["table"]
        granted = match["verb"] == "GRANT"
        if database == "*":
            everywhere |= privileges if granted else set()
            continue
        if table == "*" and granted:
            databases.append((_unquoted(database), frozenset(privileges)))
        if not privileges.isdisjoint({"SELECT", "ALL PRIVILEGES", "ALL"}):
            select.append((_unquoted(database), _unquoted(table), granted))
    # Put the REVOKE lines first, so that a GRANT on a table counts even if a REVOKE excludes its database from the
    # GRANT on *.*.
    select.sort(key=lambda entry: entry[2])
    return Grants(account, frozenset(everywhere), tuple(select), tuple(databases))


def missing_privileges(
    grants: Grants, databases: Sequence[str], lower_case_table_names: int = 0
) -> Iterator[BinlogError]:
    """Yield a finding for each privilege that the daemon's account lacks. `databases`: the databases that consumers
    read."""

    def finding(privilege: str, on: str, other_cause: str = "") -> BinlogError:
        return BinlogError(
            ErrorKind.GRANT_MISSING,
            f"the account lacks {privilege} on {on}{other_cause}",
            remedy=f"GRANT {privilege} ON {on} TO {grants.account or 'the account'}",
        )

    if not grants.has("REPLICATION SLAVE", "REPLICATION REPLICA"):
        yield finding("REPLICATION SLAVE", "*.*")
    # MariaDB 10.5 renamed this privilege, and accepts the old name in GRANT.
    if not grants.has("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"):
        yield finding("REPLICATION CLIENT", "*.*")
    for database in dict.fromkeys(databases):
        if not grants.may_select(database, lower_case_table_names):
            # The server hides the databases that the account may not read.
            known = grants.readable_databases()
            other_cause = f", or the server has no such database{nearest(database, known)}"
            yield finding("SELECT", f"{identifier(database)}.*", other_cause)


def _unquoted(name: str) -> str:
    quote = name[0]
    return name if quote == "*" else name[1:-1].replace(quote * 2, quote)


def _matches(pattern: str, name: str) -> bool:
    r"""True if a GRANT's database pattern matches a name. `%` and `_` are wildcards unless after `\`.

    The time is proportional to the product of the lengths. A regular expression could take exponential time for a
    pattern with many `%`.
    """
    ends = {0}  # the lengths of the name's prefixes that the pattern matches so far
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            ends = set(range(min(ends), len(name) + 1))
        else:
            literal = next(characters, "\\") if character == "\\" else character
            wild = character == "_"
            ends = {end + 1 for end in ends if end < len(name) and (wild or name[end] == literal)}
        if not ends:
            return False
    return len(name) in ends
