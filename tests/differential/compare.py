"""Compares a table's history in the log with what SELECT returned after each transaction.

The changes are applied in order to a table in memory. The before-image of a change must equal the row in memory, cell
by cell, and after each transaction the table in memory must equal the answer of SELECT. A cell that a partial image
does not hold is not compared; the row in memory keeps its value. Generated columns depend on the row's number, which
does not change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.readings import Value, same
from tests.differential.servers import Ran, Row, Snapshot


class Differs(Exception):
    """The log and SELECT differ."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands for a value that the partial image of an INSERT does not hold."""


_ABSENT = Absent()


def check(ran: Ran, changes: Iterable[Mapping[str, Any]], *, full: bool) -> None:
    """Raises `Differs`. `changes`: rows of `change_schema`, in order; `full`: no column may be absent."""
    expected: list[Snapshot] = [{}]
    expected += (
        now for last, now in itertools.pairwise([{}, *ran.snapshots]) if not _equal(last, now)
    )
    place = _History(ran, full=full)
    actual: list[Snapshot] = [{}]
    at = 1
    for seq, group in itertools.groupby(changes, key=lambda change: change["seq"]):
        for change in group:
            place.apply(change)
        place.complete(expected[at] if at < len(expected) else {})
        if not _equal(place.rows, actual[-1]):
            if at >= len(expected):
                raise Differs(f"transaction {seq} changed rows where SELECT saw no change")
            _compare(place.rows, expected[at], f"after transaction {at} (seq {seq})")
            actual.append({number: dict(row) for number, row in place.rows.items()})
            at += 1
    if at < len(expected):
        raise Differs(
            f"the log ends after {at - 1} changes of the table, SELECT saw {len(expected) - 1}"
        )


class _History:
    def __init__(self, ran: Ran, *, full: bool) -> None:
        self.rows: Snapshot = {}
        self._rid = ran.table.rid
        self._names = [column.name for column in ran.table.columns]
        self._primary = set(ran.table.primary)
        self._full = full
        self._left_out = ran.table.left_out

    def apply(self, change: Mapping[str, Any]) -> None:
        before, after = self._image(change, "before"), self._image(change, "after")
        op = change["op"]
        expected = {"insert": (False, True), "update": (True, True), "delete": (True, False)}[op]
        if (before is not None, after is not None) != expected:
            raise Differs(f"{op} has the images {before!r} and {after!r}")
        number, old = None, {}
        if before is not None:
            number = before[self._rid]
            if number not in self.rows:
                raise Differs(f"{op} of a row that is not there: {before!r}")
            old = self.rows.pop(number)
            for name, value in before.items():
                _cell(value, old[name], f"{op} of row {number}, before, column {name!r}")
        if after is not None:
            number = after.get(self._rid, number)
            assert isinstance(number, int)
            if number in self.rows:
                raise Differs(f"{op} of a row that is there already: {after!r}")
            everything = {name: old.get(name, _ABSENT) for name in self._names}
            self.rows[number] = {**everything, **after}

    def _image(self, change: Mapping[str, Any], which: str) -> Row | None:
        image, absent = change[which], change.get(f"{which}_absent")
        if image is None:
            return None
        if list(image) != self._names:
            raise Differs(f"the columns are {list(image)}, not {self._names}")
        if self._full:
            self._check_full(change["op"], absent)
        if absent is None:
            return dict(image)
        if not absent or set(absent) - set(self._names):
            raise Differs(f"{absent} are said to be absent")
        if which == "before" and set(absent) & self._primary:
            raise Differs(f"{absent} of the key are said to be absent")
        if any(image[name] is not None for name in absent):
            raise Differs(f"{absent} are absent and have values: {image!r}")
        return {name: value for name, value in image.items() if name not in absent}

    def _check_full(self, op: str, absent: Sequence[str] | None) -> None:
        """Raises `Differs` unless a full image lacks exactly the columns that the server leaves out. The image of an
        INSERT may also lack no column: only a REPLACE leaves out columns, as an UPDATE does."""
        able = {self._left_out} if op != "insert" else {self._left_out, frozenset()}
        if frozenset(absent or ()) not in able:
            raise Differs(
                f"{absent} are said to be absent of a full image, not {sorted(self._left_out)}"
            )

    def complete(self, snapshot: Snapshot) -> None:
        """Set the columns that the image of an INSERT lacked to their defaults, which are the values that SELECT
        returned."""
        for number, row in self.rows.items():
            for name, value in row.items():
                if isinstance(value, Absent) and number in snapshot:
                    row[name] = snapshot[number][name]


def _equal(a: Snapshot, b: Snapshot) -> bool:
    return not any(_differences(a, b))


def _differences(actual: Snapshot, expected: Snapshot) -> Iterator[str]:
    if actual.keys() != expected.keys():
        yield f"rows {sorted(actual)}, not {sorted(expected)}"
        return
    for number, row in actual.items():
        for name, value in row.items():
            if not same(value, expected[number][name]):
                yield f"row {number}, column {name!r}: {short(value)}, not {short(expected[number][name])}"


def _compare(actual: Snapshot, expected: Snapshot, where: str) -> None:
    for difference in _differences(actual, expected):
        raise Differs(f"{where}, {difference}")


def _cell(actual: Value, expected: Value, where: str) -> None:
    if expected is not _ABSENT and not same(actual, expected):
        raise Differs(f"{where}: {short(actual)}, not {short(expected)}")


def short(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} … {text[-60:]} ({len(text)} characters)"
