"""A reader opens a session at its own position. If the server has the position, the consumer moves to this position.
Otherwise the daemon refuses the call, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.daemon.harness import PASSWORD, Daemon, Json, Reader, until
from tests.daemon.test_api import refused
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
ROWS = 12


@dataclass
class Scene:
    """A server that has purged its first files. `positions`: the position after each transaction of the database `d`,
    oldest first."""

    server: Instance
    daemon: Daemon
    readers: dict[str, Reader]
    positions: list[Json]

    @property
    def purged(self) -> Json:
        return self.positions[1]

    @property
    def kept(self) -> Json:
        """The position before the newest three transactions."""
        return self.positions[-4]

    @property
    def end(self) -> Json:
        return self.positions[-1]

    def ahead(self) -> Json:
        """A position beyond the transactions that the server has executed."""
        end = self.end
        if end["gtid"] and not self.server.mariadb:
            seq = end["seq"] + 3
            return {**end, "gtid": f"{end['server']}:1-{seq}", "seq": seq}
        return {**end, "offset": end["offset"] + 999, "seq": end["seq"] + 999}

    def place(self, consumer: str) -> Json:
        """Returns the parts of the consumer's state that a refused seek must not change."""
        row = self.daemon.api.row(consumer)
        shown = {key: row[key] for key in ("state", "acknowledged", "last_error")}
        return {**shown, "stored": self.daemon.stored(consumer)["acknowledged"]}


