"""Positions: equal ones are byte-identical as JSON, and the error for an invalid one names the key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import UserError
from dispatcher.model.position import KEYS, Position, file_number, packed_seq

NUMBER = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("C", "Z")), max_size=64)
positions = st.builds(Position, TEXT, TEXT, TEXT, NUMBER, NUMBER, st.integers(0, 2**32 - 1))
GOOD: dict[str, Any] = {"server": "s", "gtid": "g", "file": "f", "offset": 1, "seq": 2, "epoch": 3}


@given(positions, positions)
def test_equal_positions_are_equal_texts(a: Position, b: Position) -> None:
    assert Position.from_json(a.to_json()) == a
    assert Position.from_json(a.to_json()).to_json() == a.to_json()
    assert (a == b) == (a.to_json() == b.to_json())
    assert list(json.loads(a.to_json())) == list(KEYS)
    assert a.to_json().isascii()


def test_the_text() -> None:
    text = '{"server":"s","gtid":"g","file":"f","offset":1,"seq":2,"epoch":3}'
    assert Position(**GOOD).to_json() == text
    shuffled = json.dumps(dict(reversed(GOOD.items())), indent=2)
    assert Position.from_json(shuffled).to_json() == text
    assert Position(**GOOD).order == (3, 2)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "a position is an object"),
        ([], "not list"),
        ({**GOOD, "x": 1}, "unknown key 'x'"),
        ({k: v for k, v in GOOD.items() if k != "seq"}, "'seq' is missing"),
        ({**GOOD, "file": None}, "'file' must be text"),
        ({**GOOD, "seq": "1"}, "'seq' must be an integer"),
        ({**GOOD, "seq": True}, "'seq' must be an integer"),
        ({**GOOD, "seq": 1.0}, "'seq' must be an integer"),
        ({**GOOD, "seq": -1}, "'seq' lies outside"),
        ({**GOOD, "offset": 2**63}, "'offset' lies outside"),
        ({**GOOD, "epoch": 2**32}, "'epoch' lies outside"),
        ({**GOOD, "file": "f" * 256}, "'file' has 256 characters"),
        ({**GOOD, "server": "s" * 65}, "'server' has 65 characters"),
        ({**GOOD, "gtid": "1" * ((4 << 20) + 1)}, "'gtid' has 4194305 characters"),
        ({**GOOD, "file": "\ud800.000001"}, "'file' holds a character that cannot be printed"),
        ({**GOOD, "file": "binlog\0.000001"}, "'file' holds a character that cannot be printed"),
    ],
)
def test_invalid_positions_are_refused(value: Any, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Position.from_json(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "NaN x", "[" * 100_000, '{"seq": ' + "9" * 10_000 + "}"])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a position"):
        Position.from_json(text)


@pytest.mark.parametrize(
    ("file", "number"),
    [("binlog.000123", 123), ("a.b.999999", 999_999), ("binlog", 0), ("", 0), ("x.²", 0), ("x.1a", 0), ("7", 7),
     ("x." + "9" * 18, 10**18 - 1), ("x." + "9" * 5000, 0)],
)  # fmt: skip
def test_file_numbers(file: str, number: int) -> None:
    assert file_number(file) == number


@given(st.integers(0, 2**22), st.integers(0, 2**22), st.integers(0, 2**40 - 1), st.integers(0, 2**40 - 1))  # fmt: skip
def test_seq_without_gtids_grows_with_the_log(a: int, b: int, x: int, y: int) -> None:
    first, second = packed_seq(f"binlog.{a:06}", x), packed_seq(f"binlog.{b:06}", y)
    assert (first < second) == ((a, x) < (b, y))
    assert 0 <= first < 2**63
