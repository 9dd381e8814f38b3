"""Versions of rows compared with a simple model: random histories, divided at random into entries, batches and steps,
with repeated steps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.history.row_versions import row_versions
from tests.spark.mirror.test_keyed import CHANGES, ROW, Change, row

KEY = ("id", "part")
Key = tuple[Any, ...]
Point = tuple[int, int, int]  # entry, position, seconds of the time of commit
Version = tuple[Key, str, Point, Point | None]


def key_of(values: dict[str, Any]) -> Key:
    return tuple(values[name] for name in KEY)


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Draws changes that a server can log: updates and deletes of existing rows, inserts of new rows."""
    rows: dict[Key, dict[str, Any]] = {}
    changes: list[Change] = []
    for number in range(draw(st.integers(0, 24))):
        existing = [k for k in rows if draw(st.booleans())][:1]
        new = row(draw(st.integers(1, 3)), number, draw(st.sampled_from("ab")))
        if not existing:
            if key_of(new) not in rows:
                changes.append(("insert", None, new))
                rows[key_of(new)] = new
            continue
        before = rows.pop(existing[0])
        if draw(st.integers(0, 3)) == 0:
            changes.append(("delete", before, None))
            continue
        # The update changes the key, if the new key is free.
        after = new if key_of(new) not in rows else before | {"v": str(number)}
        changes.append(("update", before, after))
        rows[key_of(after)] = after
    return changes


def model(changes: list[Change], points: list[Point]) -> list[Version]:
    """Computes the versions of all rows, change by change."""
    current: dict[Key, tuple[str, Point]] = {}
    versions: list[Version] = []
    for (_, before, after), point in zip(changes, points, strict=True):
        if before is not None:
            value, since = current.pop(key_of(before))
            versions.append((key_of(before), value, since, point))
        if after is not None:
            current[key_of(after)] = after["v"], point
    versions += [(key, value, since, None) for key, (value, since) in current.items()]
    return sorted(versions, key=lambda version: version[2])


@dataclass
class History:
    """A history table in memory. It merges steps as Delta does, and skips a step that it has already recorded."""

    recorded: int = -1
    versions: list[Version] = field(default_factory=list)

    def merge(self, lsn: int, lines: list[dict[str, Any]]) -> None:
        if lsn <= self.recorded:
            return
        self.recorded = lsn
        closing = {key_of(line["key"]): line for line in lines if line["closes"]}
        assert len(closing) == sum(line["closes"] for line in lines), "a key is closed twice"
        self.versions = [
            (key, value, since, point(closing[key], "to"))
            if until is None and key in closing
            else (key, value, since, until)
            for key, value, since, until in self.versions
        ]
        for line in lines:
            if not line["closes"]:
                since = point(line, "from")
                assert since is not None
                version = key_of(line["key"]), line["row"]["v"], since, point(line, "to")
                assert key_of(line["row"]) == version[0]
                self.versions.append(version)


def point(line: dict[str, Any], end: str) -> Point | None:
    if line[f"{end}_lsn"] is None:
        return None
    return line[f"{end}_lsn"], line[f"{end}_position"], int(line[f"{end}_at"].timestamp())


def batch(changes: list[Change], first: int) -> pa.RecordBatch:
    rows = [
        {"seq": number, "op": op, "before": before, "after": after}
        | {"committed_at": (1000 + number) * 1_000_000, "database": "shop", "table": "t"}
        for number, (op, before, after) in enumerate(changes, first)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES)


def cut(draw: Any, size: int, most: int = 4) -> list[tuple[int, int]]:
    """Divides `size` items at random. Returns (first, end) of each part."""
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=most)))
    return list(itertools.pairwise([0, *cuts, size]))


@given(histories(), st.data(), st.booleans())
def test_any_cut_with_repeated_steps_gives_the_versions_of_the_model(
    changes: list[Change], data: st.DataObject, exact: bool
) -> None:
    entries = cut(data.draw, len(changes), most=8)
    points = [
        (lsn, position, 1000 + first + position)
        for lsn, (first, end) in enumerate(entries, 1)
        for position in range(end - first)
    ]
    decoded = [
        (lsn, [batch(changes[first + a : first + z], first + a) for a, z in cut(data.draw, end - first)])
        for lsn, (first, end) in enumerate(entries, 1)
    ]  # fmt: skip
    history = History()
    done = 0
    for a, z in cut(data.draw, len(decoded), most=8):
        # After a crash, the applier begins again at the recorded version, and may make the same commit twice.
        for first in (a, done) if data.draw(st.booleans()) else (a,):
            step = decoded[first:z]
            if step:
                lines = row_versions(step, ROW, KEY, exact=exact).to_pylist()
                history.merge(step[-1][0], lines)
        done = z
    assert sorted(history.versions, key=lambda version: version[2]) == model(changes, points)


def test_without_exact_rows_an_insert_ends_a_version_that_is_there() -> None:
    history = History()
    insert: Change = ("insert", None, row(1, "new"))
    history.merge(1, row_versions([(1, [batch([insert], 0)])], ROW, KEY, exact=False).to_pylist())
    history.merge(2, row_versions([(2, [batch([insert], 1)])], ROW, KEY, exact=False).to_pylist())
    assert [until for _, _, _, until in history.versions] == [(2, 0, 1001), None]


def test_rows_without_a_key_or_all_columns_are_refused() -> None:
    lacking = batch([("insert", None, row(1))], 0)
    lacking = lacking.set_column(
        lacking.schema.get_field_index("after_absent"),
        CHANGES.field("after_absent"),
        pa.array([["v"]], CHANGES.field("after_absent").type),
    )
    with pytest.raises(BinlogError) as error:
        row_versions([(1, [lacking])], ROW, KEY, exact=True)
    assert error.value.kind is ErrorKind.ROW_IMAGE
    no_key: Change = ("insert", None, row(1) | {"part": None})
    with pytest.raises(BinlogError, match="key column 'part'"):
        row_versions([(7, [batch([no_key], 0)])], ROW, KEY, exact=True)


def test_versions_lack_the_columns_that_the_row_leaves_out() -> None:
    (change,) = batch([("update", row(1, "old"), row(1, "new"))], 0).to_pylist()
    change |= {"before_absent": ["v"], "after_absent": ["v"]}
    changes = pa.RecordBatch.from_pylist([change], schema=CHANGES)
    kept = pa.struct([ROW.field(name) for name in KEY])
    lines = row_versions([(5, [changes])], kept, KEY, exact=True).to_pylist()
    assert [line["row"] for line in lines] == [None, {"id": 1, "part": "a"}]
