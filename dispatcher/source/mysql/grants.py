"""Reading SHOW GRANTS: what an account may do, as far as replication needs it.

The lines are the server's own SQL, `GRANT <privileges> ON <level> TO <account> ...`, in its own
quoting; there is no other way to ask that works without SELECT on the tables of the `mysql`
database. Database names in the level of a GRANT may be patterns (`shop\\_%`). MySQL 8.0 adds REVOKE
lines (partial revokes), which take away from the GRANT on *.*. Source: MySQL manual, "SHOW GRANTS
Statement"; MariaDB knowledge base, "SHOW GRANTS".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = r"(?:`(?:[^`]|``)*`|'(?:[^']|'')*'|\*)"
_LINE = re.compile(
    r"(?P<verb>GRANT|REVOKE) (?P<privileges>.+?) ON (?:TABLE )?"
    rf"(?P<database>{_NAME})\.(?P<table>{_NAME})"
    rf" (?:TO|FROM) (?P<account>{_NAME}(?:@{_NAME})?)",
    re.DOTALL,
)
_COLUMNS = re.compile(r"\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Grants:
    """`everywhere`: privileges on *.*; `select`: (database pattern, table, granted or revoked)."""

    account: str
    everywhere: frozenset[str]
    select: tuple[tuple[str, str, bool], ...]

    def has(self, *names: str) -> bool:
        """Does the account have one of these privileges on *.*?"""
        return "ALL PRIVILEGES" in self.everywhere or not self.everywhere.isdisjoint(names)

    def may_select(self, database: str, *, ignore_case: bool = False) -> bool:
        """May it read the database, or at least some tables of it?

        A consumer may be declared for a few tables only, so a grant on tables is enough; which ones
        is not judged here.
        """
        allowed = self.has("SELECT")
        name = database.lower() if ignore_case else database
        for pattern, _, granted in self.select:
            if _matches(pattern.lower() if ignore_case else pattern, name):
                allowed = granted
        return allowed


def parse_grants(lines: Iterable[str]) -> Grants:
    """The grants that SHOW GRANTS printed, one statement a line."""
    account, everywhere = "", set[str]()
    select: list[tuple[str, str, bool]] = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:  # a role, a proxy
            continue
        # Column lists hold commas and count as the privilege itself: SELECT (id, name).
        listed = _COLUMNS.sub("", match["privileges"])
        privileges = {privilege.strip().upper() for privilege in listed.split(",")}
        account = account or match["account"]
        database, table = match["database"], match["table"]
        granted = match["verb"] == "GRANT"
        if database == "*":
            everywhere |= privileges if granted else set()
        elif not privileges.isdisjoint({"SELECT", "ALL PRIVILEGES", "ALL"}):
            select.append((_unquoted(database), _unquoted(table), granted))
    # Taken-away databases are listed after the grants they take from, but a later GRANT on one of
    # its tables still counts.
    select.sort(key=lambda entry: entry[2])
    return Grants(account, frozenset(everywhere), tuple(select))


def _unquoted(name: str) -> str:
    quote = name[0]
    return name if quote == "*" else name[1:-1].replace(quote * 2, quote)


def _matches(pattern: str, name: str) -> bool:
    r"""Does a GRANT's database cover a name? `%` and `_` are wildcards unless after `\`.

    In time of pattern times name: as a regular expression, a pattern of a dozen `%` could take for ever.
    """
    ends = {0}  # how much of the name the pattern has matched, in each way
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            ends = set(range(min(ends), len(name) + 1))
        else:
            wanted = next(characters, "\\") if character == "\\" else character
            wild = character == "_"
            ends = {end + 1 for end in ends if end < len(name) and (wild or name[end] == wanted)}
        if not ends:
            return False
    return len(name) in ends
