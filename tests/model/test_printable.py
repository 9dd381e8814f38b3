"""Text from outside is printed without characters that control a terminal or a log. In JSON, the text stays exact."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.printable import (
    json_escaped,
    printable,
    printable_lines,
    printable_values,
)
from tests.support.hostile_text import HOSTILE, SHOWN, acts

_JOINERS = "\u200c\u200d"
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")  # Cn: not assigned in Python's version of Unicode
_EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


def test_hostile_text_is_shown_in_escapes() -> None:
    assert printable(HOSTILE) == SHOWN


@pytest.mark.parametrize("text", ["", "shop", "Läden 店 ñ €", "👨\u200d👩", "`a` 'b' \\ \"c\""])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert printable(text) == printable_lines(text) == json_escaped(text) == text


def test_no_control_format_or_separator_character_remains() -> None:
    kept = {c for c in printable(_EVERY) if unicodedata.category(c) in _UNSAFE[:-1]}
    assert kept == set(_JOINERS)


def test_every_other_character_remains() -> None:
    others = {c for c in _EVERY if unicodedata.category(c) not in _UNSAFE}
    assert others <= set(printable(_EVERY))


def test_texts_of_several_lines_keep_them() -> None:
    assert printable_lines("a\n\tb\r\x1b") == "a\n\tb\\r\\x1b"


def test_texts_at_any_depth() -> None:
    value = {"a\n": ["b\x1b", {"c": "d\u202e"}, 1, None, True]}
    assert printable_values(value) == {r"a\n": [r"b\x1b", {"c": r"d\u202e"}, 1, None, True]}


def test_json_holds_the_same_value() -> None:
    value = {HOSTILE: [HOSTILE + "\U000e0041", "ä店"]}
    text = json_escaped(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == value
    assert acts(text) == [] and "ä店" in text


@pytest.mark.parametrize("part", ["what", "where", "remedy"])
def test_an_error_is_one_line_of_printable_text(part: str) -> None:
    error = BinlogError(ErrorKind.CONNECT_FAILED, **{"what": "x", "where": "y", part: HOSTILE})
    assert SHOWN in str(error) and len(str(error).splitlines()) == 1 and acts(str(error)) == []
