"""Changes of JSON values give the same result as the same changes of a Python document."""

from __future__ import annotations

import copy
import json
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode.arrow.invalid import Invalid
from dispatcher.binlog.decode.jsonb import json_partial, jsonb_tree
from dispatcher.binlog.decode.jsonb.json_partial import CannotApply, Diff, Operation
from tests.support import jsonb_encoder as encoder
from tests.support.json_documents import document_text
from tests.support.jsonb_encoder import INSERT, REMOVE, REPLACE, Unsigned, diff, encode

BEFORE: dict[str, Any] = {
    "a": 1,
    "b": [1, 2, {"c": 3}],
    'q"uo.te[*]': {"é": [1]},
    "s": "text",
    "n": {"x": {"y": {}}},
    "wide": [70_000, -70_000, Unsigned(70_000), -3, 1.5, None],
    "last": [],
}

Change = tuple[int, str, Any]


@pytest.fixture(autouse=True, scope="module", params=[64, 0])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with both ways in which the code rewrites a container."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonb_tree, "_FEW", request.param)
        yield


def applied(before: Any, *changes: Change, hole: int = 0, large: bool = False) -> str:
    diffs = b"".join(diff(*change) for change in changes)
    return document_text(json_partial.apply_diffs(encode(before, hole=hole, large=large), diffs))


def refused(before: bytes, diffs: bytes) -> str:
    with pytest.raises(CannotApply) as caught:
        json_partial.apply_diffs(before, diffs)
    return caught.value.why


def changed(**changes: Any) -> dict[str, Any]:
    return BEFORE | changes


# (change, BEFORE after the change). Paths have the server's notation, except in the last cases, whose paths the code
# must only be able to read.
CASES: list[tuple[Change, Any]] = [
    ((REPLACE, "$.a", 2), changed(a=2)),
    ((REPLACE, "$.a", "x" * 70_000), changed(a="x" * 70_000)),
    ((REPLACE, "$.b[1]", None), changed(b=[1, None, {"c": 3}])),
    ((REPLACE, "$.b[last]", []), changed(b=[1, 2, []])),
    ((REPLACE, "$.b[last-2]", 9), changed(b=[9, 2, {"c": 3}])),
    ((REPLACE, "$.b[2].c", -1), changed(b=[1, 2, {"c": -1}])),
    ((REPLACE, '$."q\\"uo.te[*]".é[0]', 7), changed(**{'q"uo.te[*]': {"é": [7]}})),
    ((REPLACE, "$.wide[1]", Unsigned(1 << 63)), changed(wide=[70_000, Unsigned(1 << 63), *BEFORE["wide"][2:]])),
    ((INSERT, "$.new", {"z": [1]}), changed(new={"z": [1]})),
    ((INSERT, '$.""', 1), changed(**{"": 1})),
    ((INSERT, '$."\\u0001\\n/"', 1), changed(**{"\x01\n/": 1})),
    ((INSERT, '$."\\ud83d\\ude00"', 1), changed(**{"😀": 1})),
    ((INSERT, "$.n.x.y.z", 1), changed(n={"x": {"y": {"z": 1}}})),
    ((INSERT, "$.b[0]", 0), changed(b=[0, 1, 2, {"c": 3}])),
    ((INSERT, "$.b[3]", 4), changed(b=[1, 2, {"c": 3}, 4])),
    ((INSERT, "$.b[700]", 4), changed(b=[1, 2, {"c": 3}, 4])),
    ((INSERT, "$.b[last]", 0), changed(b=[1, 2, 0, {"c": 3}])),
    ((INSERT, "$.b[last-10]", 0), changed(b=[0, 1, 2, {"c": 3}])),
    ((INSERT, "$.last[last]", 0), changed(last=[0])),
    ((REMOVE, "$.b[0]", None), changed(b=[2, {"c": 3}])),
    ((REMOVE, "$.b[last]", None), changed(b=[1, 2])),
    ((REMOVE, "$.b[2].c", None), changed(b=[1, 2, {}])),
    ((REMOVE, "$.a", None), {key: value for key, value in BEFORE.items() if key != "a"}),
    ((REPLACE, " $ . n . x ", 1), changed(n={"x": 1})),
    ((REPLACE, "$.b [ last - 1 ]", 3), changed(b=[1, 3, {"c": 3}])),
    ((INSERT, "$.$_", 3), changed(**{"$_": 3})),
]  # fmt: skip


@pytest.mark.parametrize(("change", "after"), CASES)
@pytest.mark.parametrize("hole", [0, 3])
@pytest.mark.parametrize("large", [False, True])
def test_a_change(change: Change, after: Any, hole: int, large: bool) -> None:
    assert applied(BEFORE, change, hole=hole, large=large) == encoder.text(after)


@pytest.mark.parametrize(("change", "after"), CASES)
def test_the_result_is_what_the_server_stores(
    change: Change, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonb_tree, "_FEW", 64)
    assert json_partial.apply_diffs(encode(BEFORE), diff(*change)) == encode(after)


