"""How a RENAME changes names and records, for any tables and any renames."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.records import find_record, name_at, renamed, without_old_names
from spark_sink.mirror.rules.renames import (
    crossings,
    folder_of,
    misses,
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
    Failing,
    Live,
    Replaying,
    State,
    Stopped,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.transitions import faulted
from spark_sink.mirror.values.names import TableName, table_label
from tests.mirror.printed import commands

NAMES = [("shop", name) for name in "abcde"]
LSN = 500
AT = Position("server", "", "binlog.000001", 4, 4, 1)
STATES: list[State] = [
    Live(),
    Live(complete=False),
    Creating(),
    Copying(AT),
    Copied(AT, AT),
    Replaying(AT, AT, False, LSN + 1),
    Replaying(AT, AT, False, LSN - 1),
    Stopped(5, Live()),
    CatchingUp(Live()),
    CatchingUp(Live(), passed=LSN - 1),
    Dropped(),
]

Pairs = list[tuple[TableName, TableName]]


@st.composite
def renames(draw: st.DrawFn, known: set[TableName]) -> Pairs:
    """Draws the pairs of a RENAME that a server can execute: for each pair, a table has the old name, and no table has
    the new name."""
    tables, pairs = set(known), []
    for _ in range(draw(st.integers(1, 4))):
        free = [name for name in NAMES if name not in tables]
        if not tables or not free:
            break
        pair = draw(st.sampled_from(sorted(tables))), draw(st.sampled_from(free))
        tables = tables - {pair[0]} | {pair[1]}
        pairs.append(pair)
    return pairs


@st.composite
def statements(draw: st.DrawFn) -> tuple[dict[TableName, TableRecord], Pairs]:
    """Draws records, by table name, and the pairs of a RENAME. The server may have tables without a record."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    records = {}
    for number, name in enumerate(names):
        state = draw(st.sampled_from(STATES))
        folder = folder_of(name) if draw(st.booleans()) else ""
        records[name] = TableRecord(
            f"t{number}", "shop", *name, folder=folder, state=state, from_lsn=LSN - 10
        )
    on_server = {name for name, record in records.items() if not record.is_dropped}
    unknown = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    return records, draw(renames(on_server | set(unknown)))


def _after(records: dict[TableName, TableRecord], pairs: Pairs) -> list[TableRecord]:
    """Returns the records that a RENAME changes. Tables in the way are dropped before it."""
    in_the_way = names_in_the_way(records, pairs)
    dropped = {name: replace(records[name], state=Dropped()) for name in in_the_way}
    after = {r.table_id: r for r in dropped.values()}
    after |= {r.table_id: r for r in records_after(records | dropped, pairs, LSN)}
    return list(after.values())


@given(st.data())
def test_names_are_those_of_renames_executed_one_after_the_other(data: st.DataObject) -> None:
    names = set(data.draw(st.lists(st.sampled_from(NAMES), unique=True)))
    pairs = data.draw(renames(names))
    tables = {name: name for name in names}  # old names by new names
    for old, new in pairs:
        tables[new] = tables.pop(old)
    assert names_after(names, pairs) == {before: now for now, before in tables.items()}


@given(statements())
def test_tables_keep_their_ids_and_each_name_has_one_table(
    statement: tuple[dict[TableName, TableRecord], Pairs],
) -> None:
    records, pairs = statement
    changed = _after(records, pairs)
    before = {record.table_id: record for record in records.values()}
    after = before | {record.table_id: record for record in changed}
    assert after.keys() == before.keys()
    assert len(changed) == len({record.table_id for record in changed})
    live = [record for record in after.values() if not record.is_dropped]
    assert max(Counter(record.name for record in live).values(), default=0) <= 1
    folders = [record.folder for record in after.values() if record.folder]
    assert len(folders) == len(set(folders))
    for record in live:
        assert record.name == names_after([before[record.table_id].name], pairs).popitem()[1]


@given(statements())
def test_a_renamed_table_is_found_by_the_name_of_the_time(
    statement: tuple[dict[TableName, TableRecord], Pairs],
) -> None:
    records, pairs = statement
    changed = {record.table_id: record for record in _after(records, pairs)}
    after = [changed.get(record.table_id, record) for record in records.values()]
    for name, before in records.items():
        record = changed.get(before.table_id)
        if record is None or record.is_dropped:
            continue
        assert (name_at(record, LSN), name_at(record, LSN + 1)) == (name, record.name)
        for lsn, had in ((LSN, name), (LSN + 1, record.name)):
            found = find_record(after, had, lsn)
            assert found is not None and found.table_id == record.table_id
        assert record.from_lsn in (before.from_lsn, LSN)
        assert without_old_names(record, LSN - 1) == record
        assert without_old_names(record, LSN).names == ()


