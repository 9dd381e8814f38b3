"""The predicate for attaching, and distances in a log of several files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.dispatch.history.attachment import (
    UNKNOWN_TRANSACTIONS_MAX,
    ServerFiles,
    dump_start,
    group_ahead,
    has_all_read,
    has_transaction,
    is_near,
)
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.gtid import GtidSet

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "0a9d88f8-c14e-11ec-bb36-244bfedf7766"
SIZES = (("binlog.000007", 1000), ("binlog.000008", 500), ("binlog.000009", 300))


def view(mode: Mode = Mode.GTID) -> ServerView:
    return ServerView("server", mode, "", "", SIZES, "binlog.000009", 300, {})


def files() -> ServerFiles:
    known = ServerFiles()
    known.update(view())
    return known


def gtid_position(gtids: str, file: str = "", offset: int = 0) -> ExecutedPosition:
    return make_executed(Mode.GTID, gtids, file, offset)


def at(file: str, offset: int) -> ExecutedPosition:
    return make_executed(Mode.FILE, "", file, offset)


OFFSETS = st.sampled_from(SIZES).flatmap(lambda f: st.tuples(st.just(f[0]), st.integers(4, f[1])))


@given(OFFSETS, OFFSETS)
def test_a_distance_counts_the_bytes_of_the_log_between_two_positions(
    a: tuple[str, int], b: tuple[str, int]
) -> None:
    before = {"binlog.000007": 0, "binlog.000008": 1000, "binlog.000009": 1500}
    want = abs(before[a[0]] + a[1] - before[b[0]] - b[1])
    assert files().distance(Mode.FILE, at(*a), at(*b)) == want


def test_a_distance_over_unknown_files_is_unknown() -> None:
    known = files()
    assert known.distance(Mode.FILE, at("binlog.000005", 4), at("binlog.000007", 4)) is None
    assert (
        known.distance(Mode.GTID, gtid_position(f"{A}:1"), gtid_position(f"{A}:1-2", *SIZES[0]))
        is None
    )


def test_equal_sets_have_the_distance_0_whatever_their_files() -> None:
    first, second = gtid_position(f"{A}:1-9"), gtid_position(f"{A}:1-9", "binlog.000003", 77)
    assert files().distance(Mode.GTID, first, second) == 0


def test_a_stream_that_reads_on_extends_the_files() -> None:
    known = files()
    known.extend("binlog.000010", 400)
    known.extend("binlog.000009", 900)
    known.extend("binlog.000009", 20)
    a, b = at("binlog.000009", 100), at("binlog.000010", 40)
    assert known.distance(Mode.FILE, a, b) == 900 - 100 + 40


@pytest.mark.parametrize(
    ("queued", "read", "may"),
    [
        (f"{A}:1-9", f"{A}:1-9", True),
        (f"{A}:1-9", f"{A}:1-8", True),
        (f"{A}:1-8", f"{A}:1-9", False),
        (f"{A}:1-4:6-9", f"{A}:1-3", True),
        (f"{A}:1-4:6-9", f"{A}:1-6", False),
        (f"{A}:1-9", f"{A}:1-3,{B}:1", False),
        (f"{A}:1-9,{B}:1-2", f"{A}:1-3,{B}:1", True),
        (f"{A}:1-9,{A}:tag:1", f"{A}:1-9", True),
        (f"{A}:1-9", f"{A}:1-9,{A}:tag:1", False),
    ],
)
def test_a_consumer_attaches_only_if_it_has_queued_all_that_was_read(
    queued: str, read: str, may: bool
) -> None:
    assert has_all_read(Mode.GTID, gtid_position(read), gtid_position(queued)) is may


def test_without_gtids_the_offset_decides() -> None:
    low, high = at("binlog.000008", 499), at("binlog.000009", 4)
    assert has_all_read(Mode.FILE, low, high)
    assert has_all_read(Mode.MARIADB, low, low)
    assert not has_all_read(Mode.FILE, high, low)


def test_inside_a_transaction_only_a_consumer_that_has_it_attaches() -> None:
    queued = gtid_position(f"{A}:1-9")
    assert has_transaction(queued, None)
    assert has_transaction(queued, (A, 9))
    assert not has_transaction(queued, (A, 10))
    assert not has_transaction(queued, ("", 1)), "the open transaction has no GTID"
    behind = at("binlog.000008", 400)
    assert has_transaction(behind, at("binlog.000008", 399).seq)
    assert not has_transaction(behind, behind.seq)


def test_without_known_files_sets_that_differ_by_few_transactions_are_near() -> None:
    low, high = gtid_position(f"{A}:1-10"), gtid_position(f"{A}:1-{10 + UNKNOWN_TRANSACTIONS_MAX}")
    assert is_near(None, Mode.GTID, low, high, 1)
    assert not is_near(
        None, Mode.GTID, low, gtid_position(f"{A}:1-{11 + UNKNOWN_TRANSACTIONS_MAX}"), 1
    )
    assert not is_near(None, Mode.FILE, at(*SIZES[0]), at(*SIZES[1]), 1 << 30)


def test_the_consumers_near_the_one_furthest_ahead_form_a_group() -> None:
    positions = {
        "far": at("binlog.000007", 100),
        "near": at("binlog.000009", 60),
        "ahead": at("binlog.000009", 120),
        "between": at("binlog.000008", 480),
    }
    assert group_ahead(files(), Mode.FILE, list(positions.items()), 100) == ["ahead", "near"]
    assert set(group_ahead(files(), Mode.FILE, list(positions.items()), 1 << 20)) == set(positions)


def test_one_dump_begins_at_the_intersection_of_all_positions() -> None:
    a, b = (
        gtid_position(f"{A}:1-5:9", "binlog.000009", 200),
        gtid_position(f"{A}:1-7", "binlog.000008", 100),
    )
    start = dump_start(Mode.GTID, [a, b])
    assert start.gtids == GtidSet.parse(f"{A}:1-5")
    assert (start.file, start.offset, start.seq) == ("binlog.000008", 100, 5)
    assert dump_start(Mode.GTID, [b, gtid_position(f"{A}:1-9")]) is b
    low, high = at("binlog.000007", 900), at("binlog.000008", 4)
    assert dump_start(Mode.FILE, [high, low]) is low
