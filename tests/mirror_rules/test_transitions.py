"""What statements, unknown rows, gaps and faults make of a table's record."""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.rules.transitions import (
    DeltaWork,
    Situation,
    after_effect,
    after_gap,
    conflicting,
    copied_again,
    faulted,
    in_copy,
    needs_copy,
    stopped,
    unknown_rows,
)
from spark_sink.mirror.rules.upkeep import days_to_forget, needs_compaction, oldest_needed
from spark_sink.mirror.schema.statements import AlterTable, CreateTable, DropTable, TruncateTable
from spark_sink.mirror.values.faults import fault_of, in_one_line, is_conflict
from spark_sink.mirror.values.policies import (
    Deletes,
    MetadataColumn,
    PurgedChanges,
    TablePolicy,
    UnknownTables,
)
from spark_sink.mirror.values.policies import UnfollowedChange as Unfollowed
from spark_sink.source.raw_entries import EntryKind
from tests.mirror_rules.test_plan import entry, statement

NAME = ("db", "t")


def now(*, can_copy: bool = False, **policy: Any) -> Situation:
    return Situation("shop", "server", TablePolicy(**policy), can_copy, InvalidDates.NULL)


def record(state: TableState = TableState.COMPLETE, **fields: Any) -> TableRecord:
    values: dict[str, Any] = {"folder": "db/t", "signature": "s", "epoch": 1, "from_lsn": 5}
    values |= {"reason": "r"} | fields
    return TableRecord("id", "shop", *NAME, state=state, **values)


EXISTING = [state for state in TableState if state is not TableState.DROPPED]


@pytest.mark.parametrize("state", [None, *TableState])
def test_a_table_that_is_created_is_complete_and_exact(state: TableState | None) -> None:
    before = None if state is None else record(state)
    moved = after_effect(NAME, before, CreateTable(NAME), statement(9), now())
    after = moved.record
    assert after is not None
    assert (after.state, after.from_lsn, after.signature, after.reason) == ("complete", 9, "", "")
    assert after.detail == {"exact_from": 9}
    assert (after.table_id == "id", after.folder) == (before is not None, "db/t" if before else "")
    # One that exists was dropped in a way that the log does not hold.
    assert moved.work is (DeltaWork.DROP if state in EXISTING else DeltaWork.NOTHING)


@pytest.mark.parametrize("state", EXISTING)
def test_create_if_not_exists_does_nothing_to_a_table_that_exists(state: TableState) -> None:
    effect = CreateTable(NAME, if_not_exists=True)
    assert after_effect(NAME, record(state), effect, statement(9), now()).record == record(state)
    replacing = dataclasses.replace(effect, replaces=True)
    moved = after_effect(NAME, record(state), replacing, statement(9), now())
    assert moved.work is DeltaWork.DROP


@pytest.mark.parametrize("state", EXISTING)
def test_drop_and_truncate_settle_a_table_in_any_state(state: TableState) -> None:
    before = record(state, detail={"goal": "complete", "failed": 6, "handled": "h", "begin": {}})
    dropped = after_effect(NAME, before, DropTable(NAME), statement(9), now())
    assert dropped.record is not None
    assert (dropped.record.state, dropped.work) == (TableState.DROPPED, DeltaWork.DROP)
    assert (dropped.record.from_lsn, dropped.record.detail) == (9, {"handled": "h"})
    emptied = after_effect(NAME, before, TruncateTable(NAME), statement(9), now()).record
    assert emptied is not None
    assert (emptied.state, emptied.from_lsn) == (TableState.COMPLETE, 9)
    assert emptied.detail == {"handled": "h", "exact_from": 9}


def test_a_truncated_table_keeps_its_columns_if_they_are_known() -> None:
    effect = TruncateTable(NAME)
    live = after_effect(NAME, record(), effect, statement(9), now())
    assert live.record is not None
    assert (live.record.signature, live.work) == ("s", DeltaWork.TRUNCATE)
    standing = after_effect(NAME, record(TableState.STOPPED), effect, statement(9), now())
    assert standing.record is not None
    assert (standing.record.signature, standing.work) == ("", DeltaWork.DROP)
    unknown = after_effect(NAME, None, effect, statement(9), now()).record
    assert unknown is not None
    assert unknown.state is TableState.COMPLETE


def test_a_drop_of_an_unknown_table_is_nothing() -> None:
    assert after_effect(NAME, None, DropTable(NAME), statement(9), now()).record is None
    gone = record(TableState.DROPPED)
    assert after_effect(NAME, gone, DropTable(NAME), statement(9), now()).record == gone


