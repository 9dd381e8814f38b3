"""Masked columns and invalid values, one rule at a time, by the moves of plays. And the assertions notice it if the
simulated mirror breaks a rule."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_sink.mirror.rules.effects import CommitRows
from spark_sink.mirror.values.invalid_values import copied_value_id, logged_value_id
from tests.mirror_simulation.column_values import MASKED, ColumnValues, InvalidCell
from tests.mirror_simulation.moves import made, staged, table
from tests.mirror_simulation.plays import Stage
from tests.mirror_simulation.quarantine import Quarantine, Quarantined
from tests.mirror_simulation.test_proof_rules import ROUND, proof
from tests.mirror_simulation.value_rules import ValueRules

STOPS = ("create a", "insert a 1=1 2=2", "append", "works", "insert a 3=5", "append", "works")
KEPT = ("create a", "insert a 1=1 2=5", "append")
OLD = ("old a 1=1 2=5", "start", "insert a 3=3", "append")


def shown(stage: Stage, folder: str = "shop/a") -> dict[int | None, int | None]:
    """Returns the column `a` of the rows in a folder, by id."""
    rows = map(dict, stage.world.lake.folders[folder].rows)
    return {row["id"]: row["a"] for row in rows}


def kept(stage: Stage) -> list[tuple[int | None, int | None]]:
    """Returns the id and the value of each row of the quarantine."""
    cells = [row.cell for row in stage.world.lake.quarantine.rows]
    return sorted((dict(cell.key)["id"], cell.data) for cell in cells)


# -- what happens to invalid values --------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["null", "quarantine"])
def test_a_table_stops_at_an_invalid_value_until_the_settings_allow_it(wanted: str) -> None:
    stage = staged("settings invalid=stop", "start", *STOPS)
    assert table(stage, "a").word == "stopped" and shown(stage) == {1: 1, 2: 2}
    assert "set on_invalid: quarantine for the table" in table(stage, "a").reason
    made(stage, "ask a retry", "works")
    assert table(stage, "a").word == "stopped"
    made(stage, "kill", f"allow {wanted}", "start", "works", "ask a retry", "works")
    assert table(stage, "a").word == "complete" and shown(stage) == {1: 1, 2: 2, 3: None}
    assert kept(stage) == ([(3, 5)] if wanted == "quarantine" else [])
    stage.world.judge.values.at_rest()


def test_a_copy_waits_at_an_invalid_value_until_the_settings_allow_it() -> None:
    stage = staged("settings invalid=stop", *OLD, "works", "wait 100", "works")
    assert table(stage, "a").word == "copying" and "on_invalid" not in table(stage, "a").reason
    assert "a value is invalid" in table(stage, "a").reason
    made(stage, "kill", "allow quarantine", "start", "works")
    assert shown(stage) == {1: 1, 2: None, 3: 3} and kept(stage) == [(2, 5)]
    stage.world.judge.values.at_rest()


def test_a_corrected_value_leaves_null() -> None:
    stage = staged("settings invalid=quarantine", "start", *KEPT, "works", "update a 2=3", "append")
    made(stage, "works")
    assert shown(stage) == {1: 1, 2: 3} and kept(stage) == [(2, 5)]
    stage.world.judge.values.at_rest()


@pytest.mark.parametrize("end", ["kill", "work CommitRows fails=before"])
def test_a_step_that_is_repeated_adds_its_values_once(end: str) -> None:
    stage = staged("settings invalid=quarantine", "start", *KEPT)
    until_begun(stage, "CommitRows")
    stage.decided.keeps = True
    made(stage, end)
    assert kept(stage) == [(2, 5)] and shown(stage) == {}
    made(stage, *(("start",) if end == "kill" else ("wait 100",)), "insert a 3=6", "append")
    made(stage, "works")
    assert kept(stage) == [(2, 5), (3, 6)] and shown(stage) == {1: 1, 2: None, 3: None}
    stage.world.judge.values.at_rest()


def test_a_copy_that_is_repeated_adds_its_values_once() -> None:
    copying = ("work ReadLog StoreRecords ClearCopy StoreRecords",)
    stage = staged("settings invalid=quarantine", *OLD, *copying, "work CopyTable")
    stage.decided.keeps = True
    made(stage, "kill")
    assert kept(stage) == [(2, 5)]
    made(stage, "start", "works")
    assert kept(stage) == [(2, 5)] and shown(stage) == {1: 1, 2: None, 3: 3}
    stage.world.judge.values.at_rest()


def test_rows_without_a_key_that_differ_in_their_invalid_values_are_kept() -> None:
    old = ("old a 1=5 2=5 keyless=yes", "insert a 1=6", "insert a 1=6")
    stage = staged("settings invalid=quarantine", *old, "start", "append", "works")
    made(stage, "copy a", "works", "append", "works")
    of_copy = {row.cell for row in stage.world.lake.quarantine.rows if row.lsn < 0}
    key = (("id", 1), ("a", None))
    assert {InvalidCell(key, "a", 5), InvalidCell(key, "a", 6)} <= of_copy
    stage.world.judge.values.at_rest()


def test_ids_distinguish_the_places_of_values() -> None:
    ids = [logged_value_id(t, c, n) for t in ("t", "u") for c in ("7/1/2", "7/1/3") for n in "ab"]
    ids += [
        copied_value_id(copy, key, column, data)
        for copy in ("t/1", "t/2")
        for key in ('{"id":1}', '{"id":2}')
        for column in "ab"
        for data in (b"x", b"y")
    ]
    assert len(set(ids)) == len(ids) == 24


# -- masks ---------------------------------------------------------------------------------------------------------


def test_rows_of_the_log_of_a_copy_and_of_a_history_have_one_mask() -> None:
    stage = staged("settings mask=a invalid=quarantine history=yes", *OLD, "works", "append")
    made(stage, "works", "wait 10", "works", "insert a 4=1 5=6", "append", "works", "wait 10")
    made(stage, "works")
    wanted = {1: MASKED + 1, 2: None, 3: MASKED + 3, 4: MASKED + 1, 5: None}
    assert shown(stage) == shown(stage, "shop/a__history") == wanted
    assert kept(stage) == [(2, None), (5, None)]
    stage.world.judge.values.at_rest()


PROVED = ("settings proofs=yes difference=repair mask=a invalid=quarantine", "start", *KEPT)


def test_a_proof_compares_what_is_shown_and_a_repair_writes_it() -> None:
    stage = staged(*PROVED, "works", "wait 10", "works", *ROUND)
    assert proof(stage).proved is not None and proof(stage).difference is None
    made(stage, "write a 2=3", "wait 500", "works", *ROUND, *ROUND, "wait 500", "works", *ROUND)
    assert shown(stage) == {1: MASKED + 1, 2: None}
    assert proof(stage).difference is None and table(stage, "a").word == "complete"
    assert stage.world.judge.tables.planted == set()
    stage.world.judge.values.at_rest()


UNMASKED = ("settings mask=a", "unmask b", "start", "create a", "insert a 1=1", "append", "works")


def test_a_table_stops_at_a_name_without_masks_until_a_person_asks_for_its_copy() -> None:
    stage = staged(*UNMASKED, "rename a b", "insert b 2=2", "append", "works", "wait 100", "works")
    record = table(stage, "b")
    assert record.word == "stopped" and shown(stage, "shop/b") == {1: MASKED + 1}
    assert "mask column a in shop.a, but not in shop.b; name it in mask for shop.b" in record.reason
    made(stage, "kill", "mask b", "start", "insert b 3=3", "append", "works")
    assert table(stage, "b").word == "stopped" and shown(stage, "shop/b") == {1: MASKED + 1}
    made(stage, "ask b recopy", "works", "append", "works")
    assert table(stage, "b").word == "complete"
    assert shown(stage, "shop/b") == {n: MASKED + n for n in (1, 2, 3)}
    stage.world.judge.values.at_rest()


def test_a_table_that_is_copied_stops_at_a_name_without_masks() -> None:
    stage = staged("settings mask=a", "unmask b", *OLD, "rename a b", "append", "works", "wait 10")
    made(stage, "works")
    record = table(stage, "b")
    assert record.word == "stopped" and "mask column a in shop.a, but" in record.reason


def test_a_stopped_table_keeps_its_entries_at_a_name_without_masks() -> None:
    stage = staged("settings invalid=stop mask=a", "unmask b", "start", *STOPS)
    before = table(stage, "a")
    assert before.word == "stopped"
    made(stage, "rename a b", "append", "works")
    record = table(stage, "b")
    assert record.state == before.state and record.from_lsn == before.from_lsn
    assert "but not in shop.b" in record.reason


def test_a_table_is_copied_when_it_gets_a_name_with_masks() -> None:
    stage = staged("settings mask=a history=yes", "unmask b", "start", "create b", "insert b 1=1")
    made(stage, "append", "works", "wait 10", "works")
    assert shown(stage, "shop/b") == shown(stage, "shop/b__history") == {1: 1}
    made(stage, "rename b a", "append", "works", "append", "works", "wait 10", "works")
    assert table(stage, "a").word == "complete"
    assert shown(stage) == shown(stage, "shop/a__history") == {1: MASKED + 1}


def test_a_copy_begins_again_at_a_name_with_masks() -> None:
    stage = staged("settings mask=a", "unmask b", "old b 1=1", "start", "insert b 2=2", "append")
    until_begun(stage, "CopyTable")
    made(stage, "insert b 3=3", "works")
    for moves in (("append",), ("rename b a", "append")):
        made(stage, *moves)
        # The replay cannot commit.
        while works := [w for w in stage.world.running() if not isinstance(w, CommitRows)]:
            stage.world.finish(works[0])
    made(stage, "append", "works", "wait 10", "works")
    assert table(stage, "a").word == "complete"
    assert shown(stage) == {n: MASKED + n for n in (1, 2, 3)}
    stage.world.judge.values.at_rest()


@pytest.mark.parametrize("other", ["a", "c"])
def test_a_table_goes_on_at_a_name_with_its_masks(other: str) -> None:
    stage = staged(*UNMASKED, "rename a c", *([f"rename c {other}"] if other != "c" else []))
    made(stage, f"insert {other} 2=2", "append", "works")
    assert table(stage, other).word == "complete"
    assert shown(stage, f"shop/{other}") == {1: MASKED + 1, 2: MASKED + 2}


# -- the assertions notice a broken mirror -------------------------------------------------------------------------


def as_it_is(_: ColumnValues, row: object) -> object:
    return row


@pytest.mark.parametrize("work", ["CommitRows", "CopyTable", "WriteVersions"])
def test_a_clear_value_is_noticed(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    moves = OLD if work == "CopyTable" else ("start", *KEPT)
    stage = staged("settings mask=a invalid=null history=yes", *moves)
    until_begun(stage, work)
    monkeypatch.setattr(ColumnValues, "row", as_it_is)
    with pytest.raises(AssertionError, match="shown without its mask"):
        made(stage, f"work {work}", f"work {work}")


def test_a_repair_with_a_clear_value_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staged(*PROVED, "works", "wait 10", "works", *ROUND, "erase a 1")
    monkeypatch.setattr(ColumnValues, "row", as_it_is)
    with pytest.raises(AssertionError, match="shown without its mask"):
        made(stage, "wait 500", "works", *ROUND, *ROUND)


def test_a_proof_that_compares_clear_values_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staged("settings proofs=yes mask=a", "start", *KEPT, "works", "wait 10")
    monkeypatch.setattr(ColumnValues, "row", as_it_is)
    with pytest.raises(AssertionError, match="a false report about"):
        made(stage, "works", *ROUND, *ROUND)


def test_an_invalid_value_that_does_not_stop_its_table_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ColumnValues, "require_valid", lambda *_: None)
    for moves in (STOPS, OLD):
        with pytest.raises(AssertionError, match="goes on behind the invalid value"):
            staged("settings invalid=stop", "start", *(m for m in moves if m != "start"), "works")


@pytest.mark.parametrize("moves", [KEPT, OLD])
def test_a_value_that_the_quarantine_lacks_is_noticed(
    monkeypatch: pytest.MonkeyPatch, moves: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Quarantine, "add", lambda *_: None)
    moves = ("settings invalid=quarantine", "start", *(m for m in moves if m != "start"))
    with pytest.raises(AssertionError, match="0 times"):
        staged(*moves, "works")
    for name in ("committed", "copied"):
        monkeypatch.setattr(ValueRules, name, lambda *_: None)
    stage = staged(*moves, "works", "append", "works")
    assert table(stage, "a").word == "complete"
    with pytest.raises(AssertionError, match=r"the quarantine of shop\.a lacks"):
        stage.world.judge.values.at_rest()


def test_a_value_that_is_added_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: Quarantine, found: Iterable[Quarantined]) -> None:
        self.rows += found

    monkeypatch.setattr(Quarantine, "add", append)
    for moves, work in ((KEPT, "CommitRows"), (OLD, "CopyTable")):
        stage = staged("settings invalid=quarantine", "start", *(m for m in moves if m != "start"))
        stage.decided.keeps = True
        until_begun(stage, work)
        if work == "CopyTable":
            made(stage, "work CopyTable")  # the next chunk of the copy has the invalid value
        with pytest.raises(AssertionError, match="2 times"):
            made(stage, "kill", "start", "works")


def test_a_value_that_is_kept_after_the_commit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the commit and the write to the quarantine loses the value."""
    stage = staged("settings invalid=quarantine", "start", *KEPT)
    until_begun(stage, "CommitRows")
    with monkeypatch.context() as patched:
        patched.setattr(Quarantine, "add", lambda *_: None)
        patched.setattr(ValueRules, "committed", lambda *_: None)
        made(stage, "kill CommitRows")
    made(stage, "start", "works")
    with pytest.raises(AssertionError, match=r"the quarantine of shop\.a lacks"):
        stage.world.judge.values.at_rest()


@pytest.mark.parametrize("lsn", [-1, 0])
def test_a_value_that_nothing_has_is_noticed(lsn: int) -> None:
    stage = staged("settings invalid=quarantine", "start", *KEPT, "works")
    (row,) = stage.world.lake.quarantine.rows
    wrong = row._replace(cell=row.cell._replace(data=6), lsn=lsn or row.lsn)
    stage.world.lake.quarantine.rows.append(wrong)
    with pytest.raises(AssertionError, match="which no change and no copy has"):
        stage.world.judge.values.at_rest()


def until_begun(stage: Stage, kind: str) -> None:
    """Let works end until one of this kind is the oldest that runs."""
    for _ in range(20):
        (effect, *_) = stage.world.running()
        if type(effect).__name__ == kind:
            return
        stage.world.finish(effect)
    raise AssertionError(f"no {kind} begins")
