"""Checksums of rows: independent of order and batches, and different for any other value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_sink.mirror.verify.row_checksums import Buckets, bucket_of, row_hashes

GEOMETRY = pa.struct([("srid", pa.int64()), ("wkb", pa.binary())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("t", pa.int8()), ("s", pa.string()), ("b", pa.binary()), ("d", pa.decimal128(20, 2)),
        ("f", pa.float32()), ("g", GEOMETRY), ("v", pa.list_(pa.float32())), ("w", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)  # fmt: skip
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 50),
        "t": st.none() | st.integers(-128, 127),
        "s": st.none() | st.text(max_size=20),
        "b": st.none() | st.binary(max_size=20),
        "d": st.none() | st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-2)),
        "f": st.none() | st.floats(width=32, allow_nan=False),
        "g": st.none()
        | st.fixed_dictionaries({"srid": st.integers(0, 9), "wkb": st.binary(max_size=9)}),
        "v": st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=4),
        "w": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
        "day": st.none() | st.dates(),
    }
)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def buckets(*batches: pa.RecordBatch, key: tuple[int, ...] = (0,)) -> Buckets:
    found = Buckets.empty(8)
    for part in batches:
        found.add(part, key)
    return found


@settings(max_examples=150)
@given(st.lists(ROW, max_size=30), st.data())
def test_order_and_batches_do_not_matter(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = batch(rows)
    mixed = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = batch(mixed)
    other = buckets(parts.slice(0, cut), parts.slice(cut))
    assert not len(buckets(whole).different(other))
    assert other.rows == len(rows)


@settings(max_examples=200)
@given(st.lists(ROW, min_size=1, max_size=20), st.data())
def test_one_other_value_is_found(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from([n for n in SCHEMA.names if n != "id"]))
    changed = [dict(row) for row in rows]
    changed[at][name] = data.draw(ROW)[name]
    same = batch(changed).equals(batch(rows)) or (
        name == "f" and repr(rows[at][name]) == repr(changed[at][name])
    )
    before, after = buckets(batch(rows)), buckets(batch(changed))
    zeros = name in ("f", "v") and "-0.0" in repr((rows[at][name], changed[at][name]))
    if zeros:  # Arrow treats these values as equal, but their bits differ
        return
    assert len(before.different(after)) == (0 if same else 1)
    if not same:
        wanted = bucket_of(batch(rows), (0,), 8)[at]
        assert before.different(after).tolist() == [wanted]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"s": None}, {"s": ""}), ({"s": "a", "b": b""}, {"s": "", "b": b"a"}), ({"t": 0}, {"t": None}),
        ({"g": None}, {"g": {"srid": 0, "wkb": b""}}), ({"v": []}, {"v": None}), ({"f": 0.0}, {"f": -0.0}),
        ({"s": "a\0"}, {"s": "a"}), ({"b": b"\0" * 8}, {"b": b"\0" * 16}),
    ],
)  # fmt: skip
def test_values_that_are_near(one: dict[str, Any], other: dict[str, Any]) -> None:
    empty: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    hashes = [int(row_hashes(batch([empty | row]).columns, 1)[0]) for row in (one, other)]
    assert hashes[0] != hashes[1]


def test_a_row_that_is_there_twice_is_counted() -> None:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"id": 1}
    once, twice = buckets(batch([row]), key=()), buckets(batch([row, row]), key=())
    assert len(once.different(twice)) == 1
    assert np.array_equal(once.counts * 2, twice.counts)
