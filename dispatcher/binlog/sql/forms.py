"""Forms: the syntax of statements and clauses that the parsers follow, written as in the servers' manuals.

    ADD [CONSTRAINT [<symbol>]] UNIQUE [INDEX | KEY] [<name>] <key parts> [<index option>] ...

Upper-case words and signs stand for themselves. `[a | b]` may be absent, `{a | b}` is one of several, `...` repeats the
bracket before it, and `<x>, ...` is a list with commas. `<x>` is a slot: a function of `COMMON`, or of the module that
uses the form, consumes it and returns its value.

A form is matched without a step back: each choice is made by the next words. So the time is linear, and a form must be
written such that these words distinguish its alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlToken, SqlTokens

_PIECES = re.compile(r"\[|\]|\{|\}|\||\.\.\.|<[a-z ]+>|,|[^ \n\[\]{}|<>,]+")


class Slot(NamedTuple):
    """`read`: consumes the slot, and returns its value. `starts`: called with the tokens and a number `n`; returns True
    if the slot may begin at the token that `peek(n)` returns. The result decides whether an optional slot is present.
    `width`: called with the same arguments; returns how many tokens the slot has if it begins at this token. A slot
    needs `width` if the words that distinguish forms stand after the slot."""

    read: Callable[[SqlTokens], Any]
    starts: Callable[[SqlTokens, int], bool]
    width: Callable[[SqlTokens, int], int] | None = None


class Found(list[tuple[str, Any]]):
    """The pairs (name of a slot, value) of a form, in the order of the text. `words`: the words of the form that the
    text contains."""

    def __init__(self) -> None:
        super().__init__()
        self.words: set[tuple[str, ...]] = set()

    def all(self, slot: str) -> list[Any]:
        return [value for name, value in self if name == slot]

    def first(self, slot: str) -> Any:
        return next((value for name, value in self if name == slot), None)


class _Part(Protocol):
    @property
    def optional(self) -> bool: ...
    def starts(self, tokens: SqlTokens, n: int) -> bool:
        """True if the part may begin at the token that `peek(n)` returns."""

    def width(self, tokens: SqlTokens, n: int) -> int:
        """Returns the number of tokens of the part if it begins at the token that `peek(n)` returns; 0 if this number
        is not known before the part is read."""

    def match(self, tokens: SqlTokens, found: Found) -> None:
        """Consume the part. Raises NotUnderstoodError."""

    def first_words(self) -> set[str]:
        """Returns the words with which the part may begin; "" stands for a slot."""


@dataclass(frozen=True, slots=True)
class _Words:
    words: tuple[str, ...]
    optional: bool = False

    def starts(self, tokens: SqlTokens, n: int) -> bool:
        return tokens.at(*self.words, n=n)

    def width(self, _tokens: SqlTokens, _n: int) -> int:
        return len(self.words)

    def match(self, tokens: SqlTokens, found: Found) -> None:
        tokens.expect(*self.words)
        found.words.add(self.words)

    def first_words(self) -> set[str]:
        return {self.words[0]}


@dataclass(frozen=True, slots=True)
class _Value:
    name: str
    slot: Slot
    optional: bool = False

    def starts(self, tokens: SqlTokens, n: int) -> bool:
        return self.slot.starts(tokens, n)

    def width(self, tokens: SqlTokens, n: int) -> int:
        return 0 if self.slot.width is None else self.slot.width(tokens, n)

    def match(self, tokens: SqlTokens, found: Found) -> None:
        found.append((self.name, self.slot.read(tokens)))

    def first_words(self) -> set[str]:
        return {""}


@dataclass(frozen=True, slots=True)
class _Listed:
    part: _Part
    optional: bool = False

    def starts(self, tokens: SqlTokens, n: int) -> bool:
        return self.part.starts(tokens, n)

    def width(self, _tokens: SqlTokens, _n: int) -> int:
        return 0

    def match(self, tokens: SqlTokens, found: Found) -> None:
        self.part.match(tokens, found)
        while tokens.accept(","):
            self.part.match(tokens, found)

    def first_words(self) -> set[str]:
        return self.part.first_words()


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Part, ...]
    optional: bool = False

    def starts(self, tokens: SqlTokens, n: int) -> bool:
        for part in self.parts:
            if part.starts(tokens, n):
                width = part.width(tokens, n)
                if not width:
                    return True
                n += width
            elif not part.optional:
                return False
        return True

    def width(self, tokens: SqlTokens, n: int) -> int:
        at = n
        for part in self.parts:
            if part.starts(tokens, at):
                width = part.width(tokens, at)
                if not width:
                    return 0
                at += width
        return at - n

    def match(self, tokens: SqlTokens, found: Found) -> None:
        for part in self.parts:
            part.match(tokens, found)

    def first_words(self) -> set[str]:
        words: set[str] = set()
        for part in self.parts:
            words |= part.first_words()
            if not part.optional:
                break
        return words


@dataclass(frozen=True, slots=True)
class _Choice:
    """`[a | b]` if `optional`, else `{a | b}`; `repeats`: True if `...` follows."""

    alternatives: tuple[_Sequence, ...]
    optional: bool
    repeats: bool = False

    def starts(self, tokens: SqlTokens, n: int) -> bool:
        return any(each.starts(tokens, n) for each in self.alternatives)

    def width(self, tokens: SqlTokens, n: int) -> int:
        at = n
        while True:
            chosen = next((each for each in self.alternatives if each.starts(tokens, at)), None)
            width = 0 if chosen is None else chosen.width(tokens, at)
            if chosen is not None and not width:
                return 0
            at += width
            if chosen is None or not self.repeats:
                return at - n

    def match(self, tokens: SqlTokens, found: Found) -> None:
        chosen = next((each for each in self.alternatives if each.starts(tokens, 0)), None)
        if chosen is None and not self.optional:
            raise NotUnderstoodError
        while chosen is not None:
            chosen.match(tokens, found)
            following = self.alternatives if self.repeats else ()
            chosen = next((each for each in following if each.starts(tokens, 0)), None)

    def first_words(self) -> set[str]:
        return {word for each in self.alternatives for word in each.first_words()}


class Form:
    """One form. `text`: the form as this module's docstring describes it; docs/schema-changes.md lists it. It is parsed
    at its first use, because many programs that import the forms never see a statement."""

    def __init__(self, text: str, slots: Mapping[str, Slot]) -> None:
        self.text = text
        self._slots = slots

    @cached_property
    def _form(self) -> _Sequence:
        self._pieces: list[str] = _PIECES.findall(self.text)
        form = self._alternatives(())[0]
        assert not self._pieces, f"{self.text}: {self._pieces}"
        return form

    def _alternatives(self, ends: tuple[str, ...]) -> tuple[_Sequence, ...]:
        found, parts = list[_Sequence](), list[_Part]()
        while self._pieces and self._pieces[0] not in ends:
            piece = self._pieces.pop(0)
            if piece == "|":
                found.append(_Sequence(tuple(parts)))
                parts = []
            elif piece in ("[", "{"):
                close = {"[": "]", "{": "}"}[piece]
                choice = self._alternatives((close,))
                self._pieces.pop(0)
                parts.append(_Choice(choice, piece == "[", self._accept("...")))
            elif piece == "," and self._accept("..."):
                parts.append(_Listed(parts.pop()))
            elif piece.startswith("<"):
                parts.append(_Value(piece[1:-1], self._slots[piece[1:-1]]))
            elif parts and isinstance(parts[-1], _Words):
                parts[-1] = _Words((*parts[-1].words, piece))
            else:
                parts.append(_Words((piece,)))
        return (*found, _Sequence(tuple(parts)))

    def _accept(self, piece: str) -> bool:
        if not self._pieces or self._pieces[0] != piece:
            return False
        self._pieces.pop(0)
        return True

    def starts(self, tokens: SqlTokens, n: int = 0) -> bool:
        return self._form.starts(tokens, n)

    def match(self, tokens: SqlTokens) -> Found:
        """Consume the form. Raises NotUnderstoodError."""
        found = Found()
        self._form.match(tokens, found)
        return found

    def first_words(self) -> set[str]:
        return self._form.first_words()


class Forms:
    """Several forms. The first form that may begin with the next words is chosen."""

    def __init__(self, forms: Iterable[Form]) -> None:
        self.forms = tuple(forms)

    @cached_property
    def _by_word(self) -> dict[str, list[Form]]:
        found: dict[str, list[Form]] = {}
        for form in self.forms:
            for word in form.first_words():
                found.setdefault(word, []).append(form)
        return found

    def chosen(self, tokens: SqlTokens) -> Form | None:
        following = tokens.peek()
        if following is None:
            return None
        for form in self._by_word.get(following.keyword, ()) if following.keyword else ():
            if form.starts(tokens):
                return form
        return next((form for form in self._by_word.get("", ()) if form.starts(tokens)), None)


def _is(test: Callable[[SqlToken], bool]) -> Callable[[SqlTokens, int], bool]:
    def starts(tokens: SqlTokens, n: int) -> bool:
        following = tokens.peek(n)
        return following is not None and test(following)

    return starts


def _one(test: Callable[[SqlToken], bool]) -> Slot:
    def read(tokens: SqlTokens) -> str:
        token = tokens.advance()
        if token is None or not test(token):
            raise NotUnderstoodError
        return token.text

    return Slot(read, _is(test))


any_token = _is(lambda _: True)
is_name = _is(lambda token: token.name is not None)
at_bracket = _is(lambda token: token.keyword == "(")
# Slots that every form may use. A name must not stand where a word of the form may stand.
COMMON: dict[str, Slot] = {
    "table": Slot(
        SqlTokens.name, _is(lambda token: token.keyword == "." or token.name is not None)
    ),
    "name": Slot(SqlTokens.identifier, is_name),
    "text": Slot(SqlTokens.text, _is(lambda token: token.kind == "text")),
    "number": _one(lambda token: token.kind == "number"),
    "word": _one(lambda token: token.kind in ("word", "quoted")),
    "value": _one(lambda token: token.kind in ("word", "quoted", "text", "number")),
    "size": _one(lambda token: token.text[0] in "123456789"),  # a number, or 64M
    "brackets": Slot(SqlTokens.skip_brackets, at_bracket),
    "rest": Slot(SqlTokens.skip_all, lambda _tokens, _n: True),
}
