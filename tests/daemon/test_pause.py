"""An administrator pauses the delivery to a reader, and resumes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from typer.testing import CliRunner, Result

from dispatcher.cli import app
from tests.daemon.harness import until
from tests.daemon.scene import Scene


def command(scene: Scene, *words: str) -> Result:
    """Run `binlog-dispatcher` with these words."""
    url = f"http://127.0.0.1:{scene.daemon.port}"
    return CliRunner().invoke(app, [*words, "--url", url])


def test_a_paused_consumer_delivers_nothing_new_until_it_is_resumed(scene: Scene) -> None:
    reader = scene.reader().read_to(scene.server)
    scene.insert()
    assert command(scene, "consumers", "pause", "d").stdout == "d: delivery is paused\n"
    api, asked = scene.daemon.api, {"wait_ms": 200}
    polled = api.poll("d", reader.session, reader.position, **asked)
    assert (polled["paused"], polled["transactions"], polled["end"]) == (True, 0, reader.position)
    row = api.row("d")
    assert (row["reader"], row["state"]) == ("paused", "streaming")
    assert api.row("beside")["reader"] != "paused"
    # After a restart, the delivery is still paused.
    scene.daemon.restart()
    api = scene.daemon.api
    polled = api.poll("d", reader.session, reader.position, **asked)
    assert polled["paused"] and polled["transactions"] == 0
    done = command(scene, "consumers", "resume", "d")
    assert (done.exit_code, done.stdout) == (0, "d: delivery is on\n")
    polled = api.poll("d", reader.session, reader.position, wait_ms=20_000)
    assert (polled["paused"], polled["transactions"]) == (False, 1)


def test_a_poll_that_waits_ends_when_delivery_is_resumed(scene: Scene) -> None:
    reader = scene.reader().read_to(scene.server)
    scene.insert()
    api = scene.daemon.api
    api.call("d", "pause")
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(api.poll, "d", reader.session, reader.position, wait_ms=60_000)
        until(lambda: api.row("d")["poll_age_seconds"] is not None, "the poll has begun")
        api.call("d", "resume")
        assert poll.result(20)["transactions"] == 1


def test_an_unknown_consumer_cannot_be_paused(scene: Scene) -> None:
    done = command(scene, "consumers", "pause", "nothing")
    assert done.exit_code == 2 and "unknown consumer" in done.stderr
