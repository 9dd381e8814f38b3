"""Single rules of a stream that begins with a snapshot."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position
from spark_sink.source.snapshot.key_order import KeyLimit, is_ordered, key_parts
from spark_sink.source.snapshot.rules import (
    Backlog,
    ChunkEnd,
    Delivers,
    KeyPart,
    SnapshotState,
    Step,
    all_read,
    check_key,
    delivered,
    is_over,
    next_step,
    next_table,
)

KEY = (KeyPart("id", "number:3:0"),)
PLACE = Position("server", "", "log.1", 5, 5, 1)


def column(type_: int, *, charset: int = 0, unsigned: bool = False, meta: int = 0) -> Column:
    return Column("id", type_, meta, unsigned, False, charset, (), True)


STATES = (
    SnapshotState(),
    SnapshotState(table=("shop", "a"), key=KEY),
    SnapshotState(table=("shop", "a"), key=KEY, after=("5",), chunk=ChunkEnd(("9",), 2, 7), rows=True),
    SnapshotState(table=("shop", "a"), key=KEY, chunk=ChunkEnd(None, 1, 1)),
    SnapshotState(table=("shop", "a"), key=KEY, whole=True, until=(1, 77)),
)  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_read_as_it_was_written(state: SnapshotState) -> None:
    assert SnapshotState.of_json(state.as_json()) == state


@pytest.mark.parametrize("value", [None, 5, {"table": 3}, {"until": [1]}, {"chunk": {}}, {"x": 1}])
def test_another_value_is_no_state(value: object) -> None:
    with pytest.raises(UserError) as caught:
        SnapshotState.of_json(value)
    assert caught.value.kind is ErrorKind.POSITION_UNKNOWN


def test_changes_come_between_two_chunks_if_there_are_any() -> None:
    behind_rows = SnapshotState(table=("s", "a"), key=KEY, after=("5",), rows=True)
    assert next_step(behind_rows, Backlog(True, True, PLACE), due=True) is Step.CHANGES
    assert next_step(behind_rows, Backlog(False, True, PLACE), due=True) is Step.ROWS
    behind_changes = SnapshotState(table=("s", "a"), key=KEY, after=("5",))
    assert next_step(behind_changes, Backlog(True, True, PLACE), due=True) is Step.ROWS


@pytest.mark.parametrize(("servable", "due"), [(False, True), (True, False)])
def test_a_chunk_waits_for_the_queue_and_for_the_limit(servable: bool, due: bool) -> None:
    state = SnapshotState(table=("s", "a"), key=KEY)
    assert next_step(state, Backlog(False, servable, PLACE), due=due) is Step.CHANGES


def test_a_snapshot_is_over_behind_the_changes_before_its_last_look_at_the_tables() -> None:
    state = all_read(SnapshotState(table=("s", "z"), key=KEY, whole=True), (1, 50))
    assert not is_over(state, (1, 49))
    assert is_over(state, (1, 50))
    assert delivered(state, ("s", "zz")) is Delivers.ALL
    assert next_step(state, Backlog(True, True, PLACE), due=True) is Step.CHANGES


def test_a_table_that_was_created_meanwhile_is_read_if_its_name_is_greater() -> None:
    state = SnapshotState(table=("s", "m"), key=KEY, whole=True)
    assert next_table(state, [("s", "a"), ("s", "m"), ("s", "z"), ("s", "n")]) == ("s", "n")
    assert delivered(state, ("s", "a")) is Delivers.ALL
    assert delivered(state, ("s", "n")) is Delivers.NONE


def test_another_key_ends_the_snapshot() -> None:
    state = SnapshotState(table=("s", "m"), key=KEY)
    check_key(state, KEY)
    with pytest.raises(BinlogError, match=r"s\.m: its key was changed") as caught:
        check_key(state, (*KEY, KeyPart("more", "number:3:0")))
    assert "new checkpoint" in str(caught.value)


# -- the order of keys -------------------------------------------------------------------------------------------


def test_whole_and_decimal_numbers_are_ordered() -> None:
    key = key_parts(
        [column(Type.LONGLONG, unsigned=True), column(Type.NEWDECIMAL, meta=10 << 8 | 2)]
    )
    assert is_ordered(key)
    limit = KeyLimit(key, ("18446744073709551615", "1.50"))
    largest = Decimal(2**64 - 1)
    assert limit.includes((largest, Decimal("1.5")))
    assert not limit.includes((largest, Decimal("1.51")))
    assert limit.includes((largest - 1, Decimal(99)))


def test_bytes_are_ordered_and_the_zeros_of_a_binary_do_not_count() -> None:
    fixed = key_parts([column(Type.STRING, charset=BINARY)])
    assert KeyLimit(fixed, ("X'610000'",)).includes((b"a",))
    assert not KeyLimit(fixed, ("X'610000'",)).includes((b"a\0\x01",))
    varying = key_parts([column(Type.VARCHAR, charset=BINARY)])
    assert not KeyLimit(varying, ("X'61'",)).includes((b"a\0",))


@pytest.mark.parametrize(
    "unordered",
    [
        column(Type.VARCHAR, charset=255),
        column(Type.DATETIME2),
        column(Type.DOUBLE),
        column(Type.NEWDECIMAL, meta=65 << 8),
    ],
)
def test_a_key_of_unknown_order_counts_as_read(unordered: Column) -> None:
    key = key_parts([column(Type.LONG), unordered])
    assert not is_ordered(key)
    assert KeyLimit(key, ("1", "X'61'")).includes((99, "z"))