@pytest.fixture(
    scope="module",
    params=[("mysql97",), ("mysql97", *WITHOUT_GTIDS), ("mariadb118",)],
    ids=["gtids", "files", "mariadb"],
)
def scene(
    request: pytest.FixtureRequest,
    module_server_factory: ServerFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    server = module_server_factory(*request.param)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    server.add_user("seeker", PASSWORD)
    common = {"mysql": f"seeker@{server.host}:{server.port}", "password": PASSWORD}
    consumers = {name: {**common, "databases": ["d"]} for name in ("d", "beside")}
    daemon = Daemon(tmp_path_factory.mktemp("seeks"), {"consumers": consumers})
    daemon.start()
    readers = {name: Reader(daemon, name).open() for name in consumers}
    positions: list[Json] = []
    for n in range(ROWS):
        if n == ROWS // 2:
            server.execute("FLUSH BINARY LOGS")
        server.execute("INSERT INTO d.t VALUES ()")
        positions.append(dict(readers["d"].read_to(server).position))
    readers["beside"].read_to(server)
    kept = positions[ROWS // 2]["file"]

    def is_purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{kept}'")
        return bool(server.binlogs()[0][0] == kept)

    until(is_purged, "the older file is gone")
    yield Scene(server, daemon, readers, positions)
    daemon.stop()
    daemon.close()


def test_a_seek_to_a_purged_position_changes_nothing(scene: Scene) -> None:
    before = scene.place("d")
    with refused(410, "POSITION_PURGED") as seen:
        scene.daemon.api.session("d", scene.purged)
    assert seen.problem and "nothing was changed" in seen.problem.body["hint"]
    assert scene.place("d") == before
    # The present reader is not fenced, and a reader without a position continues at the stored one.
    assert scene.readers["d"].step() == 0
    assert scene.daemon.api.session("d", read_only=True)["position"] == scene.end


def test_a_seek_to_a_position_that_was_never_executed_changes_nothing(scene: Scene) -> None:
    before = scene.place("d")
    with refused(410, "HISTORY_DIFFERS"):
        scene.daemon.api.session("d", scene.ahead())
    assert scene.place("d") == before
    assert scene.readers["d"].step() == 0


@pytest.mark.parametrize(
    "position", [{"server": "x", "gtid": "", "file": "binlog.000009", "offset": 0, "seq": 0}]
)
def test_a_position_of_an_unknown_server_is_refused(scene: Scene, position: Json) -> None:
    before = scene.place("d")
    with refused(409, "POSITION_UNKNOWN") as seen:
        scene.daemon.api.session("d", {**position, "epoch": scene.end["epoch"]})
    assert seen.problem and "server 'x'" in seen.problem.body["detail"]
    assert scene.place("d") == before


def test_an_acknowledgement_beyond_the_servers_log_is_refused_at_once(scene: Scene) -> None:
    before, reader = scene.place("d"), scene.readers["d"]
    with refused(409, "POSITION_UNKNOWN"):
        scene.daemon.api.call("d", "ack", session=reader.session, position=scene.ahead())
    with refused(409, "POSITION_UNKNOWN"):
        scene.daemon.api.poll("d", reader.session, scene.ahead(), wait_ms=60_000)
    assert scene.place("d") == before


def test_a_seek_back_is_stored_and_disturbs_no_other_consumer(scene: Scene) -> None:
    beside = scene.place("beside")
    fresh = Reader(scene.daemon, "d").open(scene.kept)
    assert fresh.position == scene.kept
    assert scene.daemon.stored("d")["acknowledged"] == scene.kept
    fresh.read_to(scene.server)
    assert len(fresh.transactions) == 3
    assert scene.place("beside") == beside
    scene.readers["d"] = fresh


def test_a_reader_resolves_places_and_begins_there(scene: Scene) -> None:
    before, end = scene.place("d"), scene.end
    kept = ROWS // 2  # transactions that the server still has
    forms: list[tuple[object, int]] = [
        ("earliest", kept),
        ("latest", 0),
        ({"timestamp": "1971-01-01T00:00:00Z"}, kept),
        ({"timestamp": "2100-01-01T00:00:00Z"}, 0),
        ({"file": scene.kept["file"], "offset": scene.kept["offset"]}, 3),
    ]
    if end["gtid"]:
        forms.append(({"gtid": scene.kept["gtid"]}, 3))
    places = [scene.daemon.api.call("d", "resolve", to=to)["position"] for to, _ in forms]
    assert scene.place("d") == before, "nothing is changed"
    assert {place["epoch"] for place in places} == {end["epoch"]}
    assert places[1]["seq"] >= end["seq"]
    for place, (to, found) in zip(places, forms, strict=True):
        reader = Reader(scene.daemon, "d").open(place).read_to(scene.server)
        assert len(reader.transactions) == found, to
        scene.readers["d"] = reader


def test_a_place_that_the_server_does_not_have_is_refused(scene: Scene) -> None:
    purged = scene.purged
    to = (
        {"gtid": purged["gtid"]}
        if purged["gtid"]
        else {key: purged[key] for key in ("file", "offset")}
    )
    with refused(410, "POSITION_PURGED") as seen:
        scene.daemon.api.call("d", "resolve", to=to)
    assert seen.problem and "such as earliest or latest" in seen.problem.body["hint"]
    with refused(404, "UNKNOWN_CONSUMER"):
        scene.daemon.api.call("c", "resolve", to="latest")


def test_after_a_restart_a_seek_recovers_a_failed_consumer(
    scene: Scene,
) -> None:
    """The stored position was purged while the daemon was down, and a reader has a newer checkpoint."""
    daemon = scene.daemon
    daemon.stop()
    daemon.store("d", scene.purged)
    api = daemon.start()
    api.until_state("d", "failed")
    with refused(410, "POSITION_PURGED"):
        api.session("d")
    with refused(410, "POSITION_PURGED"):
        api.session("d", scene.positions[2])
    assert daemon.stored("d")["acknowledged"] == scene.purged
    # A seek to a place in the log lets the failed consumer continue, too.
    earliest = api.call("d", "resolve", to="earliest")["position"]
    assert earliest["epoch"] == scene.kept["epoch"]
    api.until_state("d", "failed")
    assert len(Reader(daemon, "d").open(earliest).read_to(scene.server).transactions) == ROWS // 2
    reader = Reader(daemon, "d").open(scene.kept).read_to(scene.server)
    assert len(reader.transactions) == 3
    assert api.row("d")["state"] == "streaming"
    scene.readers = {"d": reader, "beside": Reader(daemon, "beside").open()}
