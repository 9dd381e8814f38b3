"""How statements, rows of unknown tables, gaps and faults change a table's record."""

from __future__ import annotations

import dataclasses
from datetime import date
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    Failing,
    LeftOut,
    Live,
    Replaying,
    State,
    Stopped,
    TableState,
)
from spark_sink.mirror.rules.table_record import FormerName, Move, Request, TableRecord, Wish
from spark_sink.mirror.rules.transitions import (
    DeltaWork,
    Situation,
    after_effect,
    after_gap,
    conflicting,
    copied_again,
    faulted,
    in_copy,
    in_its_place,
    left_out,
    masked_anew,
    needs_copy,
    place_taken,
    stopped,
    taken_in,
    unknown_rows,
    without_entries,
)
from spark_sink.mirror.rules.upkeep import (
    COMMITS_MAX,
    READ_S,
    days_to_forget,
    first_kept_commit,
    needs_compaction,
    needs_compaction_soon,
)
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


def record(state: State | None = None, **fields: Any) -> TableRecord:
    values: dict[str, Any] = {"folder": "db/t", "signature": "s", "epoch": 1, "from_lsn": 5}
    values |= {"reason": "r"} | fields
    return TableRecord("id", "shop", *NAME, state=state or Live(), **values)


BEGIN, EXECUTED = (Position("s", "", "f.1", at, 0, 0) for at in (4, 9))
REPLAYING = Replaying(BEGIN, EXECUTED, exact=False, passed=9)
EXISTING: list[State] = [
    Live(exact_from=2, failing=Failing(3)),
    Live(complete=False, new_column=4),
    Creating(),
    Copying(BEGIN),
    Copied(BEGIN, EXECUTED),
    REPLAYING,
    Stopped(6, Live(), lost=7, copy=REPLAYING),
    CatchingUp(Live(), stopped=Stopped(6, Live())),
    CatchingUp(Live(), passed=9),
    LeftOut(3),
]


@pytest.mark.parametrize("state", [None, *EXISTING, Dropped()])
def test_a_table_that_is_created_is_complete_and_exact(state: State | None) -> None:
    before = None if state is None else record(state)
    moved = after_effect(NAME, before, CreateTable(NAME), statement(9), now())
    after = moved.record
    assert after is not None
    assert (after.state, after.from_lsn) == (Live(exact_from=9), 9)
    assert (after.signature, after.reason) == ("", "")
    assert (after.table_id == "id", after.folder) == (before is not None, "db/t" if before else "")
    # If the mirror has the table, the server has dropped it without an entry in the log.
    assert moved.work is (DeltaWork.DROP if state in EXISTING else DeltaWork.NOTHING)


@pytest.mark.parametrize("state", EXISTING)
def test_create_if_not_exists_does_nothing_to_a_table_that_exists(state: State) -> None:
    effect = CreateTable(NAME, if_not_exists=True)
    assert after_effect(NAME, record(state), effect, statement(9), now()).record == record(state)
    replacing = dataclasses.replace(effect, replaces=True)
    moved = after_effect(NAME, record(state), replacing, statement(9), now())
    assert moved.work is DeltaWork.DROP


def test_create_if_not_exists_tells_nothing_of_a_table_that_may_exist() -> None:
    """Servers log this statement even if the table exists, and after a gap, the table may exist."""
    effect = CreateTable(NAME, if_not_exists=True)
    assert after_effect(NAME, None, effect, statement(9), now()).record is None
    unsure = record(Dropped(unsure=True))
    assert after_effect(NAME, unsure, effect, statement(9), now()).record == unsure
    created = after_effect(NAME, record(Dropped()), effect, statement(9), now()).record
    assert created is not None and created.state == Live(exact_from=9)


# Facts about a table that do not depend on its rows: requests and answers, former names, the entry as of which it was
# last copied, and its name in the catalog.
LASTING: dict[str, Any] = {
    "request": Request("r2", Wish.RETRY),
    "handled": "r1",
    "answered": {"db.t": "r0"},
    "names": (FormerName(4, "db", "old"),),
    "copied_at": 3,
    "registered": "db.t",
    "refused": "why",
}


