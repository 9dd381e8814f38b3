"""Rules of histories, one at a time, by the moves of plays."""

from __future__ import annotations

from spark_sink.mirror.rules.table_record import Wish
from tests.mirror_simulation.moves import made, staged, table
from tests.mirror_simulation.plays import Stage


def rows(stage: Stage, folder: str) -> list[int]:
    """Returns the ids of the rows in a folder."""
    found = stage.world.lake.folders[folder].rows
    return sorted(dict(row)["id"] or 0 for row in found.elements())


def test_a_history_has_the_rows_of_a_copy_where_it_stands() -> None:
    partial = ("settings history=yes unknown=partial", "old a 1=1 2=2", "start")
    stage = staged(*partial, "insert a 3=3", "append", "works", "wait 10", "works")
    assert rows(stage, "shop/a__history") == rows(stage, "shop/a") == [3]
    made(stage, "copy a", "works", "wait 10", "works")
    assert table(stage, "a").word == "complete"
    assert rows(stage, "shop/a__history") == rows(stage, "shop/a") == [1, 2, 3]
    made(stage, "insert a 4=4", "append", "works", "wait 10", "works", "kill", "start", "works")
    assert rows(stage, "shop/a__history") == rows(stage, "shop/a") == [1, 2, 3, 4]


def test_a_history_is_compared_with_a_copy_made_at_an_lsn_that_it_already_has() -> None:
    """A second commit of a history with the same lsn would do nothing, so the comparison waits for the next append."""
    stage = staged(
        "settings history=yes", "create a", "start", "insert a 1=1 2=2", "append", "works"
    )
    made(stage, "erase a 1", "insert a 3=3", "append", "works", "wait 10", "works")
    (history,) = (record for record in stage.world.control.records.values() if record.history)
    stage.world.ask(history.table_id, Wish.RECOPY)
    stage.world.look()
    made(stage, "works", "wait 10", "works")
    assert rows(stage, "shop/a__history") == rows(stage, "shop/a") == [2, 3]
    made(stage, "copy a", "works", "wait 10", "works")
    assert rows(stage, "shop/a") == [1, 2, 3]
    made(stage, "insert a 4=4", "append", "works", "wait 10", "works")
    assert rows(stage, "shop/a__history") == rows(stage, "shop/a") == [1, 2, 3, 4]
