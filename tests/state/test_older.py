"""If a store opens with positions older than the acknowledged positions, it reports this. Possible causes are a damaged
log of the store, or a restore."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.state.newest import EpochSeq, Loss
from dispatcher.state.store import StateStore

_KILLED = """
import os, signal, sys
from pathlib import Path
from dispatcher.model.position import Position
from dispatcher.state.store import StateStore

def save(seq, *names, epoch=1):
    at = Position("s", "", "binlog.000001", seq, seq, epoch)
    store.save([(name, at, at, 0) for name in names])

store = StateStore(Path(sys.argv[1]))
exec(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def position(seq: int, epoch: int = 1) -> Position:
    return Position("s", "", "binlog.000001", seq, seq, epoch)


def killed(path: Path, code: str) -> None:
    """Run `code` with an open store, then kill the process."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _KILLED, str(path), code]
    assert subprocess.run(command, check=False, cwd=root, timeout=60).returncode == -9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def log_of(path: Path) -> Path:
    return path.with_name("state.db-wal")


def flip(path: Path) -> None:
    """Flip one bit in the middle of the first frame of SQLite's log."""
    with log_of(path).open("r+b") as file:
        file.seek(2000)
        byte = file.read(1)
        file.seek(2000)
        file.write(bytes([byte[0] ^ 1]))


def cut(path: Path) -> None:
    os.truncate(log_of(path), 1000)


def remove(path: Path) -> None:
    log_of(path).unlink()


DAMAGES = pytest.mark.parametrize("damage", [flip, cut, remove])


@DAMAGES
def test_a_damaged_log_is_reported_with_both_positions(
    path: Path, damage: Callable[[Path], None]
) -> None:
    killed(path, "for seq in range(1, 99): save(seq, 'shop')")
    damage(path)
    with closing(StateStore(path)) as store:
        assert store.losses == (Loss("shop", EpochSeq(1, 98), EpochSeq(1, 1), new_store=False),)


@DAMAGES
def test_a_new_consumer_does_not_depend_on_the_log(
    path: Path, damage: Callable[[Path], None]
) -> None:
    killed(path, "save(7, 'shop'); save(8, 'billing')")
    damage(path)
    with closing(StateStore(path)) as store:
        assert store.losses == ()
        assert (store.load("shop"), store.load("billing")) != (None, None)


def test_only_what_was_stored_after_a_checkpoint_depends_on_the_log(path: Path) -> None:
    killed(path, "save(1, 'shop'); save(2, 'shop'); store.checkpoint(); save(3, 'shop')")
    cut(path)
    with closing(StateStore(path)) as store:
        assert store.losses == (Loss("shop", EpochSeq(1, 3), EpochSeq(1, 2), new_store=False),)


def test_an_intact_log_after_a_kill_is_no_loss(path: Path) -> None:
    killed(path, "for seq in range(1, 99): save(seq, 'shop', 'billing')")
    with closing(StateStore(path)) as store:
        assert store.losses == () and not store.unreadable


def test_a_position_that_went_back_on_purpose_is_no_loss(path: Path) -> None:
    killed(path, "save(9, 'shop'); save(2, 'shop'); save(5, 'shop', epoch=3)")
    with closing(StateStore(path)) as store:
        assert store.losses == ()


def test_a_move_back_that_was_lost_is_no_loss(path: Path) -> None:
    """The store clears the recorded position before the transaction, so a kill between the two causes no false
    alarm."""
    killed(path, "save(9, 'shop'); save(2, 'shop')")
    remove(path)
    with closing(StateStore(path)) as store:
        assert [loss.consumer for loss in store.losses] == []


def test_a_consumer_that_was_forgotten_is_no_loss(path: Path) -> None:
    killed(path, "save(9, 'shop'); store.forget('shop')")
    remove(path)
    with closing(StateStore(path)) as store:
        assert store.losses == () and store.load("shop") is None


def test_a_loss_is_reported_until_the_consumer_stores_a_position(path: Path) -> None:
    killed(path, "save(1, 'shop'); save(9, 'shop')")
    remove(path)
    StateStore(path).close()
    with closing(StateStore(path)) as store:
        assert [loss.consumer for loss in store.losses] == ["shop"]
        store.save([("shop", position(2), position(2), 0)])
    with closing(StateStore(path)) as store:
        assert store.losses == ()


@pytest.fixture
def restored(path: Path) -> StateStore:
    """Returns a store from a backup that lacks the consumer `billing`."""
    with closing(StateStore(path)) as store:
        store.save([("shop", position(1), position(1), 0)])
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(StateStore(path)) as store:
        store.save([(name, position(9), position(9), 0) for name in ("shop", "billing")])
    copy.replace(path)
    return StateStore(path)


def test_a_restored_backup_is_reported(restored: StateStore) -> None:
    assert restored.losses == (
        Loss("billing", EpochSeq(1, 9), None, new_store=False),
        Loss("shop", EpochSeq(1, 9), EpochSeq(1, 1), new_store=False),
    )
    restored.close()


def test_a_consumer_without_its_row_does_not_begin_at_its_start(restored: StateStore) -> None:
    with pytest.raises(BinlogError, match="has lost the consumer's position: seq 9") as caught:
        restored.load("billing")
    assert caught.value.kind is ErrorKind.STORED_POSITION
    restored.close()


def test_a_lost_row_is_replaced_by_a_move(restored: StateStore) -> None:
    restored.save([("billing", position(9), position(9), 0)])
    assert restored.load("billing") is not None
    restored.close()


def test_a_lost_row_is_replaced_by_forgetting_the_consumer(restored: StateStore) -> None:
    before = restored.epoch
    restored.forget("billing")
    assert restored.load("billing") is None and restored.epoch > before
    restored.close()


def test_a_new_store_in_the_place_of_another_is_reported(path: Path) -> None:
    with closing(StateStore(path)) as store:
        store.save([("shop", position(9), position(9), 0)])
    path.unlink()
    with closing(StateStore(path)) as store:
        assert store.losses == (Loss("shop", EpochSeq(1, 9), None, new_store=True),)
        assert store.load("shop") is None  # the consumer begins at its `start`, in a new epoch
        store.save([("billing", position(1), position(1), 0)])
    with closing(StateStore(path)) as store:
        assert store.losses == ()


@pytest.mark.parametrize(
    "text", [b"", b"\xff\x00", b"installation x\n", b'installation x\n"shop" 1 2 3']
)
def test_an_unreadable_file_of_positions_is_reported_and_written_again(
    path: Path, text: bytes
) -> None:
    with closing(StateStore(path)) as store:
        store.save([("shop", position(9), position(9), 0)])
        header = f"installation {store.installation_id}".encode()
    newest = path.with_name("state.db.newest")
    newest.write_bytes(text.replace(b"installation x", header))
    with closing(StateStore(path)) as store:
        assert store.losses == () and store.unreadable == (text != b"installation x\n")
        store.save([("shop", position(10), position(10), 0)])
    with closing(StateStore(path)) as store:
        assert store.unreadable == 0
    assert b'"shop"' in newest.read_bytes()


def test_a_deleted_file_of_positions_is_written_again(path: Path) -> None:
    newest = path.with_name("state.db.newest")
    with closing(StateStore(path)) as store:
        store.save([("shop", position(9), position(9), 0)])
        newest.unlink()
        store.check()
        assert b" 9 " in newest.read_bytes()
        store.save([("shop", position(10), position(10), 0)])
        assert b" 10 " in newest.read_bytes()


def test_an_acknowledgement_waits_for_one_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acknowledgement waits for the commit of its transaction, but not for a checkpoint or a sync of the file of
    positions."""
    syncs: list[int] = []
    statements: list[str] = []
    with closing(StateStore(path)) as store:
        store.save([("shop", position(1), position(1), 0)])
        monkeypatch.setattr(os, "fsync", syncs.append)
        store._db.set_trace_callback(statements.append)
        store.save([("shop", position(2), position(2), 0)])
        store._db.set_trace_callback(None)
        monkeypatch.undo()
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "INSERT", "COMMIT"]
    assert syncs == []


def test_the_positions_are_private(path: Path) -> None:
    with closing(StateStore(path)) as store:
        store.save([("shop", position(9), position(9), 0)])
    assert path.with_name("state.db.newest").stat().st_mode & 0o777 == 0o600


def test_a_reader_in_another_process_does_not_hold_a_checkpoint_up(path: Path) -> None:
    with closing(StateStore(path)) as store, closing(sqlite3.connect(path)) as reader:
        store.save([("shop", position(1), position(1), 0)])
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM consumer").fetchone() == (1,)
        store.save([("shop", position(2), position(2), 0)])
        store.checkpoint()
        stored = store.load("shop")
    assert stored is not None and stored.acknowledged.seq == 2
