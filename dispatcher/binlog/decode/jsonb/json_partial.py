"""Applies the changes of JSON values in a PARTIAL_UPDATE_ROWS event to the before-image's value.

With `binlog_row_value_options=PARTIAL_JSON` (which any session may set), the server logs an UPDATE that used JSON_SET,
JSON_REPLACE or JSON_REMOVE on a column as a sequence of changes. A change is an operation (1 byte), a path (length,
text), and except for a removal the value (length, binary JSON); lengths are packed integers. The changes apply in order
to the value of the before-image.

A path names one location: `$.a."b c"[2]`, also `$[last]` and `$[last-1]`, as in the statement. The server was able to
apply the changes to its value. So if a change does not fit `before`, `before` differs from the server's value.

Source: sql-common/json_diff.cc (read_json_diff, apply_json_diff), sql-common/json_path.cc (parse_path).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from dispatcher.binlog.decode.jsonb import jsonb_tree
from dispatcher.binlog.decode.jsonb.jsonb_kernels import MAX_DEPTH
from dispatcher.binlog.decode.jsonb.jsonb_tree import Malformed, Raw
from dispatcher.binlog.event.cursor import ByteCursor
from dispatcher.model.errors import BinlogError

_LEG = re.compile(
    r"\.\s*(?P<name>\"(?:[^\"\\]|\\.)*\"|[^\s\[.*\"]+)\s*"
    r"|\[\s*(?:(?P<last>last)\s*(?:-\s*(?P<back>\d{1,10})\s*)?|(?P<index>\d{1,10})\s*)\]\s*",
    re.ASCII | re.DOTALL,
)
_SCOPE = re.compile(r"\s*\$\s*", re.ASCII)

_GREATEST_INDEX = 0xFFFFFFFF


class Operation(IntEnum):
    REPLACE = 0  # replaces an existing value
    INSERT = 1  # inserts a new key into an object, or a value into an array before the location
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class Diff:
    """One change. `path`: the path in the form of the log; `value`: binary JSON, None for REMOVE."""

    operation: Operation
    path: str
    value: bytes | None


class CannotApply(Exception):
    """The changes do not apply or are malformed. `why`: the reason, without values."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class _Cell:
    """An array index in a path, counted from the end if `back`."""

    number: int
    back: bool

    def find(self, length: int) -> tuple[int, bool]:
        """Return (index, True if the index exists). If the index does not exist, return the nearest index for an
        insertion."""
        if self.back:
            return max(length - 1 - self.number, 0), self.number < length
        return min(self.number, length), self.number < length


_Leg = bytes | _Cell


def parse_diffs(diffs: bytes) -> list[Diff]:
    """Parse the changes of one JSON value. Raises `CannotApply` for malformed bytes."""
    cursor, changes = ByteCursor("a change of JSON", diffs), []
    try:
        while len(cursor):
            operation = cursor.number(1)
            if operation > Operation.REMOVE:
                raise cursor.malformed(f"has the unknown operation {operation}")
            path = cursor.text(cursor.packed_number())
            has_value = operation != Operation.REMOVE
            value = cursor.read(cursor.packed_number()) if has_value else None
            changes.append(Diff(Operation(operation), path, value))
    except BinlogError as error:
        raise CannotApply(error.what) from None
    return changes


def apply_diffs(before: bytes, diffs: bytes) -> bytes:
    """Apply changes to binary JSON. Without changes the result is `before`.

    Raises `CannotApply` if a change does not fit the value, or if `before` or `diffs` is malformed.
    """
    try:
        value = jsonb_tree.document(before)
        for diff in parse_diffs(diffs):
            value = _applied(value, diff)
        return jsonb_tree.encoded(value)
    except Malformed as error:
        raise CannotApply(f"not binary JSON: {error}") from None


def _legs(path: str) -> list[_Leg]:
    scope = _SCOPE.match(path)
    if scope is None:
        raise CannotApply("a change of JSON has a path that does not begin with $")
    legs: list[_Leg] = []
    at = scope.end()
    while at < len(path):
        if len(legs) > MAX_DEPTH:
            raise CannotApply(f"a change of JSON has a path of more than {MAX_DEPTH} steps")
        leg = _LEG.match(path, at)
        if leg is None:
            raise CannotApply("a change of JSON has a path that does not name one location")
        at = leg.end()
        legs.append(_member(leg["name"]) if leg["name"] is not None else _cell(leg))
    return legs


def _member(name: str) -> bytes:
    try:
        return str(json.loads(name if name[0] == '"' else f'"{name}"')).encode()
    except ValueError:  # raised also by encode(), for half of a surrogate pair
        raise CannotApply("a change of JSON has a path with an invalid name") from None


def _cell(leg: re.Match[str]) -> _Cell:
    number = int(leg["index"] or leg["back"] or 0)
    if number > _GREATEST_INDEX:
        raise CannotApply("a change of JSON has a path with an index that is too large")
    return _Cell(number, leg["last"] is not None)


def _applied(whole: Raw, diff: Diff) -> Raw:
    legs = _legs(diff.path)
    if not legs:
        raise CannotApply("a change of JSON replaces the whole value")
    value = jsonb_tree.document(diff.value) if diff.value is not None else jsonb_tree.NULL
    return _changed(whole, legs, 0, diff.operation, value)


def _changed(
    parent: Raw, legs: Sequence[_Leg], depth: int, operation: Operation, value: Raw
) -> Raw:
    """Return `parent` with the change at the path `legs[depth:]` applied."""
    leg = legs[depth]
    if parent.is_object and isinstance(leg, bytes):
        index, exists = jsonb_tree.find_key(parent, leg)
    elif parent.is_array and isinstance(leg, _Cell):
        index, exists = leg.find(parent.members)
    else:
        raise CannotApply("a change of JSON has a path that the value cannot have")
    last = depth == len(legs) - 1
    if last and operation == Operation.INSERT:
        if isinstance(leg, bytes) and exists:
            raise CannotApply("a change of JSON inserts a key that the value has")
        return jsonb_tree.insert_member(
            parent, index, value, leg if isinstance(leg, bytes) else None
        )
    if not exists:
        raise CannotApply("a change of JSON has a path that the value does not have")
    if last and operation == Operation.REMOVE:
        return jsonb_tree.remove_member(parent, index)
    if not last:
        value = _changed(jsonb_tree.child(parent, index), legs, depth + 1, operation, value)
    return jsonb_tree.replace_member(parent, index, value)