@pytest.mark.parametrize("state", EXISTING)
def test_drop_and_truncate_settle_a_table_in_any_state(state: State) -> None:
    before = record(state, **LASTING, conflict="c", metadata=("_lsn",))
    dropped = after_effect(NAME, before, DropTable(NAME), statement(9), now())
    emptied = after_effect(NAME, before, TruncateTable(NAME), statement(9), now())
    assert dropped.record is not None
    assert emptied.record is not None
    assert (dropped.record.state, dropped.work) == (Dropped(), DeltaWork.DROP)
    assert emptied.record.state == Live(exact_from=9)
    for after in (dropped.record, emptied.record):
        assert (after.from_lsn, after.conflict, after.metadata) == (9, "", ())
        assert {name: getattr(after, name) for name in LASTING} == LASTING


def test_a_table_whose_folder_waits_for_its_place_goes_on_waiting_when_it_is_emptied() -> None:
    waits = record(CatchingUp(Live(complete=False)), move=Move("_binlog/moving/id"))
    for effect in (CreateTable(NAME), TruncateTable(NAME)):
        after = after_effect(NAME, waits, effect, statement(9), now()).record
        assert after is not None
        goal = Live(exact_from=9)
        assert (after.state, after.move) == (CatchingUp(goal, reason_before=""), waits.move)
        assert after.reason
    taken = BinlogError(ErrorKind.INTERNAL, "taken")
    refused = place_taken(record(), "_binlog/moving/id", taken)
    assert refused.state == CatchingUp(Live(), reason_before="r")
    assert (refused.move, "taken" in refused.reason) == (Move("_binlog/moving/id"), True)
    again = place_taken(refused, "_binlog/moving/id", taken)
    moved = in_its_place(again)
    assert (moved.state, moved.move, moved.reason) == (CatchingUp(Live()), None, "r")
    assert in_its_place(record(move=Move("aside"))) == record()
    copied = place_taken(record(REPLAYING), "aside", BinlogError(ErrorKind.INTERNAL, "taken"))
    assert (copied.state, copied.move, copied.reason) == (REPLAYING, Move("aside"), "r")


def test_a_truncated_table_keeps_its_columns_if_they_are_known() -> None:
    effect = TruncateTable(NAME)
    live = after_effect(NAME, record(), effect, statement(9), now())
    assert live.record is not None
    assert (live.record.signature, live.work) == ("s", DeltaWork.TRUNCATE)
    standing = after_effect(NAME, record(Stopped(6, Live())), effect, statement(9), now())
    assert standing.record is not None
    assert (standing.record.signature, standing.work) == ("", DeltaWork.DROP)
    unknown = after_effect(NAME, None, effect, statement(9), now()).record
    assert unknown is not None
    assert unknown.state == Live(exact_from=9)


def test_a_drop_of_an_unknown_table_is_nothing() -> None:
    assert after_effect(NAME, None, DropTable(NAME), statement(9), now()).record is None
    gone = record(Dropped())
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


@pytest.mark.parametrize(
    ("state", "again"),
    [
        (Copying(BEGIN), True),
        (Copied(BEGIN, EXECUTED), True),
        (REPLAYING, True),
        (dataclasses.replace(REPLAYING, passed=8), False),
        (CatchingUp(Live(), passed=9), True),
        (CatchingUp(Live(), passed=8), False),
        (CatchingUp(Live()), False),
        (Creating(), False),
        (Stopped(6, Live(), copy=REPLAYING), False),
    ],
)
def test_an_alter_during_a_copy_begins_it_again(state: State, again: bool) -> None:
    alter = AlterTable(NAME, copy_reason="x")
    before = record(state)
    after = after_effect(NAME, before, alter, statement(9), now()).record
    assert after == (copied_again(before) if again else before)
    assert in_copy(before, 9) is again
    assert copied_again(before).state == Creating()


