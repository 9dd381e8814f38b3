"""Decides which databases and tables a consumer reads, by names and by shell-style patterns of names.

`*` stands for any text, `?` for one character, `[abc]`, `[a-z]` and `[!abc]` for one character of a set; `[*]` is a
literal `*`. Names and patterns are compared as the server compares names (`names.folded_name`): case-sensitively,
unless its `lower_case_table_names` is 1 or 2. A pattern does not match the server's own databases
(`SYSTEM_DATABASES`), as a shell's `*` does not match hidden files. To read these databases, a consumer must list their
names.

A table belongs to a subscription if its database matches `databases`, the table matches `tables` (or `tables` is None),
and the table does not match `exclude_tables`. Only names are compared. So if CREATE or RENAME gives a table a matching
name, the table belongs to the subscription after that statement. The statement itself is delivered if at least one name
in it belongs to the subscription.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from dispatcher.model.names import folded_name

SYSTEM_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema"})

TablePattern = tuple[str, str]
"""Patterns of a database and of a table in it."""


def is_pattern(text: str) -> bool:
    """True if `text` is a pattern rather than a name."""
    return any(character in text for character in "*?[")


def literal(name: str) -> str:
    """Returns the pattern that matches only this name."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def covers(allowed: str, wanted: str) -> bool:
    """True if `allowed` certainly matches every name that `wanted` matches. If `wanted` is a pattern, this function
    returns True only if `allowed` is the same pattern, or if `allowed` is a pattern such as `shop_*` and `wanted`
    begins with `shop_`."""
    if not is_pattern(wanted):
        return NamePatterns([allowed]).match(wanted)
    prefix = allowed.removesuffix("*")
    begins = re.split(r"[*?[]", wanted, maxsplit=1)[0].startswith(prefix)
    return wanted == allowed or (allowed.endswith("*") and not is_pattern(prefix) and begins)


def covers_database(allowed: str, wanted: str) -> bool:
    """Like `covers`, but a pattern does not cover the server's own databases."""
    return covers(allowed, wanted) and (wanted not in SYSTEM_DATABASES or allowed == wanted)


class NamePatterns:
    """Names, and patterns of names. `lower_case_table_names`: the setting of the server on which the names exist."""

    def __init__(self, patterns: Iterable[str], lower_case_table_names: int = 0) -> None:
        self._lower_case = lower_case_table_names
        patterns = [folded_name(text, lower_case_table_names) for text in patterns]
        self._names = frozenset(text for text in patterns if not is_pattern(text))
        # A regular expression of `fnmatch.translate` does not backtrack exponentially.
        translated = [fnmatch.translate(text) for text in patterns if is_pattern(text)]
        self._expressions = tuple(map(re.compile, translated))

    def match(self, name: str) -> bool:
        """True if `name` is one of the names, or matches a pattern."""
        name = folded_name(name, self._lower_case)
        return name in self._names or any(each.match(name) for each in self._expressions)

    def match_database(self, name: str) -> bool:
        """Like `match`, but a pattern does not match the server's own databases."""
        name = folded_name(name, self._lower_case)
        return name in self._names or (name not in SYSTEM_DATABASES and self.match(name))


class Subscription:
    """The databases and tables of one consumer. `tables`: None = all tables of the databases.
    `lower_case_table_names`: the server's setting."""

    def __init__(
        self,
        databases: Iterable[str],
        tables: Iterable[TablePattern] | None = None,
        exclude_tables: Iterable[TablePattern] = (),
        lower_case_table_names: int = 0,
    ) -> None:
        lower_case = lower_case_table_names
        self._databases = NamePatterns(databases, lower_case)
        self._tables = None if tables is None else _TablePatterns(tables, lower_case)
        excluded = list(exclude_tables)
        self._excluded = _TablePatterns(excluded, lower_case)
        whole = (database for database, table in excluded if table == "*")
        self._excluded_databases = NamePatterns(whole, lower_case)

    def has_database(self, name: str) -> bool:
        """True if the consumer gets statements about the whole database, such as DROP DATABASE."""
        return self._databases.match_database(name) and not self._excluded_databases.match(name)

    def has_table(self, database: str, table: str) -> bool:
        if not self._databases.match_database(database) or self._excluded.match(database, table):
            return False
        return self._tables is None or self._tables.match(database, table)


class _TablePatterns:
    def __init__(self, patterns: Iterable[TablePattern], lower_case: int) -> None:
        self._lower_case = lower_case
        patterns = [
            (folded_name(database, lower_case), folded_name(table, lower_case))
            for database, table in patterns
        ]
        self._names = frozenset(
            pair for pair in patterns if not is_pattern(pair[0]) and not is_pattern(pair[1])
        )
        self._patterns = tuple(
            (NamePatterns([database], lower_case), NamePatterns([table], lower_case))
            for database, table in patterns
            if (database, table) not in self._names
        )

    def match(self, database: str, table: str) -> bool:
        database = folded_name(database, self._lower_case)
        table = folded_name(table, self._lower_case)
        return (database, table) in self._names or any(
            of_database.match(database) and of_table.match(table)
            for of_database, of_table in self._patterns
        )
