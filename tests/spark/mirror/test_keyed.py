"""The last event of each key, and the counts of whole rows, against a plain dict and a plain Counter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode.arrow.arrow_types import NAMES
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.tables.keyed import (
    LastEvents,
    chosen_columns,
    event_form,
    key_range,
    last_events,
    require_columns,
    row_counts_of,
)
from spark_sink.mirror.tables.steps import _joined

ROW = pa.struct(
    [pa.field("id", pa.int64()), pa.field("part", pa.string()), pa.field("v", pa.string())]
)
CHANGES = pa.schema(
    [
        pa.field("seq", pa.int64()),
        pa.field("gtid", pa.string()),
        pa.field("committed_at", pa.timestamp("us", "UTC")),
        pa.field("database", pa.string()),
        pa.field("table", pa.string()),
        pa.field("op", pa.string()),
        pa.field("before_absent", NAMES),
        pa.field("after_absent", NAMES),
        pa.field("before", ROW),
        pa.field("after", ROW),
    ]
)
Image = dict[str, Any] | None
Change = tuple[str, Image, Image]


def row(key: int, value: object = "", part: str = "a") -> dict[str, Any]:
    return {"id": key, "part": part, "v": str(value)}


def batch(changes: Sequence[Change], first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"seq": i, "gtid": f"g:{i}", "op": op, "before": before, "after": after}
            | {"database": "shop", "table": "t"}
            for i, (op, before, after) in enumerate(changes, first)
        ],
        schema=CHANGES,
    )


def batches(changes: Sequence[Change], size: int) -> list[pa.RecordBatch]:
    return [batch(changes[i : i + size], i) for i in range(0, len(changes), size)]


operation = st.tuples(
    st.sampled_from(["insert", "update", "delete"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from("ab"),
)


def history(operations: Sequence[tuple[str, int, int, str]]) -> tuple[list[Change], dict[Any, Any]]:
    """Returns a possible history of a table with the key (id, part), and its rows at the end."""
    table: dict[Any, Any] = {}
    changes: list[Change] = []
    for number, (op, key, other, part) in enumerate(operations):
        at, to = (key, part), (other, part)
        if op == "insert" and at not in table:
            table[at] = row(key, number, part)
            changes.append((op, None, table[at]))
        elif op == "delete" and at in table:
            changes.append((op, table.pop(at), None))
        elif op == "update" and at in table and (to == at or to not in table):
            before = table.pop(at)
            table[to] = row(other, number, part)
            changes.append((op, before, table[to]))
    return changes, table


@given(st.lists(operation, max_size=40), st.lists(operation, max_size=40), st.integers(1, 9))
def test_the_last_event_of_each_key_makes_the_table(
    earlier: list[Any], later: list[Any], size: int
) -> None:
    changes, after = history([*earlier, *later])
    done, before = history(earlier)
    form = event_form(CHANGES, ["id", "part"])
    events = last_events(batches(changes[len(done) :], size), form).to_pylist()
    keys = [tuple(event["key"].values()) for event in events]
    assert len(set(keys)) == len(keys)
    for key, event in zip(keys, events, strict=True):
        assert event["deleted"] == (event["row"] is None)
        if event["deleted"]:
            before.pop(key, None)
        else:
            before[key] = event["row"]
    assert before == after
    assert [event["order"] for event in events] == sorted(event["order"] for event in events)


@given(st.lists(operation, max_size=60), st.integers(1, 9))
def test_the_cut_into_batches_does_not_matter(operations: list[Any], size: int) -> None:
    changes, _ = history(operations)
    form = event_form(CHANGES, ["id", "part"], keep_deleted=True)
    whole = last_events([batch(changes)], form)
    assert last_events(batches(changes, size), form).to_pylist() == whole.to_pylist()


def test_more_rows_than_are_kept_at_a_time_are_compacted_on_the_way() -> None:
    events = LastEvents(event_form(CHANGES, ["id"]))
    inserts = pa.RecordBatch.from_pylist(
        [{"op": "insert", "seq": 1, "after": row(i)} for i in range(50_000)], schema=CHANGES
    )
    for _ in range(4):
        events.add(inserts)
    assert events._rows < events.changes
    assert events.changes == 200_000
    assert events.table().num_rows == 50_000
    assert set(events.table().column("order").to_pylist()) == {
        2 * i + 1 for i in range(150_000, 200_000)
    }


def test_an_update_that_moves_a_row_removes_the_old_key() -> None:
    events = last_events([batch([("update", row(1), row(2))])], event_form(CHANGES, ["id"]))
    assert [(e["key"]["id"], e["deleted"]) for e in events.to_pylist()] == [(1, True), (2, False)]


def test_events_carry_the_transaction_and_on_demand_the_removed_row() -> None:
    changes = batch([("insert", None, row(1, "x")), ("delete", row(1, "x"), None)])
    for keep, kept in ((False, None), (True, row(1, "x"))):
        (event,) = last_events(
            [changes], event_form(CHANGES, ["id"], keep_deleted=keep)
        ).to_pylist()
        assert (event["seq"], event["gtid"], event["deleted"]) == (1, "g:1", True)
        assert event["row"] == kept


def test_no_changes_are_no_events() -> None:
    form = event_form(CHANGES, ["id"])
    assert last_events([], form).schema == form.schema
    assert last_events([batch([])], form).num_rows == 0


def test_a_key_that_is_null_cannot_be_mirrored() -> None:
    changes = batch([("insert", None, {"id": None, "part": "a", "v": "b"})])
    with pytest.raises(BinlogError) as caught:
        last_events([changes], event_form(CHANGES, ["id"]))
    assert caught.value.kind is ErrorKind.INVALID_VALUE


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        (None, None, True),
        (["v"], None, True),
        (["id"], None, False),
        (["v"], ["id"], False),
        (None, ["v"], False),
    ],
)
def test_rows_must_hold_their_key_and_all_written_columns(
    before: list[str] | None, after: list[str] | None, whole: bool
) -> None:
    first, second = batch([("update", row(1), row(1)), ("update", row(1), row(1))]).to_pylist()
    second |= {"before_absent": before, "after_absent": after}
    changes = pa.RecordBatch.from_pylist([first, second], schema=CHANGES)
    if whole:
        require_columns(changes, ["id"])
    else:
        with pytest.raises(BinlogError, match=r"rows of table shop\.t") as caught:
            require_columns(changes, ["id"])
        assert (caught.value.kind, caught.value.where) == (ErrorKind.ROW_IMAGE, "seq 1")
        assert "resolve shop.t --as recopy" in caught.value.remedy
    if before or after:
        with pytest.raises(BinlogError):
            row_counts_of(changes, ROW)


KEPT = pa.struct([ROW.field("id"), ROW.field("part")])


@pytest.mark.parametrize(
    ("absent", "left"),
    [(None, None), (["v"], None), (["part", "v"], ["part"]), (["part"], ["part"])],
)
def test_columns_that_are_left_out_may_be_absent(
    absent: list[str] | None, left: list[str] | None
) -> None:
    (change,) = batch([("update", row(1, "old"), row(1, "new"))]).to_pylist()
    change |= {"before_absent": absent, "after_absent": absent}
    changes = pa.RecordBatch.from_pylist([change], schema=CHANGES)
    (found,) = chosen_columns(changes, KEPT).to_pylist()
    image = {"id": 1, "part": "a"}
    assert found == change | {"before": image, "after": image} | dict.fromkeys(
        ("before_absent", "after_absent"), left
    )


def test_changes_of_all_columns_are_left_as_they_are() -> None:
    changes = batch([("insert", None, row(1))])
    assert chosen_columns(changes, ROW) is changes


def test_a_delete_has_no_image_of_columns_that_are_left_out() -> None:
    (found,) = chosen_columns(batch([("delete", row(1), None)]), KEPT).to_pylist()
    assert (found["before"], found["after"]) == ({"id": 1, "part": "a"}, None)


def test_incomplete_rows_name_the_columns_and_both_ways_on() -> None:
    (change,) = batch([("update", row(1), row(1))]).to_pylist()
    changes = pa.RecordBatch.from_pylist([change | {"after_absent": ["v"]}], schema=CHANGES)
    with pytest.raises(BinlogError) as caught:
        require_columns(changes, ["id"])
    assert caught.value.what.startswith("rows of table shop.t do not hold the columns v, so")
    assert "omit_columns" in caught.value.remedy and "binlog_row_image=FULL" in caught.value.remedy


@given(st.lists(operation, max_size=40))
def test_the_counts_of_rows_are_what_a_counter_says(operations: list[Any]) -> None:
    changes, _ = history(operations)
    expected: Counter[str] = Counter()
    for _, before, after in changes:
        for image, count in ((before, -1), (after, 1)):
            if image is not None:
                expected[json.dumps(image)] += count
    found: Counter[str] = Counter()
    for line in row_counts_of(batch(changes), ROW).to_pylist():
        found[json.dumps(line["row"])] += line["count"]
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}


def test_the_counts_of_a_step_are_in_one_part() -> None:
    """Spark ignores all parts after two parts without rows. The counts of inserts and the counts of deletes each have
    such a part."""
    parts = [
        row_counts_of(batch([("insert", None, row(1))]), ROW),
        row_counts_of(batch([("delete", row(1), None)]), ROW),
    ]
    whole = _joined(parts)
    assert [part.num_rows for part in whole.to_batches()] == [2]


def test_the_range_of_keys_is_known_for_types_with_exact_statistics() -> None:
    assert key_range(pa.chunked_array([[5, -3], [9]])) == (-3, 9)
    assert key_range(pa.chunked_array([[Decimal("1.5")]])) == (Decimal("1.5"), Decimal("1.5"))
    assert key_range(pa.chunked_array([["a"]])) is None
    assert key_range(pa.chunked_array([], pa.int64())) is None
