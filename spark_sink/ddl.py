"""What a statement in the stream does to mirrored tables: nothing, empty them, or something that a mirror cannot follow.

Statements that change neither rows nor columns are ignored by an explicit list; a statement on no list stops the mirror,
because it might have changed rows that no event tells of. `CREATE TABLE` does nothing: a table comes to be in the target
with its first rows, and one of the same name was emptied when it was dropped.

An ALTER TABLE that leaves the rows as they are, or adds columns that are NULL in them, does nothing either: the columns
are added when the first rows come that have them, because only then are their types known exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.model.errors import BinlogError, Kind
from spark_sink.alter import Token, only_adds, tokens


class Action(StrEnum):
    NOTHING = "nothing"
    EMPTY = "empty"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Change:
    """`table` "": all tables of the database."""

    action: Action
    database: str = ""
    table: str = ""
    why: str = ""


_IGNORED = {
    "ALTER": {
        "DATABASE", "EVENT", "FUNCTION", "INSTANCE", "LOGFILE", "PROCEDURE", "RESOURCE", "SCHEMA", "SEQUENCE", "SERVER",
        "TABLESPACE", "UNDO", "USER", "VIEW",
    },
    "CREATE": {
        "DATABASE", "EVENT", "FULLTEXT", "FUNCTION", "INDEX", "LIBRARY", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE",
        "ROLE", "SCHEMA", "SEQUENCE", "SERVER", "SPATIAL", "TABLE", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO",
        "UNIQUE", "USER", "VIEW",
    },
    "DROP": {
        "EVENT", "FUNCTION", "INDEX", "LIBRARY", "LOGFILE", "PACKAGE", "PREPARE", "PROCEDURE", "RESOURCE", "ROLE",
        "SEQUENCE", "SERVER", "SPATIAL", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO", "USER", "VIEW",
    },
    "RENAME": {"USER"},
}  # fmt: skip
_IGNORED_FIRST = {
    "ANALYZE", "CHECK", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "REPAIR", "REVOKE", "SAVEPOINT", "SET", "UNINSTALL",
}  # fmt: skip
# Words that may stand between CREATE, ALTER or DROP and what is created.
_PREFIXES = {"OR", "REPLACE", "IF", "NOT", "EXISTS", "ONLINE", "OFFLINE", "IGNORE", "AGGREGATE"}
_DEFINER = {"DEFINER", "ALGORITHM", "SQL"}


def changes_of(query: str, database: str, sql_mode: int = 0) -> list[Change]:
    """The changes of one statement, run with the default `database`.

    Raises `BinlogError` UNSUPPORTED_CHANGE for a statement that is on no list.
    """
    words = list(tokens(query, sql_mode))
    first = words[0].word if words else ""
    if first in _IGNORED_FIRST or not words:
        return []
    if first == "TRUNCATE":
        return [
            Change(Action.EMPTY, *name)
            for name in _names(_after(words, 1, "TABLE"), database, sql_mode)
        ]
    if first in _IGNORED:
        replaced = first == "CREATE" and [t.word for t in words[1:3]] == ["OR", "REPLACE"]
        at = _object(words)
        what = words[at].word if at < len(words) else ""
        rest = words[at + 1 :]
        if what in ("TABLE", "TABLES"):
            return list(_table_changes(first, query, rest, database, sql_mode, replaced))
        if first == "DROP" and what in ("DATABASE", "SCHEMA"):
            named = _names(rest, database, sql_mode)
            return [Change(Action.EMPTY, table) for _, table in named[:1]]
        if what in _IGNORED[first]:
            return []
    raise BinlogError(
        Kind.UNSUPPORTED_CHANGE,
        f"a statement that the mirror does not know: {_beginning(words)}",
        where=f"default database {database}" if database else "",
        remedy="move the consumer's start past it, after applying to the mirrored tables by hand what it changed",
    )


def _table_changes(
    first: str, query: str, rest: Sequence[Token], database: str, sql_mode: int, replaced: bool
) -> Iterator[Change]:
    names = _names(rest, database, sql_mode)
    match first:
        case "DROP":
            yield from (Change(Action.EMPTY, *name) for name in names)
        case "RENAME":
            yield from (Change(Action.STOP, *name, "RENAME TABLE") for name in names)
        case "ALTER":
            harmless, part = only_adds(query, sql_mode)
            if not harmless and names:
                yield Change(Action.STOP, *names[0], part)
        case "CREATE" if replaced and names:
            yield Change(Action.EMPTY, *names[0])


def _object(words: Sequence[Token]) -> int:
    """Index of the word that says what is created, altered or dropped."""
    at = 1
    while at < len(words):
        if words[at].word in _PREFIXES:
            at += 1
        elif words[at].word in _DEFINER:
            at = _past_definer(words, at)
        else:
            break
    return at


def _past_definer(words: Sequence[Token], at: int) -> int:
    """Past DEFINER=user@host, ALGORITHM=x, SQL SECURITY x."""
    if words[at].word == "SQL":
        return at + 3
    at += 2
    while at < len(words) and words[at].text != "":
        at += 1
        if at < len(words) and words[at].text in ("@", "."):
            at += 1
            continue
        if at < len(words) and words[at].text == "(":  # CURRENT_USER()
            at += 2
        break
    return at


def _beginning(words: Sequence[Token]) -> str:
    """The leading keywords: enough to find the statement, and none of its values."""
    return " ".join(
        token.word for token in itertools.takewhile(lambda t: t.word.isalpha(), words[:4])
    )


def _after(words: Sequence[Token], at: int, optional: str) -> Sequence[Token]:
    return words[at + 1 :] if at < len(words) and words[at].word == optional else words[at:]


def _names(words: Sequence[Token], database: str, sql_mode: int) -> list[tuple[str, str]]:
    """Table names in a list, up to the first bracket: `a`.`b`, c TO d. Keywords between them are no names."""
    names: list[tuple[str, str]] = []
    fresh = True  # a name may begin here
    at = 0
    while at < len(words):
        token = words[at]
        if token.text in (",",) or token.word == "TO":
            fresh = True
        elif token.word in ("IF", "NOT", "EXISTS") and fresh:
            pass
        elif fresh:
            name = _plain(token.text)
            if at + 2 < len(words) and words[at + 1].text == ".":
                names.append((name, _plain(words[at + 2].text)))
                at += 2
            else:
                names.append((database, name))
            fresh = False
        elif token.text == "(":
            break
        at += 1
    return names


def _plain(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in '`"':
        return text[1:-1].replace(text[0] * 2, text[0])
    return text