def test_changes_apply_one_after_the_other() -> None:
    changes: list[Change] = [
        (REMOVE, "$.a", None),
        (INSERT, "$.a", []),
        (INSERT, "$.a[0]", {}),
        (INSERT, "$.a[0].k", 1),
    ]
    assert applied(BEFORE, *changes) == encoder.text(changed(a=[{"k": 1}]))


def test_no_changes_return_the_same_value() -> None:
    values: list[Any] = [BEFORE, [], "x", None, 1.5]
    for value in values:
        assert json_partial.apply_diffs(encode(value), b"") == encode(value)
    assert document_text(json_partial.apply_diffs(b"", b"")) == "null"


def test_changes_are_parsed() -> None:
    diffs = diff(REPLACE, "$.é", 1) + diff(REMOVE, "$[last]")
    assert json_partial.parse_diffs(diffs) == [
        Diff(Operation.REPLACE, "$.é", encode(1)), Diff(Operation.REMOVE, "$[last]", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((REPLACE, "$.nope", 1), "a path that the value does not have"),
        ((REPLACE, "$.nope.x", 1), "a path that the value does not have"),
        ((REPLACE, "$.b[3]", 1), "a path that the value does not have"),
        ((REPLACE, "$.b[last-3]", 1), "a path that the value does not have"),
        ((REPLACE, "$.b.c", 1), "a path that the value cannot have"),
        ((REPLACE, "$.a[0]", 1), "a path that the value cannot have"),
        ((REPLACE, "$[0]", 1), "a path that the value cannot have"),
        ((INSERT, "$.a", 1), "a key that the value has"),
        ((INSERT, "$.a.b", 1), "a path that the value cannot have"),
        ((REMOVE, "$.nope", None), "a path that the value does not have"),
        ((REMOVE, "$.last[0]", None), "a path that the value does not have"),
        ((REPLACE, "$", 1), "the whole value"),
        ((REPLACE, "", 1), "does not begin with $"),
        ((REPLACE, "a", 1), "does not begin with $"),
        ((REPLACE, "$.*", 1), "does not name one location"),
        ((REPLACE, "$**.a", 1), "does not name one location"),
        ((REPLACE, "$.b[*]", 1), "does not name one location"),
        ((REPLACE, "$.b[0 to 1]", 1), "does not name one location"),
        ((REPLACE, "$.", 1), "does not name one location"),
        ((REPLACE, '$."a', 1), "does not name one location"),
        ((REPLACE, "$[", 1), "does not name one location"),
        ((REPLACE, "$[-1]", 1), "does not name one location"),
        ((REPLACE, "$.b[4294967296]", 1), "an index that is too large"),
        ((REPLACE, "$.b[99999999999999999999]", 1), "does not name one location"),
        ((REPLACE, '$."\\x"', 1), "an invalid name"),
        ((REPLACE, '$."\\ud83d"', 1), "an invalid name"),
        ((REPLACE, "$" + "[0]" * 300, 1), "a path of more than 100 steps"),
        ((INSERT, f"$.{'k' * 70_000}", 1), "a key of 70000 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
def test_changes_that_do_not_apply_are_refused(change: Change, why: str, large: bool) -> None:
    assert why in refused(encode(BEFORE, large=large), diff(*change))


def test_a_scalar_has_no_locations() -> None:
    for value in ("text", 1, None):
        assert "cannot have" in refused(encode(value), diff(REPLACE, "$.a", 1))


@pytest.mark.parametrize(
    ("diffs", "why"),
    [
        (b"\3\1$", "unknown operation 3"),
        (b"\0", "cut short"),
        (b"\0\3$.a", "cut short"),
        (b"\0\xfb$.a", "251 where a length begins"),
        (b"\0\xff", "255 where a length begins"),
        (b"\0\xfc\3", "cut short"),
        (b"\0\xfe\3\0\0\0\0\0\0\xff$.a\0", "cut short"),
        (b"\0\3$.\xff\0", "not UTF-8"),
        (diff(REPLACE, "$.a", 1)[:-4] + b"\1\x0d", "unknown type 13"),
    ],
)  # fmt: skip
def test_malformed_changes_are_refused(diffs: bytes, why: str) -> None:
    assert why in refused(encode(BEFORE), diffs)


def test_truncated_or_flipped_changes_raise_only_typed_errors() -> None:
    before = encode(BEFORE)
    changes = [change for change, _ in CASES if change[0] != REPLACE or change[2] != "x" * 70_000]
    diffs = b"".join(diff(*change) for change in changes[:4])
    whole = len(json_partial.parse_diffs(diffs))
    for size in range(len(diffs)):
        text_or_nothing(before, diffs[:size])
        for flip in (1, 0x80, 0xFF):
            text_or_nothing(before, diffs[:size] + bytes((diffs[size] ^ flip,)) + diffs[size + 1 :])
    assert whole == 4


@pytest.mark.parametrize("large", [False, True])
def test_truncated_or_flipped_values_raise_only_typed_errors(large: bool) -> None:
    before = encode(BEFORE, large=large)
    diffs = (
        diff(INSERT, "$.n.x.y.z", 1)
        + diff(REPLACE, '$."q\\"uo.te[*]".é[0]', 1)
        + diff(REMOVE, "$.wide[2]")
    )
    for size in range(len(before)):
        text_or_nothing(before[:size], diffs)
        for flip in (1, 0x80, 0xFF):
            text_or_nothing(
                before[:size] + bytes((before[size] ^ flip,)) + before[size + 1 :], diffs
            )


def text_or_nothing(before: bytes, diffs: bytes) -> str | None:
    try:
        return document_text(json_partial.apply_diffs(before, diffs))
    except (CannotApply, Invalid):
        return None


def test_values_that_overlap() -> None:
    # Many entries share one value. If each got a copy of the value, the document would be many times as large.
    for entries in (60, 1000):
        size, start = 64_000, 4 + 3 * entries
        data = entries.to_bytes(2, "little") + size.to_bytes(2, "little")
        data += (b"\x0c" + start.to_bytes(2, "little")) * entries
        data += encoder.length(60_000) + b"x" * 60_000
        before = b"\2" + data + b"\0" * (size - len(data))
        found = text_or_nothing(before, diff(REMOVE, "$[0]"))
        assert found is None or len(found) < len(before)
    # The second value begins within the first. If the first were cut out, the second would begin before all values.
    values = struct.pack("<IIBIBI", 2, 30, 12, 18, 12, 20) + b"\x0b" + b"\1" * 11
    assert (
        document_text(b"\3" + values[:13] + struct.pack("<BI", 4, 0) + values[18:])
        == '["' + "\\u0001" * 11 + '", null]'
    )
    assert text_or_nothing(b"\3" + values, diff(REMOVE, "$[0]")) is None


def test_a_change_in_a_large_document_is_a_copy() -> None:
    numbers = list(range(60_000))
    before: dict[str, Any] = {
        "numbers": numbers,
        "members": {f"key {n}": n for n in range(10_000)},
        "small": [1],
    }
    numbers_after = [*numbers[:7], "seven", *numbers[8:-1]]
    wanted = {
        "numbers": numbers_after,
        "members": before["members"] | {"key 7": [], "new": {}},
        "small": [1, 2],
    }
    changes: list[Change] = [
        (REPLACE, "$.numbers[7]", "seven"),
        (REMOVE, "$.numbers[last]", None),
        (REPLACE, '$.members."key 7"', []),
        (INSERT, "$.members.new", {}),
        (INSERT, "$.small[1]", 2),
    ]
    diffs = b"".join(diff(*change) for change in changes)
    raw = encode(before)
    tracemalloc.start()
    after = json_partial.apply_diffs(raw, diffs)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(raw)
    assert document_text(after) == encoder.text(wanted)


_KEYS = st.sampled_from(["a", "b", "é", "long key", "", '"', "$x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.data(),
    st.lists(_VALUES, max_size=4) | st.dictionaries(_KEYS, _VALUES, max_size=4),
    st.integers(0, 2),
    st.booleans(),
)
def test_any_changes(data: st.DataObject, before: Any, hole: int, large: bool) -> None:
    """The changes have the same result as the same changes to a Python document."""
    model = copy.deepcopy(before)
    diffs = b""
    for _ in range(data.draw(st.integers(1, 4))):
        path, place = "$", model
        while True:
            inner = list(place.items()) if isinstance(place, dict) else list(enumerate(place))
            deeper = [(key, value) for key, value in inner if isinstance(value, (list, dict))]
            if not deeper or data.draw(st.booleans()):
                break
            key, place = data.draw(st.sampled_from(deeper))
            path += leg(key)
        diffs += change_place(data, path, place)
    assert document_text(
        json_partial.apply_diffs(encode(before, hole=hole, large=large), diffs)
    ) == encoder.text(model)


def change_place(data: st.DataObject, path: str, place: Any) -> bytes:
    value = data.draw(_VALUES)
    if isinstance(place, list):
        operation = data.draw(st.sampled_from([INSERT, REPLACE, REMOVE] if place else [INSERT]))
        at = data.draw(st.integers(0, len(place) + 2 if operation == INSERT else len(place) - 1))
        if operation == INSERT:
            place.insert(at, value)
        elif operation == REPLACE:
            place[at] = value
        else:
            del place[at]
        return diff(operation, path + leg(at), value)
    key = data.draw(_KEYS)
    operation = data.draw(st.sampled_from([REPLACE, REMOVE] if key in place else [INSERT]))
    if operation == REMOVE:
        del place[key]
    else:
        place[key] = value
    return diff(operation, path + leg(key), value)


def leg(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f".{json.dumps(key, ensure_ascii=False)}"
