"""Which rows of the control table are valid, and which table a name in the log denotes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.position import Position
from spark_sink.mirror.rules.control_rows import (
    ClaimedStage,
    latest_rows,
    row_of,
    rows_after,
    superseded,
)
from spark_sink.mirror.rules.records import (
    find_record,
    name_at,
    renamed,
    without_old_names,
)
from spark_sink.mirror.rules.renames import (
    Crossings,
    crossings,
    names_after,
    names_in_the_way,
    records_after,
)
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    LeftOut,
    Live,
    Replaying,
    State,
    Stopped,
)
from spark_sink.mirror.rules.table_record import (
    FormerName,
    Move,
    Request,
    TableRecord,
    Wish,
    answering,
    handled,
)
from spark_sink.mirror.values.names import TableName

AT = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN, EXECUTED = (Position("s", "", "f.1", at, 0, 0) for at in (4, 9))


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
    if kind == "table":
        values |= {"detail": row_of(record("x"))["detail"]}
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
    assert latest_rows(rows).claimed == {"shop": AT.replace(tzinfo=UTC)}
    assert superseded(rows) == {1}


def test_a_request_stands_until_a_row_of_the_table_names_it() -> None:
    rows = [
        row(1, "table", table_id="x", state="stopped"),
        row(2, "request", table_id="x", request="skip", detail='{"id": "r1"}'),
        # The applier has written this row before it has seen the request.
        row(3, "table", table_id="x", state="stopped", reason="later"),
    ]
    asked = latest_rows(rows).records["x"]
    assert (asked.request, asked.reason) == (Request("r1", Wish.SKIP), "later")
    done = handled(asked)
    assert (done.request, done.handled) == (None, "r1")
    rows.append(row_of(done) | {"serial": 4, "at": AT})
    assert latest_rows(rows).records["x"].request is None
    rows.append(row(5, "request", table_id="x", request="recopy", detail='{"id": "r2"}'))
    assert latest_rows(rows).records["x"].request == Request("r2", Wish.RECOPY)


def test_a_request_for_a_copy_stands_until_a_record_answers_it() -> None:
    names = {"consumer": "shop", "database": "db", "table": "t", "table_id": ""}
    rows = [row(1, "request", **names, request="copy", detail='{"id": "r1"}')]
    assert latest_rows(rows).named == {("shop", ("db", "t")): "r1"}
    answered = answering(record("t"), "db.t", "r1")
    rows.append(row_of(answered) | {"serial": 2, "at": AT})
    assert latest_rows(rows).named == {}
    # The table may have another name by now; the request is found by the table's id.
    rows[1] |= {"table": "u"}
    assert latest_rows(rows).named == {}
    rows.append(row(3, "request", **names, request="copy", detail='{"id": "r2"}'))
    assert latest_rows(rows).named == {("shop", ("db", "t")): "r2"}
    asked = replace(answered, request=Request("r2", Wish.COPY, "db.t"))
    assert handled(asked).answered == {"db.t": "r2"}
    assert handled(asked).handled == ""


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
        )  # two writers at the same time
        fields = {"consumer": of} if kind == "consumer" else {"table_id": of}
        if kind == "request":
            fields |= {"detail": f'{{"id": "r{number}"}}'}
        rows.append(row(serial, kind, **fields, from_lsn=number, request="retry"))
    gone = superseded(rows)
    before, after = latest_rows(rows), latest_rows([r for r in rows if r["serial"] not in gone])
    assert after == before


kinds = st.sampled_from(["record", "handled", "answered", "history", "by id", "by name", "claim"])


@given(st.lists(st.tuples(kinds, st.sampled_from("xy")), max_size=20), st.data())
def test_rows_that_are_read_later_count_as_if_all_were_read_together(
    written: list[tuple[str, str]], data: st.DataObject
) -> None:
    rows, found, last = list[dict[str, Any]](), latest_rows([]), 0
    for number, (kind, of) in enumerate(written, 1):
        asked = f"r{data.draw(st.integers(1, number))}"
        made = record(of, from_lsn=number)
        of_name = {"consumer": "shop", "database": "db", "table": of, "table_id": ""}
        new = {
            "record": row_of(made),
            "handled": row_of(replace(made, handled=asked)),
            "answered": row_of(answering(made, f"db.{of}", asked)),
            "history": row_of(replace(made, table_id=f"h{of}", history=True)),
            "by id": row(
                0, "request", table_id=of, request="retry", detail=f'{{"id": "r{number}"}}'
            ),
            "by name": row(
                0, "request", **of_name, request="copy", detail=f'{{"id": "r{number}"}}'
            ),
            "claim": row(0, "claim", consumer="shop", state="log", request=f"{number}"),
        }[kind]
        rows.append(new | {"serial": number, "at": AT})
        if data.draw(st.booleans()):
            found, last = rows_after(found, rows[last:]), number
    assert rows_after(found, rows[last:]) == latest_rows(rows)


def test_a_table_is_found_by_the_name_that_it_had() -> None:
    swapped = renamed(record("t", serial=1), ("db", "old"), 10)
    new = renamed(record("ghost", serial=2), ("db", "t"), 10)
    dropped = record("dropped", table="old", state=Dropped(), from_lsn=3, serial=9)
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
    assert without_old_names(again, 20).names == ()


def test_entries_of_before_a_rename_are_not_of_a_newer_table_of_the_name() -> None:
    # A copy that runs while its table is renamed needs these entries. At a restart, a new table may have the old name.
    old = renamed(record("old", table="t", state=Copying(BEGIN), serial=1), ("db", "u"), 10)
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
        ("db", "old"): record("old", folder="db/old", state=Dropped()),
    }
    pairs = [(("db", "t"), ("db", "old")), (("db", "ghost"), ("db", "t"))]
    after = {r.table_id: r for r in records_after(tables, pairs, 10)}
    assert {i: (r.name[1], r.folder, r.move) for i, r in after.items()} == {
        "t": ("old", "db/old", Move("db/t")),
        "ghost": ("t", "db/t", Move("db/ghost")),
        "old": ("old", "", None),
    }
    assert after["t"].from_lsn == after["ghost"].from_lsn == 10


@pytest.mark.parametrize(
    ("state", "expected", "from_lsn"),
    [
        (Live(exact_from=2), Live(exact_from=2), 10),
        (LeftOut(3), LeftOut(3), 10),
        (Stopped(5, Live()), Stopped(5, Live()), 4),
        (CatchingUp(Live()), CatchingUp(Live()), 4),
        (Creating(), Creating(), 10),
        (Copying(BEGIN), Creating(), 10),
        (Copied(BEGIN, EXECUTED), Creating(), 10),
        # Between S and R, the old name may have belonged to another table, whose rows the copy may have read.
        (Replaying(BEGIN, EXECUTED, True, 10), Creating(), 10),
        (Replaying(BEGIN, EXECUTED, True, 9), Replaying(BEGIN, EXECUTED, True, 9), 4),
        (CatchingUp(Live(), passed=10), Creating(), 10),
        (CatchingUp(Live(), passed=9), CatchingUp(Live(), passed=9), 4),
    ],
)
def test_what_a_rename_makes_of_a_table(state: State, expected: State, from_lsn: int) -> None:
    pairs = [(("db", "t"), ("db", "u"))]
    (after,) = records_after({("db", "t"): record("t", state=state, from_lsn=4)}, pairs, 10)
    assert (after.state, after.from_lsn, after.name) == (expected, from_lsn, ("db", "u"))
    assert after.names == (FormerName(10, "db", "t"),)


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        ([(U, T)], [T]),
        ([(U, T), (T, U)], []),
        ([(T, DEL), (U, T)], []),
        ([(U, DEL), (DEL, T)], [T]),
        ([(T, U)], [U]),
        ([(GHO, T)], []),
    ],
)
def test_tables_are_in_the_way_whose_names_others_get(
    pairs: list[tuple[TableName, TableName]], names: list[TableName]
) -> None:
    known = {T: record("t"), U: record("u"), DEL: record("d", state=Dropped())}
    assert names_in_the_way(known, pairs) == names


def test_a_dropped_table_loses_its_place_to_one_without_rows() -> None:
    known = {
        T: record("gone", table="t", folder="db/t", state=Dropped()),
        U: record("u", folder=""),
    }
    after = {r.table_id: r for r in records_after(known, [(U, T)], 9)}
    assert (after["u"].name, after["u"].folder, after["gone"].folder) == (T, "", "")


def test_an_entry_is_of_the_table_that_was_dropped_behind_it() -> None:
    """The record of the table that was dropped earlier is newer, because a request about it was answered."""
    earlier = TableRecord("1", "shop", "db", "t", state=Dropped(), from_lsn=6, serial=9)
    later = TableRecord("2", "shop", "db", "t", state=Dropped(), from_lsn=16, serial=4)
    for records in ([earlier, later], [later, earlier]):
        assert find_record(records, ("db", "t"), 12) is later
        assert find_record(records, ("db", "t"), 16) is later
