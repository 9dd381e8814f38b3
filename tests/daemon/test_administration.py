"""`consumers forget` and `consumers seek` move a consumer of a running daemon; remedies that name these commands
work."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner, Result

from dispatcher.cli import app
from tests.daemon.harness import Json, Problem, Reader, until
from tests.daemon.scene import Scene


def command(scene: Scene, *words: str) -> Result:
    """Run `binlog-dispatcher` with these words."""
    url = f"http://127.0.0.1:{scene.daemon.port}"
    return CliRunner().invoke(app, [*words, "--url", url, "--yes"])


def remedy(scene: Scene, verb: str, position: str = "") -> Result:
    """Run the command that the remedy of the consumer's error names."""
    error = scene.daemon.api.row("d")["last_error"]
    (words,) = re.findall(rf"binlog-dispatcher (consumers {verb} d(?: --to POSITION)?)", error)
    return command(scene, *words.replace("POSITION", position).split())


def assert_streams(scene: Scene) -> None:
    """Assert that `d` delivers the next row to a new reader, and has no error."""
    scene.deliver_one(scene.reader().read_to(scene.server))
    assert scene.daemon.api.row("d")["last_error"] is None


def beside(scene: Scene) -> Json:
    """Returns the stored state of the other consumer, which a move of `d` must not change."""
    return scene.daemon.stored("beside")


def test_forget_lets_a_consumer_begin_at_its_start_in_a_new_epoch(scene: Scene) -> None:
    reader = scene.reader().read_to(scene.server)
    Reader(scene.daemon, "beside").open().read_to(scene.server)
    before, epoch = beside(scene), reader.position["epoch"]
    done = command(scene, "consumers", "forget", "d")
    assert (done.exit_code, done.stderr) == (0, "")
    again = scene.reader()
    assert again.position["epoch"] > epoch and f"epoch {again.position['epoch']}" in done.stdout
    assert len(again.read_to(scene.server).transactions) == len(reader.transactions)
    assert beside(scene) == before
    with pytest.raises(Problem) as caught:
        reader.step()
    assert caught.value.kind == "SESSION_FENCED"
    detail = caught.value.body["detail"]
    assert "an administrator has moved the consumer" in detail and '"after": null' in detail
    assert "second" not in detail  # there is no other reader
    scene.reader()
    with pytest.raises(Problem, match="a newer session reads this consumer"):
        again.step()


def test_a_consumer_that_was_moved_twice_in_a_second_has_two_new_epochs(scene: Scene) -> None:
    epochs = []
    for _ in range(2):
        assert command(scene, "consumers", "forget", "d").exit_code == 0
        epochs.append(scene.daemon.stored("d")["acknowledged"]["epoch"])
    assert epochs[0] < epochs[1]


def test_session_numbers_never_repeat_after_a_forget(scene: Scene) -> None:
    before = scene.reader().session
    assert command(scene, "consumers", "forget", "d").exit_code == 0
    assert scene.reader().session > before


@pytest.mark.parametrize("form", ["gtid", "file", "time"])
def test_seek_moves_a_consumer_to_a_position(scene: Scene, form: str) -> None:
    tip = scene.reader().read_to(scene.server).position
    to = {
        "gtid": tip["gtid"],
        "file": f"{tip['file']}:{tip['offset']}",
        "time": "1971-01-01T00:00:00Z",
    }[form]
    done = command(scene, "consumers", "seek", "d", "--to", to)
    assert (done.exit_code, done.stderr) == (0, "")
    scene.insert()
    found = scene.reader().read_to(scene.server).transactions
    assert len(found) == 1 if form != "time" else len(found) > 5


def test_a_seek_beyond_the_executed_set_changes_nothing(scene: Scene) -> None:
    reader = scene.reader().read_to(scene.server)
    before = scene.daemon.stored("d")
    gtid = f"{reader.position['server']}:1-99999"
    done = command(scene, "consumers", "seek", "d", "--to", gtid)
    assert done.exit_code == 1 and "the server never executed" in done.stderr
    assert ": --to: " in done.stderr
    assert scene.daemon.stored("d") == before
    scene.insert()
    assert len(reader.read_to(scene.server).transactions) >= 1  # its session is still valid


def test_an_unknown_consumer_is_a_usage_error(scene: Scene) -> None:
    done = command(scene, "consumers", "forget", "shpo")
    assert done.exit_code == 2 and "'shpo'" in done.stderr


def test_the_remedy_of_a_purged_position_lets_the_consumer_stream_again(scene: Scene) -> None:
    assert command(scene, "consumers", "forget", "d").exit_code == 0
    scene.daemon.stop()
    scene.server.execute("FLUSH BINARY LOGS")
    newest = scene.server.binlogs()[-1][0]

    def purged() -> bool:
        scene.server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return bool(scene.server.binlogs()[0][0] == newest)

    until(purged, "the older logs are gone")
    api = scene.daemon.start()
    assert api.until_state("d", "failed")["last_error"].startswith("position purged")
    done = remedy(scene, "seek", "earliest")
    assert (done.exit_code, done.stderr) == (0, "")
    assert_streams(scene)


def test_the_remedy_of_a_reset_server_lets_the_consumer_stream_again(scene: Scene) -> None:
    scene.reader().read_to(scene.server)
    scene.daemon.stop()
    scene.server.execute("RESET BINARY LOGS AND GTIDS")
    scene.insert()
    api = scene.daemon.start()
    assert api.until_state("d", "failed")["last_error"].startswith("server history differs")
    done = remedy(scene, "forget")
    assert (done.exit_code, done.stderr) == (0, "")
    assert_streams(scene)


def test_the_remedy_of_a_stored_position_that_cannot_be_read_works(scene: Scene) -> None:
    scene.daemon.stop()
    with closing(sqlite3.connect(scene.daemon.state, isolation_level=None)) as db:
        db.execute("UPDATE consumer SET acknowledged = '{', covered = '{' WHERE name = 'd'")
    api = scene.daemon.start()
    assert "stored position unreadable" in api.until_state("d", "failed")["last_error"]
    done = remedy(scene, "forget")
    assert (done.exit_code, done.stderr) == (0, "")
    assert_streams(scene)


def test_a_command_changes_nothing_if_the_server_is_down(scene: Scene) -> None:
    before = scene.daemon.stored("d")
    scene.server.stop()
    done = command(scene, "consumers", "forget", "d")
    scene.server.start()
    assert done.exit_code == 1 and "the server cannot be asked" in done.stderr
    assert scene.daemon.stored("d") == before