def test_an_alter_before_the_first_rows_and_one_that_changes_rows() -> None:
    fresh = record(signature="", folder="")
    copying = AlterTable(NAME, copy_reason="PARTITION BY")
    moved = after_effect(NAME, fresh, copying, statement(9), now())
    assert moved.record is not None
    assert (moved.record.from_lsn, moved.recopy, moved.work) == (
        9,
        "PARTITION BY",
        DeltaWork.NOTHING,
    )
    assert after_effect(NAME, record(), AlterTable(NAME), statement(9), now()).record == record()
    moved = after_effect(NAME, record(), copying, statement(9), now())
    assert moved.recopy == "PARTITION BY"


def test_an_alter_during_a_copy_begins_it_again() -> None:
    alter = AlterTable(NAME, copy_reason="x")
    for detail, again in (({"begin": {}}, True), ({"passed": 9}, True), ({"passed": 8}, False)):
        before = record(TableState.COPYING, detail=detail)
        after = after_effect(NAME, before, alter, statement(9), now()).record
        assert after == (copied_again(before) if again else before)
        assert in_copy(before, 9) is again
    stands = record(TableState.STOPPED)
    assert after_effect(NAME, stands, alter, statement(9), now()).record == stands


@pytest.mark.parametrize(
    ("unfollowed", "can_copy", "state", "from_lsn"),
    [
        (Unfollowed.RECOPY, True, TableState.CREATING, 9),
        (Unfollowed.RECOPY, False, TableState.STOPPED, 8),
        (Unfollowed.STOP, True, TableState.STOPPED, 8),
    ],
)
def test_a_table_whose_rows_are_not_known_is_copied_by_policy(
    unfollowed: Unfollowed, can_copy: bool, state: TableState, from_lsn: int
) -> None:
    situation = now(can_copy=can_copy, unfollowed=unfollowed)
    after = needs_copy(record(), "a reason", 9, situation)
    assert (after.state, after.from_lsn) == (state, from_lsn)
    assert after.reason.startswith("a reason")


def test_a_stopped_table_says_how_it_goes_on_and_what_it_was() -> None:
    after = stopped(record(TableState.PARTIAL), "why; what to do", 8, 9)
    assert after.reason == "why; what to do"
    assert (after.detail, after.from_lsn) == ({"failed": 9, "was": "partial"}, 8)
    again = stopped(after, "another", 10, 11)
    assert again.reason == "another"
    assert again.detail["was"] == "partial"


def test_a_fault_has_the_remedies_of_the_mirror_in_place_of_the_daemons() -> None:
    reason = faulted(record(), BinlogError(ErrorKind.MALFORMED_EVENT, "no event"), 9).reason
    assert reason.startswith("malformed event: no event; to have the table copied again: python")
    assert "consumers seek" not in reason


def test_a_fault_keeps_a_remedy_of_its_own() -> None:
    fault = BinlogError(ErrorKind.INVALID_VALUE, "no date", remedy="let dates become NULL")
    reason = faulted(record(), fault, 9).reason
    assert reason.startswith(
        "value that the target cannot hold: no date; let dates become NULL; to"
    )


def test_rows_of_another_history_are_applied_when_a_person_says_what_was_before_them() -> None:
    for kind, goes_on in ((ErrorKind.HISTORY_DIFFERS, 8), (ErrorKind.INVALID_VALUE, 9)):
        fault = BinlogError(kind, "why")
        stands = faulted(record(), fault, 9)
        assert stands.from_lsn == 8
        after = after_request(dataclasses.replace(stands, request="applied"))
        assert (after.from_lsn, after.epoch, after.detail["goal"]) == (goes_on, 0, "complete")


@pytest.mark.parametrize(
    ("policy", "can_copy", "state"),
    [
        (UnknownTables.STOP, True, TableState.STOPPED),
        (UnknownTables.PARTIAL, True, TableState.PARTIAL),
        (UnknownTables.COPY, True, TableState.CREATING),
        (UnknownTables.COPY, False, TableState.STOPPED),
    ],
)
def test_rows_of_an_unknown_table(policy: UnknownTables, can_copy: bool, state: TableState) -> None:
    after = unknown_rows(NAME, None, entry(9, "t"), now(can_copy=can_copy, unknown=policy))
    assert after.state is state
    assert "exact_from" not in after.detail
    assert after.from_lsn == (9 if state is TableState.CREATING else 8)
    assert after.reason


