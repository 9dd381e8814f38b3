"""Moves of directed tests, and what the tests ask of a stage."""

from __future__ import annotations

from spark_sink.mirror.rules.effects import (
    Effect,
    ReadLog,
)
from spark_sink.mirror.rules.table_record import TableRecord
from tests.mirror_simulation.plays import Stage


def staged(*moves: str) -> Stage:
    stage = Stage()
    for move in moves:
        stage.move(move)
    return stage


def made(stage: Stage, *moves: str) -> None:
    for move in moves:
        stage.move(move)


def table(stage: Stage, name: str) -> TableRecord:
    (record,) = (r for r in stage.world.control.tables(("shop", name)) if not r.is_dropped)
    return record


def kinds(stage: Stage) -> list[type[Effect]]:
    return [type(effect) for effect in stage.world.running()]


def all_but_histories(stage: Stage) -> None:
    """Let all works except those of histories end, until none of them runs."""
    while works := [effect for effect in stage.world.running() if not is_of_history(effect)]:
        stage.world.finish(works[0])


def is_of_history(effect: Effect) -> bool:
    reads_table = isinstance(effect, ReadLog) and effect.tables is not None
    return reads_table or type(effect).__name__ in ("WriteVersions", "CompareVersions")


# Moves after which a copy is complete and its folder is about to move to the table's place.
COPIED = (
    "settings",
    "old a 1=1",
    "start",
    "insert a 2=2",
    "append",
    "work ReadLog StoreRecords ClearCopy StoreRecords CopyTable CopyTable",
    "work StoreRecords StoreRecords AskTable StoreRecords",
)


def swapped_during_a_replay() -> Stage:
    """While a replay reads an entry of the table `c`, a table that the settings left out gets this name."""
    stage = staged("settings unknown=stop", "exclude out", "old c 1=1", "old out 2=2", "start")
    made(stage, "insert c 3=3", "append", "works", "ask c retry", "work StoreRecords")
    made(stage, "swap c out", "insert c 4=4", "append")
    *_, of_queues = stage.world.running()
    stage.world.finish(of_queues)
    return stage


STOPPED = (
    "settings",
    "start",
    "create a",
    "insert a 1=1",
    "append",
    "works",
    "insert a 2=2",
    "append",
    "work ReadLog",
    "work CommitRows fails=fault",
    "works",
)


def ids(stage: Stage, name: str) -> set[int | None]:
    return {dict(row)["id"] for row in stage.world.lake.folders[f"shop/{name}"].rows}
