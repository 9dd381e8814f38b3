"""examples/reader.py reads a real daemon. It continues from its own checkpoint after a restart, and ends when another
reader takes over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemon.conftest import MakePair, Source
from tests.daemon.harness import DEADLINE_S, tip_seq, transactions, until
from tests.daemon.pair import NEVER_S, until_leads, until_stands_by
from tests.daemon.scene import Scene
from tests.servers.ports import free_port
from tests.support.fake_daemon import FakeDaemon, listening, standby_answer

PROGRAM = Path(__file__).parents[2] / "examples/reader.py"


@contextmanager
def reading(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program, which reads `d` into the folder. The end of the block ends it if it still runs."""
    command = [sys.executable, str(PROGRAM), url, "d", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(process: subprocess.Popen[str]) -> str:
    """Returns what the program has written to stderr since the last call. Does not wait."""
    assert process.stderr is not None
    assert process.poll() is None, "the program has ended"
    os.set_blocking(process.stderr.fileno(), False)
    with suppress(BlockingIOError):
        return os.read(process.stderr.fileno(), 1 << 16).decode()
    return ""


def stored(folder: Path) -> list[int]:
    """Returns the seqs of all transactions in the files, in the order of the files."""
    parts = sorted(folder.glob("*.binlog"))
    return [transaction.seq for part in parts for transaction in transactions(part.read_bytes())]


def test_the_example_reads_everything_once(scene: Scene, tmp_path: Path) -> None:
    def has_everything() -> bool:
        return bool(stored(tmp_path)) and stored(tmp_path)[-1] == tip_seq(scene.server)

    with reading(scene.daemon.url, tmp_path):
        until(has_everything, "the program has read to the end of the log")
        scene.daemon.stop()
        scene.insert()
        scene.daemon.start()
        until(has_everything, "it has waited for the daemon")
    scene.insert()
    with reading(scene.daemon.url, tmp_path) as process:
        until(has_everything, "it has gone on from its checkpoint")
        scene.daemon.api.session("d")
        scene.insert()
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith("SESSION_FENCED: ")
    seqs = stored(tmp_path)
    assert seqs == sorted(set(seqs))


def test_the_example_follows_the_leader(scene: Scene, tmp_path: Path) -> None:
    """Of the other two daemons, one is a standby that names the leader, and one is down."""
    down = f"http://127.0.0.1:{free_port()}"
    with listening(FakeDaemon()) as standby:
        standby.standby = standby_answer(scene.daemon.url)
        urls = f"{down},{standby.url},{down},{scene.daemon.url}"
        with reading(urls, tmp_path) as process:
            until(
                lambda: bool(stored(tmp_path)) and stored(tmp_path)[-1] == tip_seq(scene.server),
                "the program has read to the end of the log",
            )
            process.kill()
            _, said = process.communicate()
    assert [call for call, _ in standby.received] == ["session"]
    assert f"waiting 1 s: {standby.url}: not the leader: this daemon is a standby" in said


def test_the_example_waits_for_a_leader_with_its_consumer(
    make_pair: MakePair, source: Source, tmp_path: Path
) -> None:
    """The daemon that takes over has other settings, and is corrected and later restarted."""
    pair = make_pair(NEVER_S, begun=False)
    pair.b.settings["consumers"] = {"other": source(pair.server, "d")}
    pair.start()
    until_stands_by(pair.b, pair.a)
    folder = tmp_path / "read"

    def insert(id_: int) -> None:
        pair.server.execute(f"INSERT INTO d.t VALUES ({id_})")

    def has_read(number: int) -> bool:
        return len(stored(folder)) == number

    with reading(f"{pair.a.url},{pair.b.url}", folder) as process:
        until((folder / "position.json").exists, "the program reads")
        pair.server.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        insert(1)
        until(lambda: has_read(2), "it reads at the first leader")
        pair.a.stop()
        until_leads(pair.b)
        insert(2)
        until(lambda: "unknown consumer" in said_by(process), "it waits")
        pair.b.settings["consumers"] = dict(pair.a.settings["consumers"])
        pair.b.reload()
        until(lambda: has_read(3), "it goes on at the second leader")
        pair.b.restart()
        insert(3)
        until(lambda: has_read(4), "it goes on after a restart")
    seqs = stored(folder)
    assert seqs == sorted(set(seqs))
