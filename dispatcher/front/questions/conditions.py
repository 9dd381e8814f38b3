"""The conditions of LIKE and WHERE in a question. The front evaluates them itself.

Texts are compared without regard to case, as the servers compare the names of variables and columns. The time to
evaluate a condition is bounded: a pattern has at most PATTERN_MAX characters and is compared with names only, and the
parser limits the number of tests in a condition.

Source: MySQL manual, "String Comparison Functions and Operators" (LIKE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PATTERN_MAX = 128
_ANY, _ONE = object(), object()  # stand for `%` and `_` in a parsed pattern


class LikePattern:
    """A pattern of LIKE. `%` matches any text, and `_` matches one character. A character after a backslash matches
    only itself."""

    __slots__ = ("_least", "_pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._pieces: list[object] = []
        characters = iter(text)
        for character in characters:
            if character == "\\":
                # A backslash at the end of a pattern matches itself.
                self._pieces.append(next(characters, "\\").casefold())
            elif character == "%":
                if self._pieces[-1:] != [_ANY]:
                    self._pieces.append(_ANY)
            else:
                self._pieces.append(_ONE if character == "_" else character.casefold())
        # how many characters a matching text has at least
        self._least = sum(piece is not _ANY for piece in self._pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LikePattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"LikePattern({self.text!r})"

    def matches(self, text: str) -> bool:
        """True if the whole text matches the pattern. After a mismatch, the comparison goes back only to the last `%`.
        So the time is at most proportional to the square of the text's length."""
        pieces, at, piece = self._pieces, 0, 0
        if self._least > len(text):
            return False
        # `any_at`: index of the piece after the last `%`; `any_from`: where the text for this piece began
        any_at: int | None = None
        any_from = 0
        folded = [character.casefold() for character in text]
        while at < len(folded):
            if piece < len(pieces) and pieces[piece] is _ANY:
                piece += 1
                any_at, any_from = piece, at
            elif piece < len(pieces) and (pieces[piece] is _ONE or pieces[piece] == folded[at]):
                piece, at = piece + 1, at + 1
            elif any_at is not None:
                any_from += 1
                piece, at = any_at, any_from
            else:
                return False
        return all(each is _ANY for each in pieces[piece:])


@dataclass(frozen=True, slots=True)
class OneOf:
    """Tests if a column's value is one of `given`. NULL never matches. `values`: the given values, casefolded."""

    column: str
    given: tuple[str, ...]
    values: frozenset[str]

    @classmethod
    def of(cls, column: str, given: Iterable[str]) -> OneOf:
        values = tuple(dict.fromkeys(given))
        return cls(column, values, frozenset(map(str.casefold, values)))

    def matches(self, row: Mapping[str, str | None]) -> bool:
        value = row.get(self.column)
        return value is not None and value.casefold() in self.values


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selects the rows of an answer that the client wants. `like`: a pattern for the first column. `where`: tests that
    are all true."""

    like: LikePattern | None = None
    where: tuple[OneOf, ...] = ()

    def matches(self, row: Mapping[str, str | None]) -> bool:
        """True if the client wants the row. `row`: the values by column name in lower case, in the order of the
        answer's columns."""
        if self.like is not None:
            first = next(iter(row.values()), None)
            if first is None or not self.like.matches(first):
                return False
        return all(test.matches(row) for test in self.where)

    def required(self, column: str) -> tuple[str, ...] | None:
        """If the condition requires that `column` has one of certain values, return these values as the client wrote
        them. Otherwise return None."""
        return next((test.given for test in self.where if test.column == column), None)
