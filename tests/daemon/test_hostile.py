"""One daemon reads a good server and many hostile ones: each hostile server fails its own consumer only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.daemon.harness import PASSWORD, Daemon, Reader, inserted_ids, load, until
from tests.daemon.watch import probed
from tests.servers import Server
from tests.support.hostile_answers import ANSWERS, DUMPS, FLOODS, dumps
from tests.support.hostile_server import Answers, HostileServer

REFUSED = {
    "a word for a number": ANSWERS,
    "bytes that are not UTF-8": ANSWERS,
    "no row of values": ANSWERS,
    "rows without end": ANSWERS,
    "a value of 200 MiB": ANSWERS,
    "noise": ANSWERS,
}
BY_FILE = ("an event of 4 GiB", "an error without end")
STREAMED = ("an event of 4 GiB", "a file name of 256 bytes", "an event of 3 bytes", "noise")
FLOODED = ("files", "statements")
RESIDENT_MAX = 700 << 20


def hostile_servers() -> dict[str, Answers]:
    """Returns the answers of each hostile server, by the server's name."""
    answers = {f"says {name}": make[name]() for name, make in REFUSED.items()}
    answers |= {f"by file: {name}": dumps(DUMPS[name], by_file=True) for name in BY_FILE}
    answers |= {f"streams {name}": dumps(DUMPS[name], by_file=False) for name in STREAMED}
    answers |= {f"floods {name}": dumps(FLOODS[name], by_file=False) for name in FLOODED}
    return answers


@dataclass
class Scene:
    """What was observed while a daemon read hostile servers."""

    daemon: Daemon
    good: Reader
    errors: dict[str, str] = field(default_factory=dict)  # by the hostile server's name
    resident_max: int = 0
    written: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def scene(mysql97: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    by_name = hostile_servers()
    users = {f"user{n}": name for n, name in enumerate(by_name)}
    mysql97.execute("CREATE DATABASE hostile_good")
    mysql97.add_user("hostile_good", PASSWORD)
    with HostileServer(by_user={user: by_name[name] for user, name in users.items()}) as server:

        def consumer(user: str, port: int, database: str) -> dict[str, object]:
            address = f"{user}@127.0.0.1:{port}"
            return {"mysql": address, "password": PASSWORD, "databases": [database]}

        consumers = {user: consumer(user, server.port, "a") for user in users}
        consumers["good"] = consumer("hostile_good", mysql97.port, "hostile_good")
        daemon = Daemon(folder, {"consumers": consumers})
        api = daemon.start()
        try:
            scene = Scene(daemon, Reader(daemon, "good").open())
            with probed(daemon) as probes:
                with load(mysql97, "hostile_good", rows=1) as made:
                    made.until_written(200)

                    def all_failed() -> bool:
                        scene.good.step()
                        probes.until_answered()
                        rows = api.rows()
                        scene.errors = {users[u]: str(rows[u]["last_error"]) for u in users}
                        return all(
                            error != "None" or name.startswith("floods")
                            for name, error in scene.errors.items()
                        )

                    until(all_failed, "each hostile server has failed its consumer")
                scene.good.read_to(mysql97)
                scene.written = made.ids()
                scene.read = inserted_ids(scene.good, "hostile_good.load")
            scene.resident_max = probes.resident_max
            yield scene
        finally:
            daemon.close()
            mysql97.execute("DROP DATABASE hostile_good", "DROP USER 'hostile_good'@'%'")


def test_the_good_servers_transactions_are_delivered(scene: Scene) -> None:
    assert len(scene.written) >= 200 and scene.read == scene.written


def test_each_hostile_server_fails_its_own_consumer_only(scene: Scene) -> None:
    errors = {name: error for name, error in scene.errors.items() if not name.startswith("floods")}
    for name, error in errors.items():
        kinds = ("cannot connect", "connection lost", "malformed event", "checksum mismatch")
        assert error.startswith(kinds), (name, error)
    assert scene.daemon.api.row("good")["last_error"] is None


def test_memory_stays_bounded(scene: Scene) -> None:
    assert scene.resident_max < RESIDENT_MAX
