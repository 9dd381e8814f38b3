"""`state dump` and `state backup` as a person runs them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from dispatcher.model.position import Position
from dispatcher.state.store import StateStore
from tests.cli.program import call, consumer, write


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
