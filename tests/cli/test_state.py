"""`state dump`, `state backup` and `state move` as a person runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from dispatcher.model.position import Position
from dispatcher.state.store import StateStore
from tests.cli.program import call, consumer, write
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


def test_a_state_moves_between_the_stores_of_two_settings(
    tmp_path: Path, mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    shop = ("shop", consumer(1, "u"))
    database = state_settings(mysql97, new_database(mysql97))
    secret = (
        f"{{mysql: '{database.label}', password: '{database.secret}', tls: {{mode: disabled}}}}"
    )
    old, new = write(tmp_path, shop), write(tmp_path, shop, state=secret, name="new.yaml")
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
        "1 consumers, 1 with a position, 1 with a session",
        "0 connections with 0 table versions, 0 prepared transactions (0 B)",
        f"moved from {tmp_path}/state.db to {database.label}; start the daemon with the new settings",
    ]
    after = call("state", "dump", "--config", new)
    lines = before.stdout.splitlines()
    assert after.stdout.splitlines() == [lines[0], "leader: none", *lines[1:]]
    again = call("state", "move", "--config", old, "--to", new)
    assert again.returncode == 1 and "the state was moved to" in again.stderr
    with closing(leading_store(database)):
        led = call("state", "dump", "--config", new)
        assert "leader: http://a:8085, term 1\n" in led.stdout
        made = call("state", "backup", tmp_path / "copy.db", "--config", new)
    assert made.returncode == 0
    copy = call("state", "dump", "--path", tmp_path / "copy.db")
    assert copy.stdout == before.stdout
