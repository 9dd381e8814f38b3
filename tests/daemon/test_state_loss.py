"""The state store of a running daemon is deleted, replaced or lost: the daemon says so, and no reader mistakes one
history for another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.daemon.harness import PASSWORD, Daemon, Problem, Reader, until
from tests.daemon.test_api import refused
from tests.servers import Instance
from tests.servers.plugin import ServerFactory


@dataclass
class Scene:
    server: Instance
    daemon: Daemon
    reader: Reader

    def insert(self) -> None:
        self.server.execute("INSERT INTO d.t VALUES ()")

    def read(self) -> None:
        before = len(self.reader.transactions)
        self.insert()
        self.reader.read_to(self.server)
        assert len(self.reader.transactions) == before + 1


@pytest.fixture(scope="module")
def scene(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    server = module_server_factory("mysql97")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    server.add_user("loser", PASSWORD)
    consumer = {
        "mysql": f"loser@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["d"],
    }
    daemon = Daemon(tmp_path_factory.mktemp("loss"), {"consumers": {"d": consumer}})
    daemon.start()
    scene = Scene(server, daemon, Reader(daemon, "d").open())
    yield scene
    daemon.stop()
    daemon.close()


def test_a_new_store_begins_with_a_new_epoch(scene: Scene) -> None:
    assert time.time() - 600 < scene.reader.position["epoch"] <= time.time()
    scene.read()


def test_a_store_that_is_deleted_under_the_daemon_is_written_anew(scene: Scene) -> None:
    daemon = scene.daemon
    scene.read()
    daemon.state.unlink()
    until(daemon.state.exists, "the file is there again")
    assert daemon.stored("d")["acknowledged"] == scene.reader.position
    until(lambda: "was deleted and has been rewritten" in daemon.log, "the log says so")
    scene.read()
    daemon.restart(kill=True)
    assert daemon.stored("d")["acknowledged"] == scene.reader.position
    scene.read()  # in the session from before


def test_a_store_that_is_replaced_under_the_daemon_refuses_acknowledgements(
    scene: Scene,
) -> None:
    daemon, api, away = scene.daemon, scene.daemon.api, scene.daemon.folder / "away.db"
    shutil.copy(daemon.state, away)
    away.replace(daemon.state)

    def says_so() -> bool:
        status, _, text = api.request("GET", "/readyz")
        return status == 503 and b"the file was replaced by another one" in text

    until(says_so, "/readyz says so")
    scene.insert()
    with refused(503, "STATE_STORE") as seen:
        scene.reader.step()
        scene.reader.acknowledge()
    assert seen.problem and "restart the daemon" in seen.problem.body["hint"]
    daemon.state.rename(away)
    until(lambda: api.request("GET", "/readyz")[0] == 200, "the daemon writes its own again")
    scene.reader.read_to(scene.server)
    assert daemon.stored("d")["acknowledged"] == scene.reader.position


def test_a_reader_goes_on_from_its_checkpoint_when_the_store_was_lost(scene: Scene) -> None:
    scene.read()
    daemon, before = scene.daemon, scene.reader.session
    daemon.stop()
    for path in daemon.folder.glob("state.db*"):
        if path.is_file():
            path.unlink()
    scene.insert()
    api = daemon.start()
    at = len(scene.reader.transactions)
    until(lambda: api.row("d")["acknowledged"], "the consumer has a place")
    assert api.row("d")["acknowledged"]["epoch"] > scene.reader.position["epoch"]
    invented = {**scene.reader.position, "offset": scene.reader.position["offset"] - 1}
    with pytest.raises(Problem):
        api.session("d", invented)
    scene.reader.open().read_to(scene.server)
    assert len(scene.reader.transactions) == at + 1
    assert scene.reader.session > before
    assert daemon.stored("d")["acknowledged"] == scene.reader.position
