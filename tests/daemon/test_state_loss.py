"""The state store of a running daemon is deleted, replaced or lost. The daemon reports the loss, and no reader
continues in a wrong history.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from dispatcher.state.copies import back_up
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from tests.daemon.harness import Problem, Reader, until
from tests.daemon.scene import Scene
from tests.daemon.test_api import refused


@pytest.fixture(scope="module")
def reader(scene: Scene) -> Reader:
    """A reader of `d` that has read everything. All tests use it, one after the other."""
    return scene.reader().read_to(scene.server)


def test_a_new_store_begins_with_a_new_epoch(scene: Scene, reader: Reader) -> None:
    assert time.time() - 600 < reader.position["epoch"] <= time.time()
    scene.deliver_one(reader)


def test_a_store_that_is_deleted_under_the_daemon_refuses_acknowledgements(
    scene: Scene, reader: Reader
) -> None:
    daemon, api, backup = scene.daemon, scene.daemon.api, scene.daemon.folder / "backup.db"
    scene.deliver_one(reader)
    back_up(daemon.state, backup)
    daemon.state.unlink()

    def says_so() -> bool:
        status, _, text = api.request("GET", "/readyz")
        return status == 503 and b"state.db was deleted while it was open" in text

    until(says_so, "/readyz says so")
    scene.insert()
    with refused(503, "STATE_STORE") as seen:
        reader.step()
        reader.acknowledge()
    assert seen.problem and "restored a backup" in seen.problem.body["hint"]
    assert "state store was deleted or replaced" in daemon.log
    daemon.kill()
    for end in ("-wal", "-shm"):
        daemon.state.with_name(daemon.state.name + end).unlink(missing_ok=True)
    shutil.copy(backup, daemon.state)
    daemon.start()
    reader.open(reader.position)
    reader.read_to(scene.server)
    assert daemon.stored("d")["acknowledged"] == reader.position


def test_a_log_that_was_removed_after_a_kill_is_reported_and_nothing_is_lost(
    scene: Scene, reader: Reader
) -> None:
    daemon = scene.daemon
    for _ in range(3):
        scene.deliver_one(reader)
    newest = reader.position["seq"]
    daemon.kill()
    daemon.state.with_name("state.db-wal").unlink()
    daemon.start()
    until(lambda: "state store is older than what was acknowledged" in daemon.log, "it is logged")
    assert f"seq {newest}, epoch {reader.position['epoch']} was acknowledged" in daemon.log
    reader.open(reader.position)
    scene.deliver_one(reader)


def test_a_store_that_is_replaced_under_the_daemon_refuses_acknowledgements(
    scene: Scene, reader: Reader
) -> None:
    daemon, api, away = scene.daemon, scene.daemon.api, scene.daemon.folder / "away.db"
    copy = scene.daemon.folder / "copy.db"
    shutil.copy(daemon.state, copy)
    daemon.state.rename(away)
    copy.rename(daemon.state)

    def says_so() -> bool:
        status, _, text = api.request("GET", "/readyz")
        return status == 503 and b"the file was replaced by another one" in text

    until(says_so, "/readyz says so")
    row = api.row("d")
    assert "the file was replaced by another one" in row["state_store_error"]
    assert "restart the daemon" in row["state_store_remedy"] and row["last_error"] is None
    scene.insert()
    with refused(503, "STATE_STORE") as seen:
        reader.step()
        reader.acknowledge()
    assert seen.problem and "restart the daemon" in seen.problem.body["hint"]
    away.replace(daemon.state)
    until(lambda: api.request("GET", "/readyz")[0] == 200, "the daemon has its own file again")
    assert api.row("d")["state_store_error"] is None
    reader.read_to(scene.server)
    assert daemon.stored("d")["acknowledged"] == reader.position


def test_a_reader_goes_on_from_its_checkpoint_when_the_store_was_lost(
    scene: Scene, reader: Reader
) -> None:
    scene.deliver_one(reader)
    daemon, before = scene.daemon, reader.session
    daemon.stop()
    for path in daemon.folder.glob("state.db*"):
        if path.is_file():
            path.unlink()
    scene.insert()
    api = daemon.start()
    at = len(reader.transactions)
    until(lambda: api.row("d")["acknowledged"], "the consumer has a place")
    assert api.row("d")["acknowledged"]["epoch"] > reader.position["epoch"]
    invented = {**reader.position, "offset": reader.position["offset"] - 1}
    with pytest.raises(Problem):
        api.session("d", invented)
    reader.open().read_to(scene.server)
    assert len(reader.transactions) == at + 1
    assert reader.session > before
    assert daemon.stored("d")["acknowledged"] == reader.position


def test_a_run_to_the_end_reaches_it_when_the_store_was_lost(scene: Scene, reader: Reader) -> None:
    """The end of the run has the epoch of the new store until a reader opens the first session; later it has the epoch
    of the reader's checkpoint."""
    daemon = scene.daemon
    scene.deliver_one(reader)
    checkpoint = reader.position
    daemon.stop()
    for path in daemon.folder.glob("state.db*"):
        if path.is_file():
            path.unlink()
    scene.insert()
    api = daemon.start()
    until(lambda: api.row("d")["acknowledged"], "the consumer has a place")
    given = {"url": f"http://127.0.0.1:{daemon.port}", "consumer": "d", "retryTimeoutSeconds": "5"}
    run = BinlogStreamReader(SourceOptions.parse(given), StructType())
    run.prepareForTriggerAvailableNow()
    end = checkpoint
    rounds: list[dict[str, Any]] = []
    while not rounds or rounds[-1] != end:
        rounds.append(end)
        end = run.latestOffset(end, ReadAllAvailable())
    run.stop()
    assert end["epoch"] == checkpoint["epoch"] and end["seq"] > checkpoint["seq"]
    reader.open().read_to(scene.server)  # the next tests use the same reader
