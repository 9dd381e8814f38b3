"""Folders move, or the catalog registers tables: never both at a time. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from spark_sink.mirror.rules.effects import ClearCopy, MoveFolders
from spark_sink.mirror.rules.events import (
    Failure,
    FoldersMoved,
    RowsCommitted,
    TableAsked,
    WorkFailed,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaFacts
from spark_sink.mirror.runtime.catalog_turns import CatalogTurns

SHOP: Any = SimpleNamespace(consumer="shop")
BILLING: Any = SimpleNamespace(consumer="billing")


class Catalog:
    moves_wait = True

    def __init__(self) -> None:
        self.is_running = self.waited_for = False
        self.rounds = self.pauses = self.touches = 0

    def pause(self) -> None:
        self.pauses += 1

    def touch(self) -> None:
        self.touches += 1

    def forward(
        self,
        snapshots: Mapping[str, tuple[TableRecord, ...]],  # noqa: ARG002 - as `CatalogEntries`
        *,
        at_rest: bool = False,
    ) -> bool:
        self.rounds += 1
        self.waited_for = at_rest
        self.is_running = True
        return False


class Scene:
    def __init__(self, *, moves_wait: bool = True) -> None:
        self.catalog, self.begun = Catalog(), list[tuple[str, int]]()
        self.catalog.moves_wait = moves_wait
        self.turns = CatalogTurns(
            cast(Any, self.catalog), lambda w, e: self.begun.append((w.consumer, e.run))
        )


def move(run: int) -> MoveFolders:
    return MoveFolders(run, (), ())


def test_a_move_waits_for_the_round_that_runs_and_comes_before_the_next_one() -> None:
    scene = Scene()
    assert not scene.turns.forward({})
    scene.turns.submit(SHOP, move(1))
    scene.turns.submit(BILLING, move(1))
    scene.turns.submit(SHOP, ClearCopy(2, "t"))
    assert (scene.begun, scene.catalog.pauses) == ([("shop", 2)], 2)
    assert not scene.turns.forward({})
    scene.catalog.is_running = False
    assert not scene.turns.forward({})
    assert scene.begun == [("shop", 2), ("shop", 1), ("billing", 1)]
    assert scene.catalog.rounds == 1


def test_no_round_begins_until_every_move_is_answered() -> None:
    scene = Scene()
    scene.turns.submit(SHOP, move(1))
    scene.turns.submit(BILLING, move(1))
    scene.turns.answered("shop", FoldersMoved(1))
    assert not scene.turns.forward({})
    scene.turns.answered("billing", WorkFailed(1, Failure("storage does not answer")))
    scene.turns.forward({})
    assert scene.catalog.rounds == 1


def test_without_a_catalog_nothing_waits() -> None:
    begun: list[int] = []
    turns = CatalogTurns(None, lambda _, work: begun.append(work.run))
    turns.submit(SHOP, move(1))
    assert begun == [1]
    assert turns.forward({})


def test_works_that_change_tables_touch_the_catalog_and_the_end_is_passed_on() -> None:
    scene = Scene()
    scene.turns.answered("shop", RowsCommitted(1))
    scene.turns.answered("shop", TableAsked(2, DeltaFacts(7, None)))
    assert scene.catalog.touches == 1
    scene.turns.forward({}, at_rest=True)
    assert scene.catalog.waited_for


def test_moves_and_rounds_of_an_iceberg_catalog_do_not_wait_for_each_other() -> None:
    scene = Scene(moves_wait=False)
    scene.turns.submit(SHOP, move(1))
    assert not scene.turns.forward({})
    assert scene.catalog.rounds == 1
    scene.turns.submit(BILLING, move(2))
    assert (scene.begun, scene.catalog.pauses) == ([("shop", 1), ("billing", 2)], 0)
