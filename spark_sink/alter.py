"""ALTER TABLE, read as far as a mirror must know: does it change rows that exist, and does it only
add columns?

A statement is cut into its specifications at the commas outside of brackets, and each is judged by
its leading words. What is not on the lists below changes rows as far as we know, and stops the
mirror: a list of the harmless can be incomplete without harm.

A column may be added when its value in the rows that exist is NULL, which is what the target shows
for them. With another default, NOT NULL, a generated value or AUTO_INCREMENT, MySQL gives those
rows values that are written to no log.

Source: MySQL 9.7 manual, "ALTER TABLE Statement" and "Comments" (the text in `/*!NNNNN ... */` is
executed).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ANSI_QUOTES = 1 << 2
NO_BACKSLASH_ESCAPES = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """`word`: upper case, "" for a quoted name, a string or a number, which can be no keyword."""

    word: str
    text: str


_LEXEMES = r"""
    (?P<space>\s+|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?(?:\*/|\Z))
  | (?P<opening>/\*M?!\d*)
  | (?P<closing>\*/)
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<double>"(?:{inside_double})*")
  | (?P<string>'(?:{inside_single})*')
  | (?P<word>[^\W\d][\w$]*|\d+[^\W\d][\w$]*|[\w$]+)
  | (?P<other>.)
"""


def _pattern(backslash: bool) -> re.Pattern[str]:
    escape = r"\\.|" if backslash else ""
    stop = r"\\" if backslash else ""
    inside = {
        f"inside_{name}": f"{escape}[^{quote}{stop}]|{quote}{quote}"
        for name, quote in (("double", '"'), ("single", "'"))
    }
    text = _LEXEMES
    for name, value in inside.items():
        text = text.replace("{" + name + "}", value)
    return re.compile(text, re.VERBOSE | re.DOTALL)


_BACKSLASH, _PLAIN = _pattern(True), _pattern(False)


def tokens(query: str, sql_mode: int = 0) -> Iterator[Token]:
    """Words, names and signs of a statement; comments are left out, executed ones read."""
    pattern = _PLAIN if sql_mode & NO_BACKSLASH_ESCAPES else _BACKSLASH
    for match in pattern.finditer(query):
        kind, text = match.lastgroup, match[0]
        if kind in ("space", "opening", "closing"):
            continue
        yield Token(text.upper() if kind == "word" or kind == "other" else "", text)


def specifications(query: str, sql_mode: int = 0) -> list[list[Token]]:
    """The parts of ALTER TABLE name part, part ...; empty if the statement is not one."""
    words = list(tokens(query, sql_mode))
    at = 0
    while at < len(words) and words[at].word in ("ALTER", "ONLINE", "OFFLINE", "IGNORE"):
        at += 1
    if not words or words[0].word != "ALTER" or at == len(words) or words[at].word != "TABLE":
        return []
    at += 3 if [t.word for t in words[at + 1 : at + 3]] == ["IF", "EXISTS"] else 1
    at += 1  # the table's name, with or without its database
    if at < len(words) and words[at].text == ".":
        at += 2
    elif at < len(words) and words[at].text.startswith(".") and len(words[at].text) > 1:
        at += 1
    return _split(words[at:])


def _split(words: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
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


def _harmless(part: Sequence[Token]) -> bool:
    words = [token.word for token in part]
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
            return "PRIMARY" not in words and not any(t.text.upper() == "`PRIMARY`" for t in part)
        case ["RENAME", "INDEX" | "KEY", *_]:
            return True
        case [first, *_]:
            return first in _HARMLESS
    return False


def _adds_nulls(part: Sequence[Token]) -> bool:
    """`part` behind ADD: one column, or several in brackets."""
    if part and part[0].word == "COLUMN":
        part = part[1:]
    if [token.word for token in part[:3]] == ["IF", "NOT", "EXISTS"]:
        part = part[3:]
    if part and part[0].text == "(":
        end = max(i for i, token in enumerate(part) if token.text == ")")
        return all(_null_column(column) for column in _split(part[1:end]))
    return _null_column(part)


def _null_column(column: Sequence[Token]) -> bool:
    words = [
        token.word for token in column[1:]
    ]  # behind the name, which may be spelled like a keyword
    if not words or _VALUES.intersection(words):
        return False
    if column[0].word in _KEYS and column[0].word != "":
        return "PRIMARY" not in words
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        if (word == "NOT" and following == "NULL") or (word == "DEFAULT" and following != "NULL"):
            return False
    return True
