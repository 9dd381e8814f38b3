"""What of the rows of the control table counts, and which tables the names of the log mean."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ClaimedStage, latest_rows, superseded
from spark_sink.mirror.rules.records import find_record, name_at, renamed, without_old_names
from spark_sink.mirror.rules.renames import Crossings, crossings, names_after, records_after
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.table_record import MOVED_FROM, TableRecord, TableState, handled
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.names import TableName

AT = datetime(2026, 1, 1, tzinfo=UTC)


def row(serial: int, kind: str, **fields: Any) -> dict[str, Any]:
    texts = (
        "consumer",
        "table_id",
        "database",
        "table",
        "folder",
        "server",
        "signature",
        "reason",
        "request",
        "detail",
    )
    values: dict[str, Any] = dict.fromkeys(texts, "") | {
        "state": "complete",
        "epoch": 0,
        "from_lsn": 0,
    }
    return values | {"serial": serial, "at": AT, "kind": kind} | fields


def record(name: str, **fields: Any) -> TableRecord:
    values = {"table_id": name, "consumer": "shop", "database": "db", "table": name} | fields
    return TableRecord(**values)


def test_the_newest_row_of_a_table_and_of_a_consumer_count() -> None:
    found = latest_rows(
        [
            row(3, "table", table_id="x", table="b", from_lsn=7),
            row(1, "table", table_id="x", table="a"),
            row(2, "consumer", consumer="shop", from_lsn=5),
            row(4, "consumer", consumer="shop", from_lsn=6),
        ]
    )
    assert (found.records["x"].table, found.records["x"].from_lsn) == ("b", 7)
    assert (found.applied, found.serial) == ({"shop": 6}, 4)


def test_the_newest_claim_of_each_stage_counts() -> None:
    rows = [
        row(1, "claim", consumer="shop", state="log", request="a"),
        row(2, "claim", consumer="shop", state="apply", request="a"),
        row(3, "claim", consumer="shop", state="log", request="b"),
    ]
    log, apply = ("shop", ClaimedStage.LOG), ("shop", ClaimedStage.APPLY)
    assert latest_rows(rows).claims == {log: "b", apply: "a"}
    assert superseded(rows) == {1}


def test_a_request_stands_until_a_row_of_the_table_names_it() -> None:
    rows = [
        row(1, "table", table_id="x", state="stopped"),
        row(2, "request", table_id="x", request="skip", detail='{"id": "r1"}'),
        # Written by the applier, which had not seen the request.
        row(3, "table", table_id="x", state="stopped", reason="later"),
    ]
    asked = latest_rows(rows).records["x"]
    assert (asked.request, asked.reason) == ("skip", "later")
    done = handled(asked)
    assert (done.request, done.detail) == ("", {"handled": "r1"})
    rows.append(row(4, "table", table_id="x", detail='{"handled": "r1"}'))
    assert latest_rows(rows).records["x"].request == ""
    rows.append(row(5, "request", table_id="x", request="recopy", detail='{"id": "r2"}'))
    assert latest_rows(rows).records["x"].request == "recopy"


history = st.lists(
    st.tuples(st.sampled_from(["table", "consumer", "request"]), st.sampled_from("xy")), max_size=20
)


@given(history, st.data())
def test_compaction_changes_nothing_that_counts(
    kinds: list[tuple[str, str]], data: st.DataObject
) -> None:
    rows = []
    for number, (kind, of) in enumerate(kinds, 1):
        serial = (
            number if data.draw(st.booleans()) else max(1, number - 1)
        )  # two writers at one time
        fields = {"consumer": of} if kind == "consumer" else {"table_id": of}
        detail = f'{{"id": "r{number}"}}' if kind == "request" else ""
        rows.append(
            row(serial, kind, **fields, from_lsn=number, detail=detail, request=f"q{number}")
        )
    gone = superseded(rows)
    before, after = latest_rows(rows), latest_rows([r for r in rows if r["serial"] not in gone])
    assert after == before


def test_a_table_is_found_by_the_name_that_it_had() -> None:
    swapped = renamed(record("t", serial=1), ("db", "old"), 10)
    new = renamed(record("ghost", serial=2), ("db", "t"), 10)
    dropped = record("dropped", table="old", state=TableState.DROPPED, from_lsn=3, serial=9)
    tables = [swapped, new, dropped]

    def found(name: str, lsn: int) -> str | None:
        table = find_record(tables, ("db", name), lsn)
        return table.table_id if table else None

    assert (found("t", 10), found("t", 11)) == ("t", "ghost")
    assert (found("ghost", 10), found("ghost", 11)) == ("ghost", None)
    assert (found("old", 10), found("old", 11)) == ("dropped", "t")
    again = renamed(swapped, ("db", "older"), 20)
    assert [name_at(again, lsn)[1] for lsn in (5, 10, 15, 20, 21)] == [
        "t",
        "t",
        "old",
        "old",
        "older",
    ]
    assert name_at(without_old_names(again, 10), 5) == ("db", "old")
    assert without_old_names(again, 20).detail == {}


def test_entries_of_before_a_rename_are_not_of_a_newer_table_of_the_name() -> None:
    # A copy that runs while its table is renamed needs them; a new table may have the name by the time of a restart.
    old = renamed(record("old", table="t", state=TableState.COPYING, serial=1), ("db", "u"), 10)
    new = record("new", table="t", from_lsn=20, serial=9)
    for tables in ([old, new], [new, old]):
        assert find_record(tables, ("db", "t"), 10) is old
        assert find_record(tables, ("db", "t"), 21) is new


def test_renames_are_executed_one_after_the_other() -> None:
    a, b, c = ("db", "a"), ("db", "b"), ("db", "c")
    assert names_after([a, b], [(a, c), (b, a), (c, b)]) == {a: b, b: a}
    assert names_after([a], [(a, b), (b, c)]) == {a: c}
    assert names_after([a], [(b, c)]) == {a: a}


T, GHO, DEL, U = ("db", "t"), ("db", "_t_gho"), ("db", "_t_del"), ("db", "u")


@pytest.mark.parametrize(
    ("pairs", "leaving", "arriving"),
    [
        ([(T, U)], (), ()),
        ([(T, DEL)], (T,), ()),
        ([(DEL, T)], (), (T,)),
        ([(DEL, GHO)], (), ()),
        ([(T, DEL), (GHO, T)], (T,), (T,)),
        ([(T, DEL), (U, T)], (T,), ()),
        ([(T, U), (GHO, T)], (), (T,)),
        ([(T, DEL), (DEL, U)], (), ()),
        ([(T, U), (U, DEL)], (T,), ()),
    ],
)
def test_a_rename_to_and_from_excluded_names(
    pairs: list[tuple[TableName, TableName]],
    leaving: tuple[TableName, ...],
    arriving: tuple[TableName, ...],
) -> None:
    assert crossings(pairs, lambda name: name[1].startswith("_")) == Crossings(leaving, arriving)


def test_a_swap_moves_folders_and_takes_the_place_of_a_dropped_table() -> None:
    tables = {
        ("db", "t"): record("t", folder="db/t", from_lsn=1),
        ("db", "ghost"): record("ghost", folder="db/ghost"),
        ("db", "old"): record("old", folder="db/old", state=TableState.DROPPED),
    }
    pairs = [(("db", "t"), ("db", "old")), (("db", "ghost"), ("db", "t"))]
    after = {r.table_id: r for r in records_after(tables, pairs, 10)}
    assert {i: (r.name[1], r.folder, r.detail.get(MOVED_FROM)) for i, r in after.items()} == {
        "t": ("old", "db/old", "db/t"),
        "ghost": ("t", "db/t", "db/ghost"),
        "old": ("old", "", None),
    }
    assert after["t"].from_lsn == after["ghost"].from_lsn == 10


@pytest.mark.parametrize(
    ("state", "expected", "from_lsn"),
    [
        (TableState.COMPLETE, TableState.COMPLETE, 10),
        (TableState.STOPPED, TableState.STOPPED, 4),
        (TableState.COPYING, TableState.CREATING, 10),
    ],
)
def test_a_rename_of_a_table_that_is_not_live(
    state: TableState, expected: TableState, from_lsn: int
) -> None:
    pairs = [(("db", "t"), ("db", "u"))]
    (after,) = records_after({("db", "t"): record("t", state=state, from_lsn=4)}, pairs, 10)
    assert (after.state, after.from_lsn, after.name) == (expected, from_lsn, ("db", "u"))


def test_a_rename_during_a_copy_begins_it_again_and_one_behind_it_does_not() -> None:
    # Between S and R the rows of another table may have been read by the old name.
    detail = {"begin": {}, "executed": {}, "goal": "complete", "passed": 10}
    copied = record("t", state=TableState.COPYING, from_lsn=4, detail=detail)
    pairs = [(("db", "t"), ("db", "u"))]
    (within,) = records_after({("db", "t"): copied}, pairs, 10)
    assert (within.state, within.name) == (TableState.CREATING, ("db", "u"))
    assert within.detail == {"names": [[10, "db", "t"]]}
    (behind,) = records_after({("db", "t"): copied}, pairs, 11)
    assert (behind.state, behind.name, behind.from_lsn) == (TableState.COPYING, ("db", "u"), 4)
    assert behind.detail == detail | {"names": [[11, "db", "t"]]}


class SlowControl:
    """A control table whose first write ends last, if it is not the only one."""

    def __init__(self, table: TableRecord) -> None:
        self.newest = {table.table_id: table}
        self.serial = 0
        self.first, self.second = threading.Event(), threading.Event()

    def records(self) -> dict[str, TableRecord]:
        return dict(self.newest)

    def named_requests(self, _consumer: str) -> dict[TableName, str]:
        return {}

    def write(self, *records: TableRecord) -> None:
        self.serial += 1
        self.newest |= {r.table_id: replace(r, serial=self.serial) for r in records}
        if self.serial == 1:
            self.first.set()
            self.second.wait(0.2)


def test_the_directory_has_the_record_that_was_written_last() -> None:
    table = renamed(record("t", consumer="c"), ("db", "u"), 10)
    control = SlowControl(table)
    directory = TableDirectory("c", cast(ControlTable, control), str)
    slow = threading.Thread(
        target=directory.change, args=(lambda now: without_old_names(now, 10), "t")
    )
    slow.start()
    control.first.wait()
    directory.save(replace(table, signature="new"))
    control.second.set()
    slow.join()
    assert directory.record("t") == control.newest["t"]
    assert directory.record("t").signature == "new"


@pytest.mark.parametrize(
    ("request_", "state", "goal", "from_lsn"),
    [
        ("applied", TableState.STOPPED, "complete", 8),
        ("skip", TableState.STOPPED, "partial", 8),
        ("partial", TableState.STOPPED, "partial", 7),
        ("retry", TableState.STOPPED, "complete", 7),
        ("recopy", TableState.CREATING, None, 7),
        ("copy", TableState.CREATING, None, 7),
    ],
)
def test_what_a_request_makes_of_a_stopped_table(
    request_: str, state: TableState, goal: str | None, from_lsn: int
) -> None:
    detail = {"failed": 8, "was": "complete", "asked": {"id": "r"}, "exact_from": 2}
    before = record("t", state=TableState.STOPPED, from_lsn=7, request=request_, detail=detail)
    after = after_request(before)
    assert (after.state, after.detail.get("goal"), after.from_lsn) == (state, goal, from_lsn)
    assert (after.request, after.detail["handled"]) == ("", "r")
    assert ("exact_from" in after.detail) == (request_ == "retry")


def test_a_request_to_go_on_does_not_concern_a_live_table() -> None:
    before = record("t", request="skip", detail={"asked": {"id": "r"}})
    after = after_request(before)
    assert (after.state, after.detail) == (TableState.COMPLETE, {"handled": "r"})