@given(statements())
def test_a_table_misses_a_rename_that_has_not_made_anything_of_it(
    statement: tuple[dict[TableName, TableRecord], Pairs],
) -> None:
    records, pairs = statement
    changed = _after(records, pairs)
    before = {record.table_id: record for record in records.values()}
    for record in changed:
        if not before[record.table_id].is_dropped:
            assert misses(before[record.table_id], pairs, LSN)
            assert record.is_dropped or not misses(record, pairs, LSN)
    concerned = {name for pair in pairs for name in pair}
    for record in records.values():
        assert record.name in concerned or not misses(record, pairs, LSN)


@given(statements(), st.sets(st.sampled_from(NAMES)))
def test_tables_cross_between_mirrored_and_excluded_names(
    statement: tuple[dict[TableName, TableRecord], Pairs], excluded: set[TableName]
) -> None:
    _, pairs = statement
    origins: dict[TableName, TableName] = {}  # old names by new names
    for old, new in pairs:
        origins[new] = origins.pop(old, old)
    crossed = crossings(pairs, excluded.__contains__)
    gone = {old for new, old in origins.items() if new in excluded and old not in excluded}
    come = {new for new, old in origins.items() if old in excluded and new not in excluded}
    assert (set(crossed.leaving), set(crossed.arriving)) == (gone, come)


# -- reasons ---------------------------------------------------------------------------------------------------------

_ODD_NAMES = ["t", "tt", "t__history", "new table", "o'brien", "a$b", "t.t", "-t", "日本", "shop"]


def _named(reason: str) -> set[str]:
    """Returns the labels in the commands of a reason, as a shell reads them."""
    return {shlex.split(command)[4] for command in commands(reason)}


@pytest.mark.parametrize("new", _ODD_NAMES)
@pytest.mark.parametrize("old", _ODD_NAMES)
def test_the_reason_of_a_table_follows_its_rename(old: str, new: str) -> None:
    label, now = table_label(("shop", old)), table_label(("shop", new))
    texts = [
        remedies.of_entry(label),
        f"table {label} has no key, see /lake/{label}/x, {label}x and {label}: {remedies.of_statement(label)}",
        remedies.of_cascades(label),
        remedies.of_unknown_table(label, can_copy=True),
    ]
    for text in texts:
        assert _named(text) == {label}
        states: list[State] = [
            Stopped(5, Live()),
            Live(failing=Failing(7, text)),
            CatchingUp(Live(), reason_before=text),
        ]
        for state in states:
            record = TableRecord("t1", "shop", "shop", old, state=state, reason=text)
            after = renamed(record, ("shop", new), LSN)
            assert _named(after.reason) == {now}
            match after.state:
                case Live(failing=Failing(reason_before=before)) | CatchingUp(reason_before=before):
                    assert before == after.reason
            assert renamed(after, ("shop", old), LSN + 1).reason == text


def test_the_rest_of_a_reason_does_not_change() -> None:
    text = "table shop.t of /lake/shop.t/x, not shop.t2, my.shop.t, shop.t__history; see shop.t."
    record = TableRecord("t1", "shop", "shop", "t", state=Stopped(5, Live()), reason=text)
    assert renamed(record, ("shop", "new"), LSN).reason == (
        "table shop.new of /lake/shop.t/x, not shop.t2, my.shop.t, shop.t__history; see shop.new."
    )


def test_a_fault_of_an_entry_before_a_rename_names_the_table_of_now() -> None:
    record = TableRecord("t1", "shop", "shop", "old", state=CatchingUp(Live()))
    record = renamed(record, ("shop", "new"), LSN)
    fault = BinlogError(
        ErrorKind.ROW_IMAGE, "rows of shop.old lack v", remedy=remedies.of_copy_again("shop.old")
    )
    before = faulted(record, fault, LSN - 1)
    assert before.reason.count("shop.new") == 2 and "shop.old" not in before.reason
    assert _named(faulted(record, fault, LSN + 1).reason) == {"shop.old"}
