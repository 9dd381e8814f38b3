"""Which work of each table results from the entries of the log, and which work can be executed next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.plan import (
    GapItem,
    RenameBarrier,
    RowRun,
    StatementItem,
    UnclearItem,
    WorkItem,
    next_work,
    route,
)
from spark_sink.mirror.rules.queues import TableQueues
from spark_sink.mirror.rules.table_queue import ENTRIES_MAX
from spark_sink.mirror.schema.statements import (
    AlterTable,
    CreateTable,
    DropDatabase,
    DropTable,
    RenameTables,
    TableEffect,
    TruncateTable,
    effects_of,
)
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.source.raw_entries import EntryKind
from tests.support.statements import as_logged

A, B, C = ("db", "a"), ("db", "b"), ("db", "c")


def entry(lsn: int, table: str = "", **fields: Any) -> LogEntry:
    values: dict[str, Any] = dict.fromkeys(
        (
            "epoch",
            "first_seq",
            "last_seq",
            "rows",
            "inserts",
            "updates",
            "deletes",
            "payload_bytes",
            "pos",
        ),
        0,
    )
    values |= {
        "database": "db",
        "layout": "l",
        "table_map": b"",
        "payload": b"",
        "statement": None,
        "file": "",
    }
    values |= {"kind": EntryKind.ROWS, "committed_at": None, "position": None}
    return LogEntry(lsn=lsn, table=table, **(values | fields))


def statement(lsn: int, query: str = "") -> LogEntry:
    return entry(lsn, kind=EntryKind.STATEMENT, statement=as_logged(query, "db"))


def routed(
    item: LogEntry, effects: Sequence[TableEffect], known: Sequence[tuple[str, str]] = ()
) -> list[tuple[tuple[str, str], WorkItem]]:
    return route(item, lambda *_: effects, lambda: known, lambda name: name == C)


# -- routing -----------------------------------------------------------------------------------------------


def test_rows_go_to_their_table_and_excluded_tables_get_none() -> None:
    one = entry(1, "a")
    assert routed(one, []) == [(A, one)]
    assert routed(entry(1, "c"), []) == []


def test_a_statement_goes_to_each_of_its_tables_with_its_own_effects() -> None:
    effects = [DropTable(A), DropTable(B), DropTable(C), DropTable(A)]
    items = dict(routed(statement(1), effects))
    assert list(items) == [A, B]
    item = items[A]
    assert isinstance(item, StatementItem)
    assert item.effects == (DropTable(A), DropTable(A))


def test_a_rename_is_one_barrier_of_all_its_tables() -> None:
    effects: list[TableEffect] = [AlterTable(A, copy_reason="x"), RenameTables(((A, C), (B, A)))]
    items = routed(statement(1), effects)
    assert [name for name, _ in items] == [A, C, B]
    (barrier,) = {id(item) for _, item in items}
    assert isinstance(items[0][1], RenameBarrier)
    assert items[0][1].effects == tuple(effects)
    assert id(items[0][1]) == barrier


def test_a_dropped_database_concerns_the_tables_that_are_known_in_it() -> None:
    known = [A, ("other", "a"), B, A]
    items = routed(statement(1), [DropDatabase("db")], known)
    assert [name for name, _ in items] == [A, B]
    assert all(isinstance(item, StatementItem) for _, item in items)


def test_a_gap_concerns_all_known_tables() -> None:
    end = entry(1, kind=EntryKind.END, gap=True)
    assert routed(end, [], [A, B]) == [(A, GapItem(end)), (B, GapItem(end))]
    assert routed(entry(1, kind=EntryKind.END), [], [A, B]) == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("FROBNICATE TABLE db.`b` HARD", [B]),
        ("FROBNICATE A", [A, ("other", "a")]),
        ("FROBNICATE EVERYTHING", [A, B]),
        ("FROBNICATE 'an unclosed text", [A, B]),
    ],
)
def test_a_statement_that_is_not_understood_concerns_the_tables_that_it_names(
    query: str, names: list[tuple[str, str]]
) -> None:
    error = BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "not understood")

    def read(*_: Any) -> list[TableEffect]:
        raise error

    item = statement(1, query)
    items = route(item, read, lambda: [A, B, ("other", "a")], lambda _: False)
    assert items == [(name, UnclearItem(item, error)) for name in names]


# -- steps -------------------------------------------------------------------------------------------------


def test_a_run_ends_at_a_statement_another_layout_another_epoch_and_its_limits() -> None:
    rows = [entry(i, "a", payload_bytes=10) for i in range(5)]

    def run(items: list[WorkItem], bytes_max: int = 1000, entries_max: int = 100) -> int:
        work, count = next_work(items, bytes_max, entries_max)
        assert isinstance(work, RowRun)
        assert len(work.entries) == count
        return count

    assert run([*rows]) == 5
    assert run([*rows[:2], StatementItem(statement(2), ()), *rows[3:]]) == 2
    assert run([*rows[:3], entry(3, "a", layout="m")]) == 3
    assert run([*rows[:1], entry(1, "a", epoch=2)]) == 1
    assert run([*rows], bytes_max=25) == 2
    assert run([*rows], bytes_max=1) == 1
    assert run([*rows], entries_max=3) == 3


def test_a_run_knows_its_size_and_what_is_behind_an_lsn() -> None:
    run = RowRun(tuple(entry(i, "a", rows=2, inserts=2, payload_bytes=5) for i in (3, 5, 9)))
    assert (run.lsn, run.rows, run.payload_bytes, run.only_inserts) == (9, 6, 15, True)
    rest = run.after(3)
    assert rest is not None
    assert [e.lsn for e in rest.entries] == [5, 9]
    assert run.after(9) is None
    assert not RowRun((entry(1, "a", rows=2, inserts=1),)).only_inserts


# -- queues ------------------------------------------------------------------------------------------------


def queues(*items: tuple[tuple[str, str], WorkItem]) -> TableQueues:
    made = TableQueues(1 << 20)
    for name, item in items:
        made.add(name, item)
    return made


def test_tables_are_independent_and_the_oldest_goes_first() -> None:
    q = queues((B, entry(2, "b")), (A, entry(1, "a")), (A, entry(3, "a")))
    first, second = q.start(0), q.start(0)
    assert first is not None
    assert second is not None
    assert (first.names, second.names) == ((A,), (B,))
    assert q.start(0) is None
    q.add(A, entry(4, "a"))
    assert q.start(0) is None
    assert q.watermark(4) == 0
    assert (q.dealt_with(A, 4), q.dealt_with(B, 4), q.dealt_with(C, 4)) == (0, 1, 4)
    q.done(first)
    assert q.watermark(4) == 1
    assert (q.dealt_with(A, 4), q.dealt_with(B, 4)) == (3, 1)
    third = q.start(0)
    assert third is not None
    assert third.work.lsn == 4
    q.done(second)
    q.done(third)
    assert (q.watermark(4), q.items, q.held, list(q.names())) == (4, 0, 0, [])


def test_a_pause_and_a_failure() -> None:
    q = queues(*((A, entry(lsn, "a")) for lsn in (1, 2, 3)))
    step = q.start(0)
    assert step is not None
    q.again(step, 5.0, alone=True)
    assert q.start(4.9) is None
    assert (q.next_time(4.9), q.next_time(5.0)) == (5.0, None)
    alone = q.start(5.0)
    assert alone is not None
    assert isinstance(alone.work, RowRun)
    assert len(alone.work.entries) == 1
    q.done(alone, 9.0)
    rest = q.start(5.0)
    assert rest is not None
    assert rest.work.lsn == 3
    q.done(rest, 9.0)
    q.add(A, entry(4, "a"))
    assert q.start(8.0) is None
    assert q.start(9.0) is not None
    assert ENTRIES_MAX > 2


def test_a_barrier_waits_for_all_its_tables_and_holds_them() -> None:
    barrier = RenameBarrier(statement(2), (), (A, B))
    q = queues(
        (A, entry(1, "a")), (A, barrier), (B, barrier), (B, entry(3, "b")), (C, entry(4, "c"))
    )
    first = q.start(0)
    assert first is not None
    assert first.names == (A,)
    other = q.start(0)  # the barrier waits for A, and B for the barrier
    assert other is not None
    assert other.names == (C,)
    assert q.start(0) is None
    q.done(first)
    rename = q.start(0)
    assert rename is not None
    assert (rename.names, rename.work) == ((A, B), barrier)
    assert q.start(0) is None
    q.done(rename)
    last = q.start(0)
    assert last is not None
    assert last.names == (B,)


names = st.sampled_from([A, B, C])
events = st.one_of(
    names.map(lambda name: (name,)),
    st.lists(names, min_size=2, max_size=3, unique=True).map(tuple),
)


@given(st.lists(events, max_size=30), st.data())
def test_whatever_finishes_first_each_table_gets_its_work_in_order_and_all_ends(
    history: list[tuple[tuple[str, str], ...]], data: st.DataObject
) -> None:
    q = TableQueues(1 << 20)
    expected = defaultdict(list)
    for lsn, tables in enumerate(history, 1):
        for name in tables:
            expected[name].append(lsn)
        if len(tables) == 1:
            q.add(tables[0], entry(lsn, tables[0][1], layout=data.draw(st.sampled_from("lm"))))
        else:
            barrier = RenameBarrier(statement(lsn), (), tables)
            for name in tables:
                q.add(name, barrier)
    done: dict[tuple[str, str], list[int]] = defaultdict(list)
    running = []
    while True:
        while (step := q.start(0)) is not None:
            running.append(step)
        if not running:
            break
        step = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            q.again(step, 0.0, alone=True)
            continue
        for name in step.names:
            work = step.work
            done[name] += [e.lsn for e in work.entries] if isinstance(work, RowRun) else [work.lsn]
        q.done(step)
        finished = {lsn for lsns in done.values() for lsn in lsns}
        missing = [lsn for name in expected for lsn in expected[name] if lsn not in done[name]]
        assert q.watermark(len(history)) == min(missing, default=len(history) + 1) - 1
        assert finished <= set(range(1, len(history) + 1))
    assert done == expected


def test_effects_that_are_not_renames_are_statements() -> None:
    effects: list[TableEffect] = [CreateTable(A), TruncateTable(A)]
    for effect in effects:
        ((name, item),) = routed(statement(1), [effect])
        assert (name, item) == (A, StatementItem(statement(1), (effect,)))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("TRUNCATE TABLE A", [A]),
        ("RENAME TABLE A TO D, b TO A", [A, ("db", "d"), B]),
        ("CLEAN `A`", [A]),
        ("CLEAN `ghost`", [A, B]),
        ("DROP DATABASE DB", [A, B]),
    ],
)
def test_a_statement_concerns_the_tables_that_the_server_means(
    query: str, names: list[tuple[str, str]]
) -> None:
    for value in (1, 2):
        logged = as_logged(query, "DB", lower_case_table_names=value)
        item = entry(1, kind=EntryKind.STATEMENT, statement=logged)
        items = route(item, effects_of, lambda: [A, B], lambda _: False)
        assert [name for name, _ in items] == names
    exact = entry(1, kind=EntryKind.STATEMENT, statement=as_logged(query, "DB"))
    assert not {A} & {
        name for name, _ in route(exact, effects_of, lambda: [A], lambda _: False)
    } or (query.startswith("CLEAN"))
