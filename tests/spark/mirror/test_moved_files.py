"""Moves of tables: in an object store, files move one by one, and the test kills the process after each request. Also:
places that are not free."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.moved_files import move_files, moving_order
from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.mirror_state import MirrorOptions, MirrorState
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import CatchingUp, Dropped, Live, TableState
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.rules.tasks.folder_move import after_move
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.values.policies import TablePolicy

DAMAGED = "this commit does not show to which table the folder belongs"


class KilledError(Exception):
    """The process is killed at this point."""


@dataclass
class ObjectStore:
    """Objects by key. Each request that changes an object may be the last request of the process."""

    objects: dict[str, str] = field(default_factory=dict)
    requests_left: int = 10**9
    at_once: bool = False  # True: a file system, which moves a folder in one operation
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
        """Add a Delta table of two files and two commits. The first commit contains the table's id."""
        for n in (1, 2):
            self.objects[f"t/{folder}/part-{n}"] = f"{rows}{n}"
            self.objects[f"t/{folder}/_delta_log/{n - 1:020}.json"] = table_id

    def rows(self, folder: str) -> list[str]:
        """Returns the rows of a table. Both of its commits must exist."""
        names = [f"t/{folder}/_delta_log/{n:020}.json" for n in (0, 1)]
        assert [name in self.objects for name in names] == [True, True]
        return [self.objects[f"t/{folder}/part-{n}"] for n in (1, 2)]


class Mover(FolderMover):
    """A `FolderMover` without Spark."""

    def __init__(self, files: ObjectStore, *theirs: str) -> None:
        """`theirs`: names of tables that the consumer billing mirrors."""
        self._files, self._target, self._lock = cast(Any, files), "t", threading.Lock()
        self._busy = BusyFolders()
        self._other_owner = lambda name: "billing" if name[1] in theirs else ""

    def _owner(self, folder: str) -> str:
        objects = cast(ObjectStore, self._files).objects
        owner = objects.get(f"t/{folder}/_delta_log/{0:020}.json", "")
        if owner == DAMAGED:
            raise BinlogError(ErrorKind.TARGET_FILES, "the log is damaged", remedy="put it back")
        return owner

    def _forget(self, folder: str) -> None:
        pass


class Moves:
    """Executes moves of tables like the rules: step by step, with new records after each step."""

    def __init__(self, *records: TableRecord) -> None:
        options = MirrorOptions("shop", lambda _: TablePolicy(), lambda _: False, str)
        self.state = MirrorState(options, {record.table_id: record for record in records})

    def finish(self, mover: Mover, *table_ids: str) -> dict[str, str]:
        """Move the folders of these tables, or of all tables if none is given. Returns why tables have no place."""
        refused: dict[str, str] = {}
        ended = False
        while not ended:
            every = tuple(self.state.records.values())
            moving = [r for r in every if r.move and (not table_ids or r.table_id in table_ids)]
            moving = [record for record in moving if record.table_id not in refused]
            if not moving:
                return refused
            answer = mover.move(MoveFolders(1, tuple(moving), every))
            refused |= {table_id: str(fault) for table_id, fault in answer.refused.items()}
            after_move(self.state, [record.table_id for record in moving], answer)
            ended = answer.step is None
        return refused

    def record(self, table_id: str) -> TableRecord:
        return self.state.records[table_id]


def moving(name: str, to: str, source: str = "") -> TableRecord:
    """Returns the record of a table that had the name `name`, and is about to move."""
    folder = folder_of(("shop", to))
    move = Move(source or folder_of(("shop", name)))
    return TableRecord(name, "shop", "shop", to, folder=folder, move=move)


def killed_after_each_request(store: ObjectStore, *records: TableRecord) -> Iterator[ObjectStore]:
    """Moves the tables in several processes. Each process is killed one request later than the previous process. Yields
    the store after each process."""
    for requests in count(1):
        moves = Moves(*records)
        now = replace(store, objects=dict(store.objects), requests_left=requests)
        try:
            moves.finish(Mover(now))
            return
        except KilledError:
            now.requests_left = 10**9
            moves.finish(Mover(now))
        assert not any(record.move for record in moves.state.records.values())
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


def test_the_rows_from_before_a_copy_do_not_come_back() -> None:
    """They were aside, because the table's place was taken."""
    store = ObjectStore()
    store.put_table("_binlog/moving/a", "a", "before")
    store.put_table("_binlog/copies/a", "a", "copied")
    assert Moves(moving("a", "a", "_binlog/copies/a")).finish(Mover(store)) == {}
    assert Moves(moving("a", "b")).finish(Mover(store)) == {}
    assert store.rows("shop/b") == ["copied1", "copied2"]
    assert len(store.objects) == 4


def test_the_folder_of_a_dropped_table_is_replaced_and_that_of_another_is_not() -> None:
    store = ObjectStore()
    store.put_table("shop/a", "a", "rows")
    store.put_table("shop/b", "gone", "old")
    dropped = TableRecord("gone", "shop", "shop", "b", state=Dropped())
    assert Moves(moving("a", "b"), dropped).finish(Mover(store)) == {}
    assert store.rows("shop/b") == ["rows1", "rows2"]


