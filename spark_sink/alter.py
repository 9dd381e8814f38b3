"""ALTER TABLE, read as far as a mirror must know: does it change rows that exist, and does it only
add columns?

A statement is cut into its specifications at the commas outside of brackets, and each is judged by
its leading words. What is not on the lists below changes rows as far as we know, and stops the
mirror: a list of the harmless can be incomplete without harm.

A column may be added when its value in the rows that exist is NULL, which is what the target shows
for them. With another default, NOT NULL, a generated value or AUTO_INCREMENT, MySQL gives those
rows values that are written to no log.

Source: MySQL 9.7 manual, "ALTER TABLE Statement".
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.binlog.sql.lexer import SqlToken, SqlTokens


def specifications(query: str, sql_mode: int = 0) -> list[list[SqlToken]]:
    """The parts of ALTER TABLE name part, part ...; empty if the statement is not one, or has a quote that is never
    closed."""
    tokens = SqlTokens(query, sql_mode)
    words = list(tokens)
    if not tokens.complete:
        return []
    at = 0
    while at < len(words) and words[at].keyword in ("ALTER", "ONLINE", "OFFLINE", "IGNORE"):
        at += 1
    if not words or words[0].keyword != "ALTER" or at == len(words) or words[at].keyword != "TABLE":
        return []
    at += 3 if [t.keyword for t in words[at + 1 : at + 3]] == ["IF", "EXISTS"] else 1
    at += 1  # the table's name, with or without its database
    if at < len(words) and words[at].text == ".":
        at += 2
    elif at < len(words) and words[at].text.startswith(".") and len(words[at].text) > 1:
        at += 1
    return _split(words[at:])


def _split(words: Sequence[SqlToken]) -> list[list[SqlToken]]:
    parts: list[list[SqlToken]] = [[]]
    depth = 0
    for token in words:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            parts.append([])
        elif token.text != ";":
            parts[-1].append(token)
    return [part for part in parts if part]


_HARMLESS = {
    "ALGORITHM", "ALTER", "ANALYZE", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARACTER", "CHARSET",
    "CHECK", "CHECKSUM", "COALESCE", "COLLATE", "COMMENT", "COMPRESSION", "CONNECTION", "DEFAULT", "DELAY_KEY_WRITE",
    "DISABLE", "ENABLE", "ENCRYPTION", "ENGINE", "ENGINE_ATTRIBUTE", "FORCE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "LOCK",
    "MAX_ROWS", "MIN_ROWS", "NOWAIT", "OPTIMIZE", "ORDER", "PACK_KEYS", "PARTITION", "REBUILD", "REMOVE",
    "REORGANIZE", "REPAIR", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "STATS_AUTO_RECALC",
    "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "WAIT", "WITH", "WITHOUT",
}  # fmt: skip
_KEYS = {"CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "SPATIAL", "UNIQUE"}
_VALUES = {"AS", "AUTO_INCREMENT", "GENERATED", "PRIMARY", "SERIAL"}


def only_adds(query: str, sql_mode: int = 0) -> tuple[bool, str]:
    """(it leaves existing rows as they are, or adds columns that are NULL in them; else the part
    that does not).
    """
    parts = specifications(query, sql_mode)
    if not parts:
        return False, "not an ALTER TABLE statement"
    for part in parts:
        if not _harmless(part):
            return False, " ".join(token.text for token in part)
    return True, ""


def _harmless(part: Sequence[SqlToken]) -> bool:
    words = [token.keyword for token in part]
    match words:
        case ["ADD", "PARTITION", *_]:
            return True
        case (
            ["ADD", "PERIOD", "FOR", *_]
            | ["ADD", "SYSTEM", "VERSIONING", *_]
            | ["ADD", "PRIMARY", *_]
        ):
            return False
        case ["ADD", second, *_] if second in _KEYS:
            return "PRIMARY" not in words
        case ["ADD", *_]:
            return _adds_nulls(part[1:])
        case ["DROP", "INDEX" | "KEY" | "FOREIGN" | "CHECK" | "CONSTRAINT", *_]:
            return not any((token.name or "").upper() == "PRIMARY" for token in part)
        case ["RENAME", "INDEX" | "KEY", *_]:
            return True
        case [first, *_]:
            return first in _HARMLESS
    return False


def _adds_nulls(part: Sequence[SqlToken]) -> bool:
    """`part` behind ADD: one column, or several in brackets."""
    if part and part[0].keyword == "COLUMN":
        part = part[1:]
    if [token.keyword for token in part[:3]] == ["IF", "NOT", "EXISTS"]:
        part = part[3:]
    if part and part[0].text == "(":
        end = max((i for i, token in enumerate(part) if token.text == ")"), default=0)
        return end > 0 and all(_null_column(column) for column in _split(part[1:end]))
    return _null_column(part)


def _null_column(column: Sequence[SqlToken]) -> bool:
    # Behind the name, which may be spelled like a keyword.
    words = [token.keyword for token in column[1:]]
    if not words or _VALUES.intersection(words):
        return False
    if column[0].keyword in _KEYS and column[0].keyword != "":
        return "PRIMARY" not in words
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if (word == "NOT" and following == "NULL") or (word == "DEFAULT" and following != "NULL"):
            return False
    return True