@pytest.mark.parametrize(
    ("unfollowed", "can_copy", "state", "from_lsn"),
    [
        (Unfollowed.RECOPY, True, Creating(), 9),
        (Unfollowed.RECOPY, False, Stopped(9, Live()), 8),
        (Unfollowed.STOP, True, Stopped(9, Live()), 8),
    ],
)
def test_a_table_whose_rows_are_not_known_is_copied_by_policy(
    unfollowed: Unfollowed, can_copy: bool, state: State, from_lsn: int
) -> None:
    situation = now(can_copy=can_copy, unfollowed=unfollowed)
    after = needs_copy(record(), "a reason", 9, situation)
    assert (after.state, after.from_lsn) == (state, from_lsn)
    assert after.reason.startswith("a reason")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Live(complete=False), Stopped(9, Live(complete=False))),
        (Live(exact_from=2, failing=Failing(3)), Stopped(9, Live(exact_from=2))),
        (CatchingUp(Live(exact_from=2)), Stopped(9, Live(exact_from=2))),
        (Stopped(6, Live(exact_from=2), lost=7), Stopped(9, Live(exact_from=2))),
        (REPLAYING, Stopped(9, Live(), copy=REPLAYING)),
        # The rows of an unfinished copy may be incomplete.
        (Copying(BEGIN), Stopped(9, Live(complete=False))),
    ],
)
def test_a_stopped_table_says_why_what_it_was_and_on_which_copy_it_goes_on(
    state: State, expected: Stopped
) -> None:
    after = stopped(record(state), "why; what to do", 8, 9)
    assert (after.state, after.reason, after.from_lsn) == (expected, "why; what to do", 8)
    for applied in (8, 9):
        lost = without_entries(record(state), "lost", 8, 12, applied)
        is_ahead = applied > 8
        assert lost.state == dataclasses.replace(expected, failed=12, lost=12, ahead=is_ahead)


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
        asked = dataclasses.replace(stands, request=Request("r", Wish.APPLIED))
        after = after_request(asked)
        assert (after.from_lsn, after.epoch) == (goes_on, 0)
        assert isinstance(after.state, CatchingUp)
        assert after.state.goal == Live()


PARTIAL = Live(complete=False)


@pytest.mark.parametrize(
    ("policy", "can_copy", "state"),
    [
        (UnknownTables.STOP, True, Stopped(9, PARTIAL)),
        (UnknownTables.PARTIAL, True, PARTIAL),
        (UnknownTables.COPY, True, Creating()),
        (UnknownTables.COPY, False, Stopped(9, PARTIAL)),
    ],
)
@pytest.mark.parametrize("before", [None, record(Dropped())])
def test_rows_of_an_unknown_table(
    before: TableRecord | None, policy: UnknownTables, can_copy: bool, state: State
) -> None:
    after = unknown_rows(NAME, before, entry(9, "t"), now(can_copy=can_copy, unknown=policy))
    assert after.state == state
    assert after.from_lsn == (9 if isinstance(state, Creating) else 8)
    assert (after.table_id == "id") is (before is not None)
    assert after.reason


def test_a_gap_makes_a_table_partial_and_of_the_new_epoch() -> None:
    position = Position("s", "", "f.1", 4, 1, 7)
    end = entry(9, kind=EntryKind.END, gap=True, position=position)
    after = after_gap(record(Live(exact_from=2)), end, now())
    assert (after.state, after.epoch, after.from_lsn) == (PARTIAL, 7, 9)
    assert after.reason.endswith("copy the table: python -m spark_sink copy db.t")
    copied = after_gap(record(), end, now(can_copy=True))
    assert (copied.state, copied.signature) == (Creating(), "")
    kept = after_gap(record(), end, now(can_copy=True, purged=PurgedChanges.PARTIAL))
    assert kept.state == PARTIAL
    gone = record(Dropped())
    assert after_gap(gone, end, now()) == gone


@pytest.mark.parametrize(
    ("state", "can_copy", "after"),
    [
        (Live(), True, Creating()),
        (Live(), False, Stopped(9, Live())),
        (REPLAYING, True, Creating()),
        (CatchingUp(Live(), 5), True, Creating()),
        (CatchingUp(Live()), False, Stopped(3, Live())),
        (Stopped(7, Live()), True, Stopped(7, Live())),
    ],
)
def test_a_table_at_a_name_with_other_masks(state: State, can_copy: bool, after: State) -> None:
    before = dataclasses.replace(record(state), from_lsn=3)
    found = masked_anew(before, "the masks differ", 9, now(can_copy=can_copy))
    assert found.state == after
    # Behind a RENAME that a copy follows, entries are left in the log; else no entry is taken as applied or as failed
    # that was not.
    lsn = 9 if isinstance(after, Creating) else 8 if isinstance(state, Live) else 3
    assert found.from_lsn == lsn
    assert (found.signature == "") is isinstance(after, Creating)


