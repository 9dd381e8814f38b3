"""Tables that move: in an object store, file by file, killed at each request in turn; and places that are taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import pytest

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.moved_files import moving_order
from spark_sink.mirror.rules.records import to_be_replayed
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import MOVE_STEP, MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.tables.directory import TableDirectory
from tests.spark.mirror.test_catalog import Control


class KilledError(Exception):
    """The process ends here."""


@dataclass
class ObjectStore:
    """Objects by key. Each request that changes one may be the last of the process."""

    objects: dict[str, str] = field(default_factory=dict)
    requests_left: int = 10**9
    at_once: bool = False  # it is a file system, in which a folder moves at once
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _request(self) -> None:
        if self.requests_left <= 0:
            raise KilledError
        self.requests_left -= 1

    def moves_folders(self, _path: str) -> bool:
        return self.at_once

    def files_below(self, path: str) -> list[str]:
        return [key.removeprefix(f"{path}/") for key in self.objects if key.startswith(f"{path}/")]

    def exists(self, path: str) -> bool:
        return path in self.objects or bool(self.files_below(path))

    def rename(self, old: str, new: str) -> None:
        assert new not in self.objects
        if self.at_once:
            assert not self.exists(new)
            for name in self.files_below(old):
                self.objects[f"{new}/{name}"] = self.objects.pop(f"{old}/{name}")
            return
        with self.lock:
            self._request()
            self.objects[new] = self.objects[old]
            self._request()
            del self.objects[old]

    def delete(self, path: str) -> None:
        with self.lock:
            for key in sorted(self.objects):
                if key == path or key.startswith(f"{path}/"):
                    self._request()
                    del self.objects[key]

    def put_table(self, folder: str, table_id: str, rows: str) -> None:
        """A Delta table of two files and two commits, the first of which says whose it is."""
        for n in (1, 2):
            self.objects[f"t/{folder}/part-{n}"] = f"{rows}{n}"
            self.objects[f"t/{folder}/_delta_log/{n - 1:020}.json"] = table_id

    def rows(self, folder: str) -> list[str]:
        """The rows of a table, all of which its two commits name."""
        names = [f"t/{folder}/_delta_log/{n:020}.json" for n in (0, 1)]
        assert [name in self.objects for name in names] == [True, True]
        return [self.objects[f"t/{folder}/part-{n}"] for n in (1, 2)]


class Mover(FolderMover):
    """Without Spark."""

    def __init__(self, files: ObjectStore, directory: TableDirectory) -> None:
        self._files = cast(Any, files)
        self._directory, self._target, self._lock = directory, "t", threading.Lock()

    def _owner(self, folder: str) -> str:
        return str(
            cast(ObjectStore, self._files).objects.get(f"t/{folder}/_delta_log/{0:020}.json", "")
        )

    def _forget(self, folder: str) -> None:
        pass


def tables(control: Control) -> TableDirectory:
    return TableDirectory("shop", cast(ControlTable, control), lambda folder: f"t/{folder}")


def moving(name: str, to: str, source: str = "") -> TableRecord:
    """The record of the table that had the name, and is about to move."""
    folder = folder_of(("shop", to))
    record = TableRecord(name, "shop", "shop", to, folder=folder)
    return record.having(**{MOVED_FROM: source or folder_of(("shop", name))})


def killed_after_each_request(store: ObjectStore, *records: TableRecord) -> Iterator[ObjectStore]:
    """Moves the tables, in processes each of which is killed after one request more, and gives the result."""
    for requests in count(1):
        control = Control()
        control.write(*records)
        now = replace(store, objects=dict(store.objects), requests_left=requests)
        try:
            Mover(now, tables(control)).finish_moves()
            return
        except KilledError:
            now.requests_left = 10**9
            Mover(now, tables(control)).finish_moves()
        details = [record.detail for record in control.records().values()]
        assert not any(MOVED_FROM in detail or MOVE_STEP in detail for detail in details)
        yield now


def test_a_swap_that_is_killed_goes_on_where_it_was() -> None:
    store = ObjectStore()
    store.put_table("shop/a", "a", "rows of a")
    store.put_table("shop/b", "b", "rows of b")
    kills = 0
    for now in killed_after_each_request(store, moving("a", "b"), moving("b", "a")):
        assert now.rows("shop/a") == ["rows of b1", "rows of b2"]
        assert now.rows("shop/b") == ["rows of a1", "rows of a2"]
        assert len(now.objects) == 8
        kills += 1
    assert kills > 30


def test_a_copy_takes_the_place_of_the_table_whatever_kills_it() -> None:
    store = ObjectStore()
    store.put_table("shop/a", "a", "before")
    store.put_table("_binlog/copies/a", "a", "copied")
    for now in killed_after_each_request(store, moving("a", "a", "_binlog/copies/a")):
        assert now.rows("shop/a") == ["copied1", "copied2"]
        assert len(now.objects) == 4


def test_the_folder_of_a_dropped_table_is_replaced_and_that_of_another_is_not() -> None:
    store = ObjectStore()
    store.put_table("shop/a", "a", "rows")
    store.put_table("shop/b", "gone", "old")
    control = Control()
    dropped = TableRecord("gone", "shop", "shop", "b", state=TableState.DROPPED)
    control.write(moving("a", "b"), dropped)
    Mover(store, tables(control)).finish_moves()
    assert store.rows("shop/b") == ["rows1", "rows2"]


@pytest.mark.parametrize("at_once", [True, False], ids=["file system", "object store"])
class TestATakenPlace:
    """A folder that is not the mirror's lies at shop/x."""

    @pytest.fixture
    def store(self, at_once: bool) -> ObjectStore:
        store = ObjectStore(at_once=at_once)
        store.put_table("shop/x", "of a person", "precious")
        return store

    def test_a_copy_stays_where_it_is_and_another_table_moves(self, store: ObjectStore) -> None:
        store.put_table("_binlog/copies/x", "x", "copied")
        store.put_table("_binlog/copies/z", "z", "copied")
        control = Control()
        copy = replace(moving("x", "x", "_binlog/copies/x"), state=TableState.COPYING)
        control.write(copy, moving("z", "z", "_binlog/copies/z"))
        directory = tables(control)
        refused = Mover(store, directory).finish_moves()
        assert refused.keys() == {"x"}
        assert "move or delete that folder" in str(refused["x"])
        assert store.rows("shop/x") == ["precious1", "precious2"]
        assert store.rows("shop/z") == ["copied1", "copied2"]
        assert directory.record("x").state is TableState.COPYING
        assert directory.record("x").lies_at == "_binlog/copies/x"
        assert MOVED_FROM not in directory.record("z").detail

    def test_a_renamed_table_is_stopped_aside_and_the_other_tables_of_the_statement_move(
        self, store: ObjectStore
    ) -> None:
        store.put_table("shop/a", "a", "rows of a")
        store.put_table("shop/b", "b", "rows of b")
        control = Control()
        control.write(moving("a", "x"), moving("b", "a"))
        directory = tables(control)
        assert Mover(store, directory).finish_moves("a", "b").keys() == {"a"}
        halted = directory.record("a")
        assert (halted.state, halted.detail["goal"]) == (TableState.STOPPED, "complete")
        assert "something else is there" in halted.reason
        assert not to_be_replayed(halted)
        assert store.rows(halted.lies_at) == ["rows of a1", "rows of a2"]
        assert store.rows("shop/a") == ["rows of b1", "rows of b2"]

    def test_it_moves_when_the_place_is_free(self, store: ObjectStore) -> None:
        store.put_table("shop/a", "a", "rows")
        control = Control()
        control.write(moving("a", "x"))
        directory = tables(control)
        mover = Mover(store, directory)
        assert mover.finish_moves() and mover.finish_moves("a")
        store.delete("t/shop/x")
        assert mover.finish_moves("a") == {}
        assert store.rows("shop/x") == ["rows1", "rows2"]
        assert to_be_replayed(directory.record("a"))

    def test_the_table_of_another_consumer_is_not_named_for_deletion(
        self, store: ObjectStore
    ) -> None:
        control = Control()
        theirs = TableRecord("theirs", "billing", "shop", "x", folder="shop/x")
        control.write(moving("x", "x", "_binlog/copies/x"), theirs)
        store.put_table("_binlog/copies/x", "x", "copied")
        (fault,) = Mover(store, tables(control)).finish_moves().values()
        assert "from the consumer billing" in str(fault)
        assert "delete" not in str(fault)


def test_a_table_that_has_not_left_a_place_is_not_deleted_there() -> None:
    """Its move belongs to another statement, which was killed before its first step."""
    store = ObjectStore(at_once=True)
    store.put_table("shop/a", "a", "rows of a")
    store.put_table("_binlog/copies/new", "new", "copied")
    control = Control()
    control.write(moving("a", "b"), replace(moving("new", "a", "_binlog/copies/new")))
    directory = tables(control)
    mover = Mover(store, directory)
    assert mover.finish_moves("new") == {}
    assert store.rows("shop/a") == ["copied1", "copied2"]
    assert mover.finish_moves() == {}
    assert store.rows("shop/b") == ["rows of a1", "rows of a2"]


def test_the_log_of_a_table_moves_last_and_its_newest_commit_first() -> None:
    names = ["part-2", "_delta_log/0.json", "_delta_log/1.json", "_delta_log/_last", "part-1"]
    expected = [
        ["part-1", "part-2"],
        ["_delta_log/_last"],
        ["_delta_log/1.json"],
        ["_delta_log/0.json"],
    ]
    assert moving_order(names) == expected
    assert moving_order([]) == [[]]
