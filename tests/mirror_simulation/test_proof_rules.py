"""Rules of proofs, which compare the mirrored tables with the server. Each test plays moves that reach one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_sink.mirror.rules.effects import CommitRows, CompareKeyRange, ReadKeyRange
from spark_sink.mirror.rules.proofs import Proof, is_same, next_to_prove, proof_from, proof_json
from spark_sink.mirror.rules.states import Creating, Live
from spark_sink.mirror.rules.table_record import Move, Request, TableRecord, Wish
from spark_sink.mirror.values.policies import DAY_S, ProofOptions
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
AGAIN = FIRST + 503  # when the round begins that "wait 500" makes due


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
    assert proof(stage).difference is None and proof(stage).proved == AGAIN + 2


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