def test_a_table_is_not_copied_twice_for_one_difference() -> None:
    situation = now(can_copy=True)
    first = conflicting(record(), "column 'u' is uuid", 9, situation)
    assert (first.state, first.conflict) == (Creating(), "column 'u' is uuid")
    copied = dataclasses.replace(first, state=Live())
    other = conflicting(copied, "column 'v' is int", 20, situation)
    assert (other.state, other.conflict) == (Creating(), "column 'v' is int")
    again = conflicting(copied, "column 'u' is uuid", 20, situation)
    # The table will apply the entry 20 again when it continues.
    assert (again.state, again.from_lsn) == (Stopped(19, Live()), 19)
    assert "python -m spark_sink resolve db.t --as applied" in again.reason
    without_server = conflicting(record(), "a reason", 9, now())
    assert (without_server.state, without_server.conflict) == (Stopped(9, Live()), "")


def test_a_table_that_is_left_out_keeps_since_when_and_has_no_request() -> None:
    asked = Request("r", Wish.RECOPY)
    before = record(Stopped(6, Live()), request=asked, conflict="c")
    after = left_out(before, 9)
    assert (after.state, after.request, after.handled) == (LeftOut(9), None, "r")
    assert (after.conflict, after.word) == ("", TableState.PARTIAL)
    assert "since lsn 9" in after.reason
    assert left_out(after, 20) is after
    again = left_out(dataclasses.replace(after, request=asked), 20)
    assert (again.state, again.request) == (LeftOut(9), None)


@pytest.mark.parametrize(
    ("policy", "can_copy", "state"),
    [
        (UnknownTables.STOP, True, Stopped(20, PARTIAL)),
        (UnknownTables.PARTIAL, True, PARTIAL),
        (UnknownTables.COPY, True, Creating()),
    ],
)
def test_a_table_that_is_left_out_no_longer_lacks_changes(
    policy: UnknownTables, can_copy: bool, state: State
) -> None:
    after = taken_in(record(LeftOut(9)), 20, now(can_copy=can_copy, unknown=policy))
    assert (after.state, after.from_lsn, after.epoch, after.signature) == (state, 20, 0, "")
    assert "since lsn 9" in after.reason


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
    assert needs_compaction_soon(1 << 20, 200)
    assert not needs_compaction_soon(1 << 20, 100)
    assert not needs_compaction_soon(200 << 20, 200)
    assert not needs_compaction_soon(-1, -1)


def test_days_of_the_log_that_are_needed_or_young_are_kept() -> None:
    newest = {date(2026, 1, day): 10 * day for day in (1, 2, 3, 4)}
    today = date(2026, 1, 31)
    assert days_to_forget(newest, 25, today, 7) == date(2026, 1, 3)
    assert days_to_forget(newest, 99, today, 7) == date(2026, 1, 24)
    assert days_to_forget(newest, 99, today, 30) == date(2026, 1, 1)


@pytest.mark.parametrize(
    ("ages", "keep_s", "first"),
    [
        ({}, 9 * READ_S, 0),
        ({0: 9.1, 200: 9.0, 400: 8.9}, 9 * READ_S, 200),  # by the age in hours
        ({200: 1.0, 400: 0.9}, 0.0, 200),  # queries may read what is younger than an hour
        ({200: 2.0, 400: 1.5, COMMITS_MAX + 200: 1.0}, 9 * READ_S, 200),  # by the number
        ({200: 0.9, COMMITS_MAX + 900: 0.0}, 9 * READ_S, 0),
    ],
)
def test_the_commits_that_a_table_keeps(ages: dict[int, float], keep_s: float, first: int) -> None:
    now = 1e9
    written = {version: now - age * READ_S for version, age in ages.items()}
    assert first_kept_commit(written, now, keep_s) == first