def test_a_gap_makes_a_table_partial_and_of_the_new_epoch() -> None:
    position = Position("s", "", "f.1", 4, 1, 7)
    end = entry(9, kind=EntryKind.END, gap=True, position=position)
    after = after_gap(record(detail={"exact_from": 2}), end, now())
    assert (after.state, after.epoch, after.from_lsn, after.detail) == ("partial", 7, 9, {})
    assert after.reason.endswith("copy the table: python -m spark_sink copy db.t")
    copied = after_gap(record(), end, now(can_copy=True))
    assert (copied.state, copied.signature) == (TableState.CREATING, "")
    kept = after_gap(record(), end, now(can_copy=True, purged=PurgedChanges.PARTIAL))
    assert kept.state is TableState.PARTIAL
    gone = record(TableState.DROPPED)
    assert after_gap(gone, end, now()) == gone


def test_a_table_is_not_copied_twice_for_one_difference() -> None:
    situation = now(can_copy=True)
    first = conflicting(record(), "column 'u' is uuid", 9, situation)
    assert (first.state, first.detail) == (TableState.CREATING, {"conflict": "column 'u' is uuid"})
    copied = dataclasses.replace(first, state=TableState.COMPLETE)
    other = conflicting(copied, "column 'v' is int", 20, situation)
    assert (other.state, other.detail["conflict"]) == (TableState.CREATING, "column 'v' is int")
    again = conflicting(copied, "column 'u' is uuid", 20, situation)
    # The entry 20 is tried again when the table goes on.
    assert (again.state, again.from_lsn, again.detail["failed"]) == (TableState.STOPPED, 19, 19)
    assert "python -m spark_sink resolve db.t --as applied" in again.reason
    assert conflicting(record(), "a reason", 9, now()).detail == {"failed": 9, "was": "complete"}


def test_soft_deletes_have_their_column() -> None:
    assert TablePolicy().extra == ()
    policy = TablePolicy(deletes=Deletes.SOFT, metadata=(MetadataColumn.SEQ,))
    assert policy.extra == (MetadataColumn.SEQ, MetadataColumn.DELETED)


# -- faults ------------------------------------------------------------------------------------------------


def test_a_fault_is_known_when_it_comes_from_an_executor() -> None:
    fault = BinlogError(
        ErrorKind.ROW_IMAGE, "rows lack columns", where="seq 3", remedy="do this; then that"
    )
    text = (
        f"Traceback\n  File x\ndispatcher.model.errors.BinlogError: {fault}\n\tat org.apache.spark"
    )
    found = fault_of(RuntimeError(text))
    assert found is not None
    assert (found.kind, found.what, found.remedy) == (
        fault.kind,
        "rows lack columns (seq 3)",
        fault.remedy,
    )
    assert str(found) == str(fault)
    assert fault_of(fault) is fault
    assert fault_of(RuntimeError("connection refused")) is None


def test_conflicts_of_writers_are_told_from_other_errors() -> None:
    assert is_conflict(RuntimeError("[DELTA_CONCURRENT_APPEND] files were added"))
    assert is_conflict(RuntimeError("io.delta.exceptions.ConcurrentDeleteReadException: x"))
    assert not is_conflict(RuntimeError("no space left on device"))
    assert in_one_line(RuntimeError("\n first\n\tat a trace")) == "RuntimeError: first"
    assert len(in_one_line(RuntimeError("x" * 9_999))) == 500


# -- maintenance and copies ----------------------------------------------------------------------------------


def test_only_many_small_files_are_compacted() -> None:
    assert needs_compaction(1 << 20, 100)
    assert not needs_compaction(1 << 20, 5)
    assert not needs_compaction(100 * (64 << 20), 100)
    assert not needs_compaction(-1, -1)


def test_the_log_is_kept_for_tables_that_stand_and_for_its_days() -> None:
    tables = [
        record(),
        record(TableState.STOPPED, from_lsn=4),
        record(TableState.DROPPED, from_lsn=1),
    ]
    assert oldest_needed(tables, 9) == 4
    assert oldest_needed([record(from_lsn=1), record(TableState.CREATING, from_lsn=1)], 9) == 9
    assert oldest_needed([record(TableState.COPYING, from_lsn=3)], 9) == 3
    aside = record(TableState.PARTIAL, from_lsn=2, detail={"goal": "partial"})
    assert oldest_needed([aside], 9) == 2
    newest = {date(2026, 1, day): 10 * day for day in (1, 2, 3, 4)}
    today = date(2026, 1, 31)
    assert days_to_forget(newest, 25, today, 7) == date(2026, 1, 3)
    assert days_to_forget(newest, 99, today, 7) == date(2026, 1, 24)
    assert days_to_forget(newest, 99, today, 30) == date(2026, 1, 1)
