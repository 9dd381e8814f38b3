"""`state dump`, `state backup` and `state move` as a person runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.model.position import Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.store import StateStore
from tests.cli.program import PASSWORD, call, consumer, write
from tests.servers.server import Server
from tests.support.state_stores import leading_store, state_settings


def test_dump_and_backup_beside_an_open_store(tmp_path: Path) -> None:
    file = write(tmp_path, ("shop", consumer(1, "u")))
    position = Position("server", "", "binlog.000001", 4711, 5, 7)
    with closing(StateStore(tmp_path / "state.db")) as store:
        store.save([("shop", position, position, 0)])
        shown = call("state", "dump", "--config", file)
        as_json = call("state", "dump", "--json", env={"DISPATCHER_CONFIG": str(file)})
        made = call("state", "backup", tmp_path / "copy.db", "--path", tmp_path / "state.db")
        again = call("state", "backup", tmp_path / "copy.db", "--config", file)
    assert shown.returncode == 0
    assert "  acknowledged binlog.000001:4711, seq 5, epoch 7\n" in shown.stdout
    (shop,) = json.loads(as_json.stdout)["consumers"]
    assert shop["covered"] == position.as_dict()
    assert made.returncode == 0 and made.stdout.startswith(f"{tmp_path}/copy.db: ")
    assert again.returncode == 2 and "exists already" in again.stderr
    of_the_copy = call("state", "dump", "--path", tmp_path / "copy.db")
    assert of_the_copy.stdout == shown.stdout


def test_the_store_must_be_named() -> None:
    done = call("state", "dump")
    assert done.returncode == 2 and "--config FILE or --path FILE" in done.stderr


@pytest.fixture
def database(mysql97: Server, new_database: Callable[[Server], str]) -> StateSettings:
    return state_settings(mysql97, new_database(mysql97))


def text_of(database: StateSettings) -> str:
    return f"{{mysql: '{database.label}', password: '{database.secret}', tls: {{mode: disabled}}}}"


def test_a_state_moves_between_the_stores_of_two_settings(
    tmp_path: Path, database: StateSettings
) -> None:
    shop = ("shop", consumer(1, "u"))
    old = write(tmp_path, shop)
    new = write(tmp_path, shop, state=text_of(database), name="new.yaml", port=8085)
    position = Position("server", "", "binlog.000001", 4711, 5, 7)
    with closing(StateStore(tmp_path / "state.db")) as store:
        store.save([("shop", position, position, 0)])
        store.next_session("shop")
        used = call("state", "move", "--config", old, "--to", new)
    assert used.returncode == 1 and "in use by another process" in used.stderr
    before = call("state", "dump", "--config", old)
    moved = call("state", "move", "--config", old, "--to", new)
    assert (moved.returncode, moved.stderr) == (0, "")
    assert moved.stdout.splitlines()[1:] == [
        "consumers: 1, with a position: 1, with a session: 1",
        "declared consumers: 0",
        "connections: 0, table versions: 0",
        "prepared transactions: 0, 0 B",
        f"moved from {tmp_path}/state.db to {database.label}; start the daemon with the new settings",
    ]
    with closing(leading_store(database)):
        after = call("state", "dump", "--config", new)
        made = call("state", "backup", tmp_path / "copy.db", "--config", new)
    lines = before.stdout.splitlines()
    assert after.stdout.splitlines() == [lines[0], "leader: http://a:8085, term 1", *lines[1:]]
    assert made.returncode == 0
    assert call("state", "dump", "--path", tmp_path / "copy.db").stdout == before.stdout


def test_check_names_the_database_of_the_state_and_its_leader(
    tmp_path: Path, mysql97: Server, database: StateSettings, new_database: Callable[[Server], str]
) -> None:
    """With a stored position the consumer's start has no effect, so it is not examined."""
    mysql97.add_user(user := f"c{os.getpid()}", PASSWORD)
    start = ", start: {file: binlog.000999, offset: 4}"
    shop = ("shop", consumer(mysql97, user, new_database(mysql97), start))
    file = write(tmp_path, shop, state=text_of(database), port=8085)
    new = call("check", "--config", file)
    assert new.returncode == 2 and "start: " in new.stderr
    position = Position("server", "", "binlog.000001", 4, 5, 7)
    with closing(leading_store(database)) as store:
        store.save([("shop", position, position, 0)])
        begun = call("check", "--config", file)
    assert begun.returncode == 0
    assert begun.stdout.startswith(f"{database.label}: 9.7.")
    assert ", schema 1, http://a:8085 leads, in term 1\nOK: 1 consumer checked" in begun.stdout
    assert f"warning: {database.label}: sync_binlog=0: " in begun.stderr
