"""The state store is durable: what it has stored survives a kill of the process."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.state.store import StateStore

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(seq: int, *, epoch: int = 0) -> Position:
    return Position(SERVER, f"{SERVER}:1-{seq}", "binlog.000001", 4 + seq, seq, epoch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder" / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    store = StateStore(path)
    yield store
    store.close()


def test_session_numbers_increase_and_are_based_on_the_time(path: Path) -> None:
    store = StateStore(path, clock=lambda: 1_700_000_000.25)
    assert [store.next_session("shop") - 1_700_000_000_250 for _ in range(3)] == [0, 1, 2]
    assert store.session("shop") == 1_700_000_000_252
    assert store.session("billing") == 0
    assert store.load("shop") is None
    store.close()


def test_the_file_syncs_every_commit(store: StateStore, path: Path) -> None:
    db = store._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_another_process_may_read(store: StateStore, path: Path) -> None:
    store.save([("shop", position(1), position(1), 1)])
    look = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1])\n"
        "print(db.execute('SELECT name FROM consumer').fetchall())"
    )
    seen = subprocess.run(
        [sys.executable, "-c", look, path], capture_output=True, text=True, check=True
    )
    assert seen.stdout == "[('shop',)]\n"


CHILD = """
import sys
from pathlib import Path
from dispatcher.model.position import Position
from dispatcher.state.store import StateStore

store = StateStore(Path(sys.argv[1]))
session = store.next_session("shop")
for seq in range(1, int(sys.argv[2]) + 1):
    at = Position("s", "", "binlog.000001", seq, seq, 0)
    store.save([("shop", at, at, seq), ("billing", at, at, seq)])
    print(seq, flush=True)
sys.stdin.read()
"""


def start_child(path: Path, saves: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CHILD, str(path), str(saves)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_until(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdout is not None
    for seen in child.stdout:
        if seen.strip() == line:
            return
    raise AssertionError(f"the child ended with {child.wait(10)} before {line!r}")


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=10)


@pytest.mark.parametrize("seen", [1, 7, 40])
def test_saved_progress_survives_sigkill(path: Path, seen: int) -> None:
    child = start_child(path, 10_000)
    read_until(child, str(seen))
    kill(child)
    store = StateStore(path)
    shop, billing = store.load("shop"), store.load("billing")
    assert shop is not None and billing is not None
    assert shop.acknowledged.seq >= seen
    assert shop.acknowledged == billing.acknowledged
    before = store.session("shop")
    assert 0 < before < store.next_session("shop")
    store.close()


def test_a_second_process_is_refused_until_the_first_is_gone(path: Path) -> None:
    child = start_child(path, 1)
    read_until(child, "1")
    with pytest.raises(BinlogError) as caught:
        StateStore(path)
    kill(child)
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert f"in use by another process (pid {child.pid})" in str(caught.value)
    assert "stop the other daemon" in caught.value.remedy
    StateStore(path).close()


def test_the_same_process_is_refused_too(store: StateStore, path: Path) -> None:
    with pytest.raises(BinlogError, match="in use"):
        StateStore(path)


def test_a_store_that_failed_to_open_is_not_locked(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    for _ in range(2):
        with pytest.raises(BinlogError, match="not a database"):
            StateStore(path)


def failure(path: Path) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        StateStore(path)
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert caught.value.where == str(path)
    return caught.value


def test_a_file_that_is_not_a_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(4096))
    assert "move it away" in failure(path).remedy


def test_a_damaged_database(path: Path) -> None:
    store = StateStore(path)
    store.save([(f"consumer {n}", position(n), position(n), 0) for n in range(1, 200)])
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    assert "damaged" in failure(path).remedy


def test_a_database_of_another_program(path: Path) -> None:
    path.parent.mkdir(parents=True)
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    assert "another program" in failure(path).what


def test_a_store_of_another_version(path: Path) -> None:
    StateStore(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    error = failure(path)
    assert "schema 99" in error.what and "the binlog-dispatcher that wrote" in error.remedy


def modes(folder: Path) -> dict[str, str]:
    return {entry.name: f"{entry.stat().st_mode & 0o777:o}" for entry in folder.iterdir()}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "new" / "state.db")
    store.save([("shop", position(1), position(1), 0)])
    file_modes = modes(tmp_path / "new")
    store.close()
    ends = ("", "-wal", "-shm", ".lock", ".newest")
    assert file_modes.keys() == {f"state.db{end}" for end in ends}
    assert set(file_modes.values()) == {"600"}
    assert modes(tmp_path)["new"] == "700"


def test_existing_files_are_made_private(path: Path) -> None:
    StateStore(path).close()
    for file in path.parent.iterdir():
        file.chmod(0o664)
    again = StateStore(path)
    again.save([("shop", position(1), position(1), 0)])
    assert set(modes(path.parent).values()) == {"600"} and again.exposed == ()
    again.close()


def test_a_file_of_another_user_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateStore(path).close()
    path.chmod(0o640)

    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "chmod", refuse)
    again = StateStore(path)
    assert again.exposed == (path,)
    again.close()


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = failure(tmp_path / "file" / "state.db")
    assert "write access" in error.remedy


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    assert "write access" in failure(tmp_path / "state.db").remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping to another user needs root")
def test_an_unwritable_folder() -> None:
    """For root every folder is writable, so the attempt is made as another user."""
    code = (
        "import os, sys; from pathlib import Path; from dispatcher.state.store import StateStore\n"
        "os.setuid(65534)\n"
        "try: StateStore(Path(sys.argv[1]))\n"
        "except Exception as error: print(error)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        arguments = [sys.executable, "-c", code, f"{folder}/state.db"]
        seen = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "Permission denied" in seen.stdout and "write access" in seen.stdout


def test_a_full_disk_is_reported_and_loses_nothing(store: StateStore) -> None:
    store.save([("shop", position(1), position(1), 0)])
    store._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(BinlogError, match="full") as caught:
        store.save([(f"consumer {n}", position(n), position(n), 0) for n in range(1, 1000)])
    assert caught.value.kind is ErrorKind.STATE_STORE and "free space" in caught.value.remedy
    assert store.load("consumer 1") is None
    stored = store.load("shop")
    assert stored is not None and stored.acknowledged == position(1)
