"""Changes of JSON values as PARTIAL_UPDATE_ROWS holds them, and their result.

With `binlog_row_value_options=PARTIAL_JSON` (which any session may set) an UPDATE that used JSON_SET, JSON_REPLACE or
JSON_REMOVE on a column is logged as the changes, one behind the other: operation (1 byte), path (length, text), and
except for a removal the value (length, binary JSON); lengths are packed integers. They apply to the before image's
value, in order, and each to the result of the one before it.

A path tells one place: `$.a."b c"[2]`, also `$[last]` and `$[last-1]`, as the statement had it. The server that wrote
the log could apply the changes; where they do not fit, the value is another than the one that was changed.

Source: sql-common/json_diff.cc (read_json_diff, apply_json_diff), sql-common/json_path.cc (parse_path).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from dispatcher.binlog.decode import jsonb_tree
from dispatcher.binlog.decode.jsonb_kernels import MAX_DEPTH
from dispatcher.binlog.decode.jsonb_tree import Malformed, Raw

_LEG = re.compile(
    r"\.\s*(?P<name>\"(?:[^\"\\]|\\.)*\"|[^\s\[.*\"]+)\s*"
    r"|\[\s*(?:(?P<last>last)\s*(?:-\s*(?P<back>\d{1,10})\s*)?|(?P<index>\d{1,10})\s*)\]\s*",
    re.ASCII | re.DOTALL,
)
_SCOPE = re.compile(r"\s*\$\s*", re.ASCII)
_LENGTHS = {252: 2, 253: 3, 254: 8}
_GREATEST_INDEX = 0xFFFFFFFF


class Operation(IntEnum):
    REPLACE = 0  # of a value that is there
    INSERT = 1  # of a key that is not there, or into an array before the place
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class Diff:
    """One change. `path` as the log has it; `value`: binary JSON, None for REMOVE."""

    operation: Operation
    path: str
    value: bytes | None


class CannotApply(Exception):
    """`why`: what does not fit, or is malformed; without values."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class _Cell:
    """An array leg of a path: the number of a value, from the end where `back`."""

    number: int
    back: bool

    def place(self, length: int) -> tuple[int, bool]:
        """(index, whether there is a value). Outside, the index is the nearest place to insert."""
        if self.back:
            return max(length - 1 - self.number, 0), self.number < length
        return min(self.number, length), self.number < length


_Leg = bytes | _Cell


def parse_diffs(diffs: bytes) -> list[Diff]:
    """The changes of one value. Raises `CannotApply` where the bytes are none."""
    found, at = [], 0
    while at < len(diffs):
        operation = diffs[at]
        if operation > Operation.REMOVE:
            raise CannotApply(f"a change of JSON has the unknown operation {operation}")
        path, at = _take(diffs, at + 1)
        value = None
        if operation != Operation.REMOVE:
            value, at = _take(diffs, at)
        try:
            found.append(Diff(Operation(operation), path.decode(), value))
        except UnicodeDecodeError:
            raise CannotApply("the path of a change of JSON is not UTF-8") from None
    return found


def apply_diffs(before: bytes, diffs: bytes) -> bytes:
    """The binary JSON that `before` becomes. No changes give the same value.

    Raises `CannotApply` where the server could not apply them either, or where either of the two is malformed.
    """
    try:
        value = jsonb_tree.document(before)
        for diff in parse_diffs(diffs):
            value = _applied(value, diff)
        return jsonb_tree.encoded(value)
    except Malformed as error:
        raise CannotApply(f"not binary JSON: {error}") from None


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    """(bytes with a packed length in front, offset behind them)."""
    if at < len(data):
        size = data[at]
        at += 1
        if size in _LENGTHS:
            width = _LENGTHS[size]
            # A length that is cut short is no smaller than what is left.
            size = (
                int.from_bytes(data[at : at + width], "little") if len(data) - at >= width else 251
            )
            at += width
        elif size > 250:
            raise CannotApply("a change of JSON has a length that is none")
        if size <= len(data) - at:
            return data[at : at + size], at + size
    raise CannotApply("a change of JSON is cut short")


def _legs(path: str) -> list[_Leg]:
    scope = _SCOPE.match(path)
    if scope is None:
        raise CannotApply("a change of JSON has a path that does not begin with $")
    legs: list[_Leg] = []
    at = scope.end()
    while at < len(path):
        if len(legs) > MAX_DEPTH:
            raise CannotApply(f"a change of JSON has a path of more than {MAX_DEPTH} places")
        leg = _LEG.match(path, at)
        if leg is None:
            raise CannotApply("a change of JSON has a path that does not tell one place")
        at = leg.end()
        legs.append(_member(leg["name"]) if leg["name"] is not None else _cell(leg))
    return legs


def _member(name: str) -> bytes:
    try:
        return str(json.loads(name if name[0] == '"' else f'"{name}"')).encode()
    except ValueError:  # also of the encoding: half of a surrogate pair
        raise CannotApply("a change of JSON has a path with a name that is none") from None


def _cell(leg: re.Match[str]) -> _Cell:
    number = int(leg["index"] or leg["back"] or 0)
    if number > _GREATEST_INDEX:
        raise CannotApply("a change of JSON has a path with a number that is too large")
    return _Cell(number, leg["last"] is not None)


def _applied(whole: Raw, diff: Diff) -> Raw:
    legs = _legs(diff.path)
    if not legs:
        raise CannotApply("a change of JSON is of the whole value")
    value = jsonb_tree.document(diff.value) if diff.value is not None else jsonb_tree.NULL
    return _changed(whole, legs, 0, diff.operation, value)


def _changed(
    parent: Raw, legs: Sequence[_Leg], depth: int, operation: Operation, value: Raw
) -> Raw:
    """`parent`, in which the way goes on at leg number `depth`, after the change."""
    leg = legs[depth]
    if parent.is_object and isinstance(leg, bytes):
        index, there = jsonb_tree.find_key(parent, leg)
    elif parent.is_array and isinstance(leg, _Cell):
        index, there = leg.place(parent.members)
    else:
        raise CannotApply("a change of JSON is of a place that the value cannot have")
    last = depth == len(legs) - 1
    if last and operation == Operation.INSERT:
        if isinstance(leg, bytes) and there:
            raise CannotApply("a change of JSON is of a key that the value has")
        return jsonb_tree.insert_member(
            parent, index, value, leg if isinstance(leg, bytes) else None
        )
    if not there:
        raise CannotApply("a change of JSON is of a place that the value does not have")
    if last and operation == Operation.REMOVE:
        return jsonb_tree.remove_member(parent, index)
    if not last:
        value = _changed(jsonb_tree.child(parent, index), legs, depth + 1, operation, value)
    return jsonb_tree.replace_member(parent, index, value)
