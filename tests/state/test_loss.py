"""A state store that is deleted, replaced, truncated or restored is reported."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.state.store import StateStore

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(seq: int, epoch: int = 0) -> Position:
    return Position(SERVER, f"{SERVER}:1-{seq}", "binlog.000001", 4 + seq, seq, epoch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    """Yields a store in which the acknowledged seq of `shop` is 7."""
    store = StateStore(path)
    store.save([("shop", position(7), position(8), 5)])
    yield store
    store.close()


def save(store: StateStore, seq: int) -> None:
    store.save([("shop", position(seq), position(seq), 5)])


def acknowledged(path: Path) -> int:
    """Returns the seq of the stored position, read on another connection."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        (text,) = db.execute("SELECT acknowledged FROM consumer WHERE name = 'shop'").fetchone()
    return Position.from_json(text).seq


@pytest.mark.parametrize("end", ["", "-wal"])
def test_nothing_is_acknowledged_after_a_file_is_deleted(
    path: Path, store: StateStore, end: str
) -> None:
    save(store, 8)  # this position is only in the -wal
    path.with_name(path.name + end).unlink()
    for attempt in (lambda: save(store, 9), lambda: store.next_session("shop"), store.check):
        with pytest.raises(BinlogError, match=rf"state\.db{end} was deleted") as caught:
            attempt()
        assert caught.value.kind is ErrorKind.STATE_STORE
        assert "restart the daemon" in caught.value.remedy
    store.close()
    again = StateStore(path)
    stored = again.load("shop")
    assert stored == (Progress(position(8), position(8), 5) if end else None)
    assert [(loss.consumer, loss.new_store) for loss in again.losses] == (
        [] if end else [("shop", True)]
    )
    again.close()


def test_a_deleted_folder_stays_locked(path: Path, store: StateStore) -> None:
    shutil.rmtree(path.parent)
    with pytest.raises(BinlogError, match="was deleted"):
        store.check()
    with pytest.raises(BinlogError, match="in use by another process"):
        StateStore(path)


def test_nothing_is_acknowledged_while_the_file_is_replaced(
    path: Path, store: StateStore, tmp_path: Path
) -> None:
    save(store, 8)
    other = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(other)) as copy:
        db.backup(copy)
    save(store, 9)
    own = tmp_path / "own.db"
    path.rename(own)
    other.replace(path)
    for attempt in (lambda: save(store, 10), lambda: store.next_session("shop"), store.check):
        with pytest.raises(BinlogError, match="the file was replaced by another one") as caught:
            attempt()
        assert caught.value.kind is ErrorKind.STATE_STORE
        assert "restart the daemon" in caught.value.remedy
    own.replace(path)
    save(store, 10)
    assert acknowledged(path) == 10


def test_a_truncated_store_is_distinguished_from_a_new_one(path: Path, store: StateStore) -> None:
    store.close()
    path.write_bytes(b"")
    with pytest.raises(
        BinlogError, match="the file is empty, but it contained the store"
    ) as caught:
        StateStore(path)
    assert str(store.installation_id) in caught.value.what
    assert "delete it" in caught.value.remedy
    # A second attempt fails in the same way, because the first attempt has not changed the lock file. Then follow the
    # remedy.
    with pytest.raises(BinlogError, match="the file is empty"):
        StateStore(path)
    path.unlink()
    StateStore(path).close()


def test_an_empty_file_becomes_a_store_if_there_was_none(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    StateStore(path).close()
    assert path.stat().st_size


def test_session_numbers_do_not_repeat_after_an_older_copy_was_restored(path: Path) -> None:
    times = iter((100.0, 107.0, 107.0))
    store = StateStore(path, clock=lambda: next(times))
    store.next_session("shop")
    store.close()
    copy = path.read_bytes()
    store = StateStore(path, clock=lambda: next(times))
    newest = store.next_session("shop")
    store.close()
    path.write_bytes(copy)
    store = StateStore(path, clock=lambda: 107.5)
    assert store.next_session("shop") > newest
    store.close()