@pytest.mark.parametrize("at_once", [True, False], ids=["file system", "object store"])
class TestATakenPlace:
    """The place shop/x contains a folder that does not belong to the mirror."""

    @pytest.fixture
    def store(self, at_once: bool) -> ObjectStore:
        store = ObjectStore(at_once=at_once)
        store.put_table("shop/x", "of a person", "precious")
        return store

    def test_a_copy_stays_where_it_is_and_another_table_moves(self, store: ObjectStore) -> None:
        store.put_table("_binlog/copies/x", "x", "copied")
        store.put_table("_binlog/copies/z", "z", "copied")
        copy = replace(moving("x", "x", "_binlog/copies/x"), state=CatchingUp(Live(), 1))
        moves = Moves(copy, moving("z", "z", "_binlog/copies/z"))
        refused = moves.finish(Mover(store))
        assert refused.keys() == {"x"}
        assert "move or delete that folder" in refused["x"]
        assert store.rows("shop/x") == ["precious1", "precious2"]
        assert store.rows("shop/z") == ["copied1", "copied2"]
        assert moves.record("x").word is TableState.COPYING
        assert moves.record("x").lies_at == "_binlog/copies/x"
        assert moves.record("z").move is None

    def test_a_renamed_table_is_stopped_aside_and_the_other_tables_of_the_statement_move(
        self, store: ObjectStore
    ) -> None:
        store.put_table("shop/a", "a", "rows of a")
        store.put_table("shop/b", "b", "rows of b")
        moves = Moves(moving("a", "x"), moving("b", "a"))
        assert moves.finish(Mover(store), "a", "b").keys() == {"a"}
        halted = moves.record("a")
        assert (halted.word, halted.state) == (
            TableState.STOPPED,
            CatchingUp(Live(), reason_before=""),
        )
        assert "something else is there" in halted.reason
        assert store.rows(halted.lies_at) == ["rows of a1", "rows of a2"]
        assert store.rows("shop/a") == ["rows of b1", "rows of b2"]

    def test_it_moves_when_the_place_is_free(self, store: ObjectStore) -> None:
        store.put_table("shop/a", "a", "rows")
        moves, mover = Moves(moving("a", "x")), Mover(store)
        assert moves.finish(mover) and moves.finish(mover, "a")
        store.delete("t/shop/x")
        assert moves.finish(mover, "a") == {}
        assert store.rows("shop/x") == ["rows1", "rows2"]
        assert moves.record("a").move is None

    def test_a_repair_moves_tables_of_several_statements(self, store: ObjectStore) -> None:
        """One table has completed several steps of its move, and the place of another table was not free."""
        store.put_table("shop/b", "b", "rows of b")
        moves, mover = Moves(moving("b", "c")), Mover(store)
        if not store.at_once:
            for _ in range(2):
                move = MoveFolders(1, (moves.record("b"),), (moves.record("b"),))
                after_move(moves.state, ["b"], mover.move(move))
        store.put_table("_binlog/moving/a", "a", "rows of a")
        waits = moving("a", "x", "_binlog/moving/a")
        moves.state.records["a"] = replace(waits, state=CatchingUp(Live()))
        assert moves.finish(mover).keys() == {"a"}
        assert store.rows("shop/c") == ["rows of b1", "rows of b2"]
        assert store.rows("_binlog/moving/a") == ["rows of a1", "rows of a2"]
        assert moves.record("b").move is None

    def test_the_table_of_another_consumer_is_not_named_for_deletion(
        self, store: ObjectStore
    ) -> None:
        store.put_table("_binlog/copies/x", "x", "copied")
        (fault,) = Moves(moving("x", "x", "_binlog/copies/x")).finish(Mover(store, "x")).values()
        assert "from the consumer billing" in fault
        assert "delete" not in fault


@pytest.mark.parametrize("at_once", [True, False], ids=["file system", "object store"])
def test_a_folder_that_does_not_show_its_owner_stays_and_other_tables_move(at_once: bool) -> None:
    store = ObjectStore(at_once=at_once)
    for name in ("a", "b", "c"):
        store.put_table(f"shop/{name}", name, f"rows of {name}")
    first = f"t/shop/b/_delta_log/{0:020}.json"
    store.objects[first] = DAMAGED
    moves, mover = Moves(moving("a", "b"), moving("b", "a"), moving("c", "d")), Mover(store)
    assert moves.finish(mover).keys() == {"a", "b"}
    assert (moves.record("a").lies_at, moves.record("b").lies_at) == ("_binlog/moving/a", "shop/b")
    assert "the log is damaged" in moves.record("b").reason
    assert store.rows("shop/d") == ["rows of c1", "rows of c2"]
    store.objects[first] = "b"
    assert moves.finish(mover, "b") == {} and moves.finish(mover, "a") == {}
    assert store.rows("shop/a") == ["rows of b1", "rows of b2"]
    assert store.rows("shop/b") == ["rows of a1", "rows of a2"]


def test_a_file_that_another_process_has_moved_is_not_deleted() -> None:
    """Two processes move the same folder. One of them has moved all files after the other has listed them."""
    store = ObjectStore()
    store.put_table("shop/a", "a", "rows")
    names = store.files_below("t/shop/a")
    move_files(store, "t/shop/a", "t/shop/b")
    listed = store.files_below
    store.files_below = lambda path: names if path == "t/shop/a" else listed(path)  # type: ignore[method-assign]
    move_files(store, "t/shop/a", "t/shop/b")
    assert store.rows("shop/b") == ["rows1", "rows2"]


def test_a_table_that_has_not_left_a_place_is_not_deleted_there() -> None:
    """The move of this table belongs to another statement. The job was killed before the first step of that move."""
    store = ObjectStore(at_once=True)
    store.put_table("shop/a", "a", "rows of a")
    store.put_table("_binlog/copies/new", "new", "copied")
    moves, mover = Moves(moving("a", "b"), moving("new", "a", "_binlog/copies/new")), Mover(store)
    assert moves.finish(mover, "new") == {}
    assert store.rows("shop/a") == ["copied1", "copied2"]
    assert moves.finish(mover) == {}
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
