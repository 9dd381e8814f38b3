"""The state store is read and copied while the daemon uses it."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.state.copies import back_up, dump_state
from dispatcher.state.store import StateStore

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(seq: int) -> Position:
    return Position(SERVER, f"{SERVER}:1-{seq}", "binlog.000001", 4 + seq, seq, 7)


def test_a_dump_shows_positions_sessions_and_epochs_of_an_open_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(StateStore(path)) as store:
        store.save([("shop", at(1), at(5), 1_700_000_000)])
        number = store.next_session("billing")
        store.set_paused("billing", True)
        state = dump_state(path)
        assert state["installation"] == str(store.installation_id)
        assert state["epoch"] == store.epoch
    assert state["consumers"] == [
        {
            "name": "billing",
            "session": number,
            "paused": True,
            "acknowledged": None,
            "covered": None,
        },
        {
            "name": "shop",
            "session": 0,
            "paused": False,
            "acknowledged": at(1).as_dict(),
            "covered": at(5).as_dict(),
        },
    ]
    assert state["connections"] == state["prepared"] == []


def test_backups_during_writes_are_each_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(StateStore(path)) as store:
        store.save([("a", at(0), at(0), 0), ("b", at(0), at(0), 0)])
        over = threading.Event()

        def write() -> None:
            seq = 0
            while not over.is_set():
                seq += 1
                store.save([("a", at(seq), at(seq), 0), ("b", at(seq), at(seq), 0)])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for n in range(10):
                assert back_up(path, tmp_path / f"copy{n}.db") > 0
        finally:
            over.set()
            writer.join()
    for n in range(10):
        copy = tmp_path / f"copy{n}.db"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert not copy.with_name(f"{copy.name}-wal").exists()
        a, b = dump_state(copy)["consumers"]
        assert a["covered"] == b["covered"]


def test_a_restored_backup_continues_where_it_was_made(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    with closing(StateStore(path)) as store:
        store.save([("shop", at(1), at(1), 0)])
        installation = store.installation_id
        back_up(path, copy)
        store.save([("shop", at(2), at(2), 0)])
    copy.rename(path)
    with closing(StateStore(path)) as store:
        progress = store.load("shop")
        assert progress is not None and progress.acknowledged == at(1)
        assert store.installation_id == installation


def test_faults_are_messages(tmp_path: Path) -> None:
    path, other = tmp_path / "state.db", tmp_path / "other.db"
    with pytest.raises(BinlogError, match=r"no such file; check state\.path"):
        dump_state(path)
    with closing(StateStore(path)):
        (tmp_path / "taken").touch()
        with pytest.raises(BinlogError, match="exists already"):
            back_up(path, tmp_path / "taken")
        with pytest.raises(BinlogError, match="No such file or directory"):
            back_up(path, tmp_path / "nowhere" / "copy")
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (a)")
    with pytest.raises(BinlogError, match="not a state store"):
        dump_state(other)
    path.write_bytes(b"no database" * 100)
    with pytest.raises(BinlogError, match="not a database"):
        back_up(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists() and not (tmp_path / "copy.part").exists()
