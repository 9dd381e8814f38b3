"""A state store admits one process, under whatever name the process opens it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.state.store import StateStore

AT = Position("server", "", "binlog.000001", 11, 7, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "real" / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    store = StateStore(path)
    store.save([("shop", AT, AT, 0)])
    yield store
    store.close()


def refusal(path: Path) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        StateStore(path)
    assert caught.value.kind is ErrorKind.STATE_STORE
    return caught.value


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    folder.mkdir()
    return folder / "positions.db"


@pytest.mark.usefixtures("store")
def test_a_symbolic_link_to_an_open_store_is_refused(path: Path, other: Path) -> None:
    other.symlink_to(path)
    assert f"in use by another process (pid {os.getpid()})" in refusal(other).what


@pytest.mark.usefixtures("store")
def test_an_open_store_that_has_moved_to_another_folder_is_refused(path: Path, other: Path) -> None:
    """The file is the same, but its lock file is another one. A mount of the file alone has the same effect."""
    path.rename(other)
    assert "in use by another process" in refusal(other).what


@pytest.mark.usefixtures("store")
def test_a_hard_link_to_an_open_store_is_refused(path: Path, other: Path) -> None:
    other.hardlink_to(path)
    assert "2 names (hard links)" in refusal(other).what


@pytest.mark.parametrize("named", ["the name in use", "another name"])
def test_a_store_with_a_second_name_is_refused_until_the_remedy_is_done(
    path: Path, store: StateStore, other: Path, named: str
) -> None:
    store.close()
    other.hardlink_to(path)
    remedy = refusal(path if named == "the name in use" else other).remedy
    assert remedy is not None
    _, _, command = remedy.partition(": ")
    assert os.system(command) == 0
    again = StateStore(path)
    assert again.load("shop") is not None
    again.close()


def test_a_store_behind_a_symbolic_link_has_its_companions_beside_the_file(
    path: Path, store: StateStore, other: Path
) -> None:
    store.close()
    other.symlink_to(path)
    behind = StateStore(other)
    behind.save([("shop", AT, AT, 0)])
    behind.check()
    assert [file.name for file in other.parent.iterdir()] == [other.name]
    behind.close()


def test_links_that_form_a_circle_are_an_error_with_the_path(other: Path) -> None:
    other.symlink_to(other)
    assert refusal(other).where == str(other)
