"""Rules of proofs, which compare the mirrored tables with the server. Each test plays moves that reach one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_sink.mirror.rules.effects import (
    CommitRows,
    CompareKeyRange,
    CompareVersions,
    ReadKeyRange,
    RepairRows,
)
from spark_sink.mirror.rules.proofs import (
    NO_TABLE,
    REPAIRS_MAX,
    DifferenceSize,
    Proof,
    Remedy,
    is_same,
    next_to_prove,
    proof_from,
    proof_json,
    remedy_for,
)
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.states import CatchingUp, Creating, Live, Stopped
from spark_sink.mirror.rules.table_record import Move, Request, TableRecord, Wish
from spark_sink.mirror.values.entries import append_of, last_lsn
from spark_sink.mirror.values.policies import DAY_S, OnDifference, ProofOptions
from tests.mirror_simulation.moves import kinds, made, staged, table
from tests.mirror_simulation.plays import PROOFS, Stage
from tests.mirror_simulation.world import SINCE_1970_S

ROUND = ("wait 1", "works", "wait 1", "works", "wait 1", "works")
PROVED = (
    "settings proofs=yes",
    "start",
    "create a",
    "insert a 1=1 2=2 3=3",
    "append",
    "works",
    "wait 10",
    "works",
    *ROUND,
)
FIRST = SINCE_1970_S + 10  # when the first round of the table begins
AGAIN = FIRST + 503  # when the round that "wait 500" makes due begins


def proof(stage: Stage, name: str = "a") -> Proof:
    return stage.world.control.proofs[table(stage, name).table_id]


def reads(stage: Stage) -> list[str]:
    """Returns the tables of which a range is being read."""
    running = stage.world.running()
    return [effect.record.table for effect in running if isinstance(effect, ReadKeyRange)]


def test_a_whole_round_proves_a_table_as_of_its_beginning() -> None:
    stage = staged(*PROVED)
    found = proof(stage)
    assert (found.proved, found.proved_rows, found.running) == (FIRST, 3, False)
    made(stage, "wait 100", "works")
    assert kinds(stage) == []
    made(stage, "wait 400", "works", *ROUND)
    assert proof(stage).proved == AGAIN


def test_a_difference_is_reported_when_two_readings_show_it() -> None:
    stage = staged(*PROVED, "write a 3=7", "wait 500", "works", "wait 1", "works")
    assert proof(stage).difference is None  # after the first reading
    made(stage, "wait 1", "works")
    found = proof(stage).difference
    assert found is not None and found.keys == 1 and found.evidence
    made(stage, "update a 3=8", "append", "works", "wait 500", "works", *ROUND)
    assert proof(stage).difference is None  # a step has written the row again


def test_a_difference_that_only_one_reading_shows_is_not_reported() -> None:
    stage = staged(*PROVED, "write a 1=7", "wait 500", "works")
    made(stage, "write a 1=1 2=9", "wait 1", "works", "write a 2=2", *ROUND, *ROUND)
    assert proof(stage).difference is None and proof(stage).proved == AGAIN


def test_a_round_goes_on_after_a_kill() -> None:
    stage = staged(*PROVED, "wait 500", "work ReadKeyRange CompareKeyRange")
    made(stage, "wait 6", "work StoreRecords")
    assert proof(stage).cursor == ("2",)
    begun = proof(stage).begun
    made(stage, "kill", "start", "works", *ROUND)
    assert proof(stage).proved == begun


def test_rows_that_change_meanwhile_are_compared_with_the_log() -> None:
    stage = staged(*PROVED, "insert a 4=4", "wait 500")
    made(stage, "update a 1=5", "work ReadKeyRange", "delete a 2", "append")
    assert any("0 keys differ" in line for line in stage.move("works"))
    made(stage, *ROUND, *ROUND)
    assert proof(stage).difference is None and proof(stage).proved == AGAIN


def test_a_proof_waits_until_the_log_has_passed_the_rows() -> None:
    stage = staged(*PROVED, "insert a 4=4", "wait 500", "work ReadKeyRange")
    assert kinds(stage) == []
    made(stage, "append", "work ReadLog CommitRows")
    assert CompareKeyRange in kinds(stage)


def test_a_proof_does_not_wait_for_entries_behind_its_rows() -> None:
    stage = staged(
        *PROVED, "insert a 4=4", "wait 500", "work ReadKeyRange", "append", "work ReadLog"
    )
    made(stage, "insert a 5=5", "append", "work ReadLog CommitRows")
    assert CompareKeyRange in kinds(stage) and CommitRows in kinds(stage)


def test_a_table_that_cannot_be_proved_is_told_once() -> None:
    moves = ("start", "create a keyless=yes", "insert a 1=1", "append", "works", "wait 10")
    stage = staged("settings proofs=yes", *moves, "works", *ROUND, "wait 6", "works")
    told = [text for _ in range(2) for text in stage.move("wait 500") + stage.move("works")]
    assert any("ReadKeyRange" in text for text in told)
    assert not any("not_proved" in text for text in told)


def test_a_proof_does_not_wait_for_ever() -> None:
    stage = staged(*PROVED, "insert a 4=4", "wait 500", "work ReadKeyRange", "wait 61", "wait 10")
    assert reads(stage) == ["a"]


def test_a_statement_during_a_proof_ends_it_without_a_report() -> None:
    stage = staged(*PROVED, "wait 500", "work ReadKeyRange", "truncate a", "append")
    made(stage, "work ReadLog ChangeTable CompareKeyRange", "works")
    assert proof(stage).difference is None
    made(stage, "wait 10", "works", *ROUND)
    assert proof(stage).since == table(stage, "a").from_lsn and not proof(stage).running


def test_a_table_is_proved_at_once_after_a_statement() -> None:
    stage = staged(*PROVED, "add a b=3", "append", "works", "wait 1")
    assert reads(stage) == ["a"]


def test_a_table_is_proved_again_after_a_kill_between_commit_and_watermark() -> None:
    stage = staged(*PROVED, "insert a 9=9", "append", "works", "kill", "start", "works", "wait 1")
    assert reads(stage) == ["a"]


def test_a_table_that_changed_comes_first_then_the_one_that_waits_longest() -> None:
    records = [TableRecord(i, "shop", "shop", i, from_lsn=7) for i in ("new", "changed", "b", "c")]
    proofs = {
        i: Proof(i, "shop", running=True, since=7, checked=checked, last=last)
        for i, checked, last in (("changed", 6, 9.0), ("b", 7, 5.0), ("c", 7, 4.0))
    }

    def order(*names: str) -> str:
        chosen = [r for r in records if r.table_id in names]
        found = next_to_prove(chosen, proofs, 100.0, 50.0, lambda _: True)
        assert found is not None
        return found.table_id

    assert order("new", "changed", "b") == "new"
    assert order("changed", "b", "c") == "changed"
    assert order("b", "c") == "c"


@pytest.mark.parametrize(
    "change",
    [
        {"table": "b"},
        {"folder": "shop/b"},
        {"from_lsn": 8},
        {"signature": "{}"},
        {"epoch": 2},
        {"state": Live(complete=False)},
        {"state": Creating()},
        {"move": Move("shop/b")},
        {"request": Request("q1", Wish.RECOPY)},
    ],
)
def test_a_result_is_used_only_if_nothing_but_rows_has_changed(change: dict[str, Any]) -> None:
    before = TableRecord("t1", "shop", "shop", "a", "shop/a", from_lsn=7, epoch=1)
    assert is_same(
        before, replace(before, serial=9, reason="tried again", state=Live(exact_from=3))
    )
    assert not is_same(before, replace(before, **change))
    assert not is_same(before, None)


def test_a_failed_work_is_repeated_after_a_pause() -> None:
    stage = staged(*PROVED, "wait 500", "work ReadKeyRange fails=before")
    assert kinds(stage) == []
    made(stage, "wait 10")
    assert reads(stage) == ["a"]


def test_a_job_that_ends_begins_no_range() -> None:
    stage = staged(*PROVED, "wait 500", "work ReadKeyRange")
    stage.world.stop()
    made(stage, "wait 5")
    assert ReadKeyRange not in kinds(stage)


def test_a_drain_compares_nothing() -> None:
    stage = staged(*PROVED, "kill", "wait 500", "start drain=yes", "works", "wait 1")
    assert kinds(stage) == []


def test_a_proof_that_could_not_be_stored_is_stored_later() -> None:
    stage = staged(*PROVED, "wait 500", "work ReadKeyRange CompareKeyRange", "wait 6")
    made(stage, "work StoreRecords fails=before", "wait 10", "work StoreRecords")
    assert proof(stage).cursor == ("2",)


def test_a_table_without_a_key_is_not_proved_and_says_why() -> None:
    moves = ("start", "create a keyless=yes", "insert a 1=1", "append", "works", *ROUND, "wait 6")
    stage = staged("settings proofs=yes", *moves, "works")
    assert proof(stage).skipped == "it has no key" and proof(stage).proved is None


def test_a_proof_survives_the_control_table() -> None:
    stage = staged(*PROVED, "write a 3=7", "wait 500", "works", *ROUND)
    found = replace(proof(stage), cursor=("1", "X'00'"), running=True)
    detail = {**proof_json(found), "of_a_newer_version": 1}
    assert proof_from(found.table_id, found.consumer, found.since, detail) == found


@pytest.mark.parametrize(
    ("window", "hour", "opens_in_h"),
    [
        (None, 12, 0),
        ((22, 6), 23, 0),
        ((22, 6), 5, 0),
        ((22, 6), 6, 16),
        ((8, 9), 7, 1),
        ((8, 9), 9, 23),
    ],
)
def test_the_window(window: tuple[int, int] | None, hour: int, opens_in_h: int) -> None:
    times = None if window is None else (3600.0 * window[0], 3600.0 * window[1])
    options = ProofOptions(window=times)
    assert options.opens_in(7 * DAY_S + 3600.0 * hour) == 3600.0 * opens_in_h


def test_outside_of_the_window_no_range_is_read() -> None:
    stage = staged("settings proofs=yes")
    begin = (SINCE_1970_S + 1000) % DAY_S
    stage.world.proofs = replace(PROOFS, window=(begin, begin + 100))
    made(stage, "start", "create a", "insert a 1=1", "append", "works", "wait 900", "works")
    assert stage.world.mirror.next_wakeup() is not None and kinds(stage) == []
    made(stage, "wait 100")
    assert reads(stage) == ["a"]


def test_the_pause_after_a_range() -> None:
    options = ProofOptions(rows_per_second=100, share=0.1)
    assert options.pause_s(1000, 0.5) == 10.0
    assert options.pause_s(10, 2.0) == 18.0


# -- corrections ---------------------------------------------------------------------------------------------------

REPAIR, STOP, REPORT = OnDifference.REPAIR, OnDifference.STOP, OnDifference.REPORT


def corrected(policy: str, *moves: str) -> Stage:
    """Returns a proved table with the policy, after moves, when the next round is due."""
    first = f"settings proofs=yes difference={policy}"
    return staged(first, *PROVED[1:], *moves, "wait 500")


def lake_rows(stage: Stage, name: str = "a") -> dict[int | None, int | None]:
    rows = stage.world.lake.folders[f"shop/{name}"].rows
    return {dict(row)["id"]: dict(row)["a"] for row in rows}


def test_rows_that_differ_are_rewritten_and_compared_again() -> None:
    stage = corrected("repair", "write a 3=7", "erase a 1")
    made(stage, "works", "wait 1", "works")
    assert lake_rows(stage)[1] == 1 and proof(stage).difference is not None
    made(stage, *ROUND, *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3}
    found = proof(stage)
    assert (found.difference, found.repaired, found.proved) == (None, 2, AGAIN)


def test_a_repair_takes_the_rows_of_the_log() -> None:
    stage = corrected("repair", "write a 1=7", "erase a 2")
    made(stage, "works", "wait 1", "work ReadKeyRange", "update a 1=5", "append")
    made(stage, "work ReadLog CompareKeyRange CommitRows RepairRows")
    assert lake_rows(stage) == {1: 5, 2: 2, 3: 3}
    made(stage, *ROUND, *ROUND)
    assert proof(stage).repaired == 1


def test_a_repair_waits_for_the_works_of_its_table() -> None:
    stage = corrected("repair", "erase a 1")
    made(stage, "works", "wait 1", "work ReadKeyRange", "insert a 9=9", "append", "work ReadLog")
    made(stage, "work CompareKeyRange")
    assert kinds(stage).count(CommitRows) == 1 and RepairRows not in kinds(stage)
    made(stage, "work CommitRows")
    assert RepairRows in kinds(stage)


def test_a_step_waits_for_a_repair() -> None:
    stage = corrected("repair", "erase a 1")
    made(stage, "works", "wait 1", "work ReadKeyRange CompareKeyRange StoreRecords")
    made(stage, "insert a 9=9", "append", "work ReadLog")
    assert RepairRows in kinds(stage) and CommitRows not in kinds(stage)
    made(stage, "works")
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3, 9: 9}


@pytest.mark.parametrize("done", ["", "RepairRows"])
def test_a_repair_that_a_kill_interrupts_is_made_once(done: str) -> None:
    stage = corrected("repair", "erase a 1")
    made(stage, "works", "wait 1", "work ReadKeyRange CompareKeyRange")
    assert RepairRows in kinds(stage)
    made(stage, f"kill {done}".rstrip(), "start", "works", *ROUND, *ROUND, *ROUND)
    made(stage, "wait 500", "works", *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3}
    assert proof(stage).repaired == (0 if done else 1)
    assert proof(stage).difference is None


def test_a_history_is_compared_after_a_repair_at_the_end_of_the_next_append() -> None:
    first = "settings proofs=yes difference=repair history=yes"
    stage = staged(first, *PROVED[1:], "erase a 1", "wait 500", "works", "wait 1")
    made(stage, "work ReadKeyRange CompareKeyRange", "append")
    assert RepairRows not in kinds(stage)  # the record is not stored yet
    made(stage, "work StoreRecords")
    (repair,) = (each for each in stage.world.running() if isinstance(each, RepairRows))
    at = last_lsn(append_of(repair.to) + 1)
    assert table(stage, "a").copied_at == at
    compared = []
    while running := stage.world.running():
        compared += [each.lsn for each in running if isinstance(each, CompareVersions)]
        stage.world.finish(running[0])
    assert set(compared) == {at}


def test_a_request_lets_a_table_be_repaired_at_once() -> None:
    stage = staged(*PROVED, "erase a 1", "wait 10", "works")
    assert kinds(stage) == []
    made(stage, "ask a repair", "works", *ROUND, *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3}
    assert not proof(stage).asked


def test_a_request_for_a_repair_does_not_wait_for_the_window() -> None:
    stage = staged("settings proofs=yes")
    begin = (SINCE_1970_S + 1000) % DAY_S
    stage.world.proofs = replace(PROOFS, window=(begin, begin + 100))
    made(stage, "start", "create a", "insert a 1=1", "append", "works", "create b", "append")
    made(stage, "works", "wait 10", "works", "ask a repair", "work StoreRecords")
    assert reads(stage) == ["a"]
    made(stage, "works", *ROUND)
    assert reads(stage) == [] and not proof(stage).asked


def test_a_request_survives_a_kill() -> None:
    stage = staged(*PROVED, "erase a 1", "wait 10", "works", "ask a repair", "work StoreRecords")
    made(stage, "kill", "start", "works", *ROUND, *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3}


def test_a_table_that_differs_is_stopped_and_a_repair_lets_it_go_on() -> None:
    stage = corrected("stop", "erase a 1")
    made(stage, "works", "wait 1", "works")
    state = table(stage, "a").state
    assert isinstance(state, Stopped) and state.differs
    assert "python -m spark_sink repair shop.a" in table(stage, "a").reason
    made(stage, "insert a 9=9", "append", "works")
    assert 9 not in lake_rows(stage)
    made(stage, "ask a repair", "works", *ROUND, *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3, 9: 9}
    assert isinstance(table(stage, "a").state, Live)


def test_a_repair_is_no_answer_to_another_stop() -> None:
    stopped = TableRecord("t1", "shop", "shop", "a", state=Stopped(7, Live()))
    asked = replace(stopped, request=Request("q1", Wish.REPAIR))
    assert after_request(asked).state == stopped.state
    differs = replace(asked, state=Stopped(7, Live(), differs=True))
    assert isinstance(after_request(differs).state, CatchingUp)


PROOF = Proof("t1", "shop", running=True)


@pytest.mark.parametrize(
    ("proof", "policy", "found", "ranges", "repairs", "remedy"),
    [
        (PROOF, REPORT, DifferenceSize("", 1, 1), 1, 0, Remedy.REPORT),
        (PROOF, REPAIR, DifferenceSize("", 1, 1), 1, 0, Remedy.REPAIR),
        (PROOF, STOP, DifferenceSize("", 1, 1), 1, 0, Remedy.STOP),
        (replace(PROOF, asked=True), REPORT, DifferenceSize("", 1, 1), 1, 0, Remedy.REPAIR),
        (replace(PROOF, asked=True), STOP, DifferenceSize("", 1, 1), 1, 0, Remedy.REPAIR),
        (PROOF, REPAIR, DifferenceSize("", 1, 1), 1, REPAIRS_MAX, Remedy.REPORT),
        (PROOF, REPAIR, DifferenceSize("the column a", 0, 0), 1, 0, Remedy.COPY),
        (PROOF, REPAIR, DifferenceSize(NO_TABLE, 0, 0), 1, 0, Remedy.REPORT),
        (PROOF, REPAIR, DifferenceSize("", 9, 8), 1, 0, Remedy.COPY),
        (replace(PROOF, copied=True), REPAIR, DifferenceSize("", 9, 8), 1, 0, Remedy.REPORT),
        (
            replace(PROOF, ranges=8, differing=2),
            REPAIR,
            DifferenceSize("", 1, 1),
            9,
            0,
            Remedy.REPAIR,
        ),
        (
            replace(PROOF, ranges=8, differing=3),
            REPAIR,
            DifferenceSize("", 1, 1),
            9,
            0,
            Remedy.COPY,
        ),
        (
            replace(PROOF, ranges=1, differing=1),
            REPAIR,
            DifferenceSize("", 1, 1),
            2,
            0,
            Remedy.REPAIR,
        ),
    ],
)
def test_what_is_done_about_a_difference(
    proof: Proof,
    policy: OnDifference,
    found: DifferenceSize,
    ranges: int,
    repairs: int,
    remedy: Remedy,
) -> None:
    assert remedy_for(proof, policy, found, ranges, repairs) is remedy


def test_a_table_with_more_differences_than_can_be_rewritten_is_copied_once() -> None:
    rows = " ".join(f"{i}={i}" for i in range(1, 9))
    wrong = " ".join(f"{i}=77" for i in range(1, 9))
    first = "settings proofs=yes difference=repair"
    moves = (first, "start", "create a", f"insert a {rows}", "append", "works", "wait 10", "works")
    stage = staged(*moves, *(ROUND * 3), f"write a {wrong}", "wait 500", "works", *(ROUND * 6))
    assert lake_rows(stage) == {i: i for i in range(1, 9)}
    assert table(stage, "a").copied_at is not None
    assert proof(stage).difference is None and not proof(stage).copied


def test_a_second_repair_follows_a_first_one() -> None:
    stage = corrected("repair", "erase a 1 3")
    made(stage, "works", *ROUND, *ROUND)
    assert lake_rows(stage) == {1: 1, 2: 2, 3: 3}
    assert proof(stage).repaired == 2 and proof(stage).difference is None


def test_a_repair_has_an_lsn_that_no_entry_has() -> None:
    """The next entry of the table has the lsn directly after that of the newest commit."""
    stage = corrected("repair", "erase a 1")
    made(stage, "works", "wait 1", "work ReadKeyRange", "insert a 8=8", "add a b=3")
    made(stage, "insert a 9=9", "append", "work ReadLog CompareKeyRange CommitRows")
    assert RepairRows not in kinds(stage)
    made(stage, "works", *ROUND, *ROUND, *ROUND)
    assert sorted(i or 0 for i in lake_rows(stage)) == [1, 2, 3, 8, 9]


def test_a_request_during_a_repair_is_answered() -> None:
    stage = staged("settings proofs=yes difference=repair history=yes", *PROVED[1:], "erase a 1")
    made(stage, "wait 500", "works", "wait 1", "work ReadKeyRange CompareKeyRange")
    made(stage, "ask a repair", "works", *ROUND, *ROUND, *ROUND)
    assert not proof(stage).asked and lake_rows(stage) == {1: 1, 2: 2, 3: 3}
    made(stage, "insert a 9=9", "append", "works")
    assert lake_rows(stage)[9] == 9


def test_a_statement_before_the_comparison_after_a_repair_ends_no_version_early() -> None:
    stage = staged("settings proofs=yes difference=repair history=yes", *PROVED[1:], "erase a 1")
    made(stage, "wait 500", "works", *ROUND, *ROUND, "add a b=3", "insert a 8=8", "append")
    made(stage, "work ReadLog")
    for _ in range(2):
        while rest := [each for each in stage.world.running() if not isinstance(each, CommitRows)]:
            stage.world.finish(rest[0])
        if CommitRows in kinds(stage):
            made(stage, "work CommitRows fails=before")
    made(stage, "wait 1", "works", "insert a 9=9", "append", "works")
    history = stage.world.lake.folders["shop/a__history"].rows
    assert {dict(row)["id"] for row in history} == {1, 2, 3, 8, 9}
