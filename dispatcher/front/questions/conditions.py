"""The conditions of LIKE and WHERE in a question. The front evaluates them itself.

Texts are compared without regard to case, as the servers compare the names of variables and columns. The time to
evaluate a condition is bounded: a pattern has at most PATTERN_MAX characters, and the parser limits the number of tests
in a condition.

Source: MySQL manual, "String Comparison Functions and Operators" (LIKE).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

PATTERN_MAX = 512
_ANY, _ONE = object(), object()  # stand for `%` and `_` in a parsed pattern


class LikePattern:
    """A pattern of LIKE. `%` matches any text, and `_` matches one character. A character after a backslash matches
    only itself."""

    __slots__ = ("_pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._pieces: list[object] = []
        characters = iter(text)
        for character in characters:
            if character == "\\":
                # A backslash at the end of a pattern matches itself.
                self._pieces.append(next(characters, "\\").casefold())
            elif character == "%":
                self._pieces.append(_ANY)
            else:
                self._pieces.append(_ONE if character == "_" else character.casefold())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LikePattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"LikePattern({self.text!r})"

    def matches(self, text: str) -> bool:
        """True if the whole text matches the pattern. After a mismatch, the comparison goes back only to the last `%`.
        So the time is at most proportional to the product of the two lengths."""
        pieces, at, piece = self._pieces, 0, 0
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
    """Tests if a column's value is one of `values`, or, with `negated`, if it is not one of them. NULL never matches.
    `values` are casefolded; `given`: the same values as the client has written them."""

    column: str
    values: frozenset[str]
    negated: bool = False
    given: tuple[str, ...] = ()

    def matches(self, row: Mapping[str, str | None]) -> bool:
        value = row.get(self.column)
        return value is not None and (value.casefold() in self.values) is not self.negated


@dataclass(frozen=True, slots=True)
class Like:
    column: str
    pattern: LikePattern
    negated: bool = False

    def matches(self, row: Mapping[str, str | None]) -> bool:
        value = row.get(self.column)
        return value is not None and self.pattern.matches(value) is not self.negated


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]

    def matches(self, row: Mapping[str, str | None]) -> bool:
        return all(part.matches(row) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]

    def matches(self, row: Mapping[str, str | None]) -> bool:
        return any(part.matches(row) for part in self.parts)


Condition: TypeAlias = OneOf | Like | AllOf | AnyOf


def columns_of(condition: Condition) -> Iterator[str]:
    """The columns that a condition tests."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from columns_of(part)
    else:
        yield condition.column


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Selects the rows of an answer that the client wants. `like`: a pattern for the first column."""

    like: LikePattern | None = None
    where: Condition | None = None

    def matches(self, row: Mapping[str, str | None]) -> bool:
        """True if the client wants the row. `row`: the values by column name in lower case, in the order of the
        answer's columns."""
        if self.like is not None:
            first = next(iter(row.values()), None)
            if first is None or not self.like.matches(first):
                return False
        return self.where is None or self.where.matches(row)

    def required(self, column: str) -> tuple[str, ...] | None:
        """If the condition requires that `column` has one of certain values, return these values as the client wrote
        them. Otherwise return None."""
        parts = self.where.parts if isinstance(self.where, AllOf) else (self.where,)
        for part in parts:
            if isinstance(part, OneOf) and part.column == column and not part.negated:
                return part.given
        return None
