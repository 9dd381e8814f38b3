"""Forged positions: a reader with a token for one consumer harms neither the daemon nor the other consumers.

The daemon stores only positions that it has recorded itself. So if the other fields of a position do not belong to its
seq, the daemon refuses the position, or the position changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.daemon.harness import PASSWORD, Daemon, Json, Reader, tip_seq, until
from tests.daemon.watch import probed
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

FORGERIES: dict[str, Callable[[Json], Json]] = {
    "thousands of digits": lambda p: {**p, "file": "binlog." + "9" * 5000},
    "eighteen digits": lambda p: {**p, "file": "binlog." + "9" * 18},
    "lone surrogate": lambda p: {**p, "file": "\ud800.000001"},
    "NUL": lambda p: {**p, "file": "bin\0log.000001"},
    "path": lambda p: {**p, "file": "../../etc/passwd"},
    "numbered path": lambda p: {**p, "file": "../../etc/passwd.000001"},
    "no number": lambda p: {**p, "file": "x"},
    "no file": lambda p: {**p, "file": ""},
    "2 MB": lambda p: {**p, "file": "b" * 2_000_000 + ".000001"},
    "future file": lambda p: {**p, "file": "binlog.999999"},
    "server": lambda p: {**p, "server": "x" * 60},
    "long server": lambda p: {**p, "server": "x" * 65},
    "another offset": lambda p: {**p, "offset": p["offset"] + 1},
    "future set": lambda p: {
        **p,
        "gtid": f"{p['server']}:1-{p['seq'] + 3000}",
        "seq": p["seq"] + 3000,
    },
    "future set and file": lambda p: {
        **p,
        "gtid": f"{p['server']}:1-{p['seq'] + 3000}",
        "seq": p["seq"] + 3000,
        "file": "binlog.999999",
        "offset": 1,
    },
    "no set": lambda p: {**p, "gtid": "\u0661"},
    "epoch": lambda p: {**p, "epoch": 2**63 - 1},
}


@dataclass
class Scene:
    server: Instance
    daemon: Daemon
    victim: Reader  # the consumer under attack
    beside: Reader


@pytest.fixture(scope="module")
def scene(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    server = module_server_factory("mysql97")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    server.add_user("forger", PASSWORD)
    common = {"mysql": f"forger@{server.host}:{server.port}", "password": PASSWORD}
    consumers = {name: {**common, "databases": ["d"]} for name in ("victim", "beside")}
    daemon = Daemon(tmp_path_factory.mktemp("forged"), {"consumers": consumers})
    daemon.start()
    readers = {name: Reader(daemon, name).open() for name in consumers}
    server.execute("INSERT INTO d.t VALUES ()")
    for reader in readers.values():
        reader.read_to(server)
    yield Scene(server, daemon, readers["victim"], readers["beside"])
    daemon.stop()
    daemon.close()


def attack(scene: Scene, position: Json, call: str) -> int:
    """Make a call with a position. Returns the HTTP status."""
    reader = scene.victim
    bodies: dict[str, Json] = {
        "ack": {"session": reader.session, "position": position},
        "poll": {"session": reader.session, "after": position},
        "session": {"after": position},
    }
    path = f"/v1/consumers/victim/{call}"
    status, _, data = scene.daemon.api.request("POST", path, bodies[call])
    if call == "session" and status == 200:
        reader.session = json.loads(data)["session"]
    return status


def test_forged_positions_harm_no_consumer(scene: Scene) -> None:
    daemon, stored = scene.daemon, scene.daemon.stored("victim")["acknowledged"]
    with probed(daemon) as probes:
        for name, forge in FORGERIES.items():
            for call in ("ack", "poll", "session"):
                status = attack(scene, forge(scene.victim.position), call)
                assert status in (200, 400, 409, 410, 413, 422), (name, call)
                assert daemon.stored("victim")["acknowledged"] == stored, (name, call)
                states = {row["state"] for row in daemon.api.rows().values()}
                assert states == {"streaming"}, (name, call)
            scene.server.execute("INSERT INTO d.t VALUES ()")
            assert scene.beside.step(wait_ms=20_000) == 1
            scene.beside.acknowledge()
            probes.until_answered()


def test_the_daemon_starts_after_the_attacks_and_goes_on(scene: Scene) -> None:
    api = scene.daemon.restart()
    seq = scene.victim.position["seq"]
    scene.victim.open().read_to(scene.server)
    assert len(scene.victim.transactions) == scene.victim.position["seq"] - seq + 1
    assert {row["state"] for row in api.rows().values()} == {"streaming"}


@pytest.mark.parametrize(
    "text",
    [
        '{"server":"s"',
        '{"file":"binlog.' + "9" * 5000 + '"}',
        "\0",
        json.dumps("\ud800"),
        "9" * 5000,
    ],
    ids=["cut", "digits", "NUL", "surrogate", "number"],
)
def test_an_unreadable_stored_row_fails_its_own_consumer_only(scene: Scene, text: str) -> None:
    daemon, position = scene.daemon, scene.victim.position
    daemon.stop()
    daemon.store("victim", text)
    api = daemon.start()
    row = api.until_state("victim", "failed")
    assert "stored position unreadable" in row["last_error"]
    assert "consumers seek" in row["last_error"]
    assert "consumers forget" in row["last_error"]
    until(lambda: api.row("beside")["state"] == "streaming", "the other one goes on")
    # The position of the consumer's own reader lets it continue.
    scene.victim.open(position)
    assert daemon.stored("victim")["acknowledged"] == position
    assert scene.victim.position["seq"] <= tip_seq(scene.server)
