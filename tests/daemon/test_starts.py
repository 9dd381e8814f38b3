"""Consumers begin at a GTID set, at a file and offset, or at a time. All these starts denote the same position."""

from __future__ import annotations

from collections.abc import Callable

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Json, Reader, inserted_ids
from tests.servers import Server

CLOCK = "SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')"


def written(server: Server, database: str) -> Json:
    """Write six transactions. Returns starts by name: the position before the fourth transaction in each form that a
    setting accepts, and `inside`, a position inside a transaction."""
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    for n in range(3):
        server.execute(f"INSERT INTO {database}.t VALUES ({n})")
    variable = "gtid_binlog_pos" if server.mariadb else "gtid_executed"
    ((gtids,),) = server.execute(f"SELECT @@GLOBAL.{variable}")
    file, offset = server.binlog_position()
    ((moment,),) = server.execute(CLOCK)
    server.execute(f"INSERT INTO {database}.t VALUES (3), (4)", "FLUSH BINARY LOGS")
    server.execute(f"INSERT INTO {database}.t VALUES (5)")
    starts: Json = {
        "gtid": {"gtid": gtids},
        "file": {"file": file, "offset": offset},
        "inside": {"file": file, "offset": offset + 1},
    }
    # MariaDB does not log the time of a commit.
    return starts if server.mariadb else {**starts, "moment": {"timestamp": moment}}


def test_all_forms_of_a_start_name_the_same_position(
    mysql97: Server,
    mariadb118: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    servers = {"mysql": mysql97, "mariadb": mariadb118}
    databases = {kind: new_database(server) for kind, server in servers.items()}
    starts = {kind: written(server, databases[kind]) for kind, server in servers.items()}
    consumers = {
        f"{kind}-{name}": source(servers[kind], databases[kind], start=start)
        for kind, places in starts.items()
        for name, start in places.items()
    }
    daemon = make_daemon(consumers)
    api = daemon.start()
    for kind, server in servers.items():
        inside = starts[kind].pop("inside")
        failed = api.until_state(f"{kind}-inside", "failed")["last_error"]
        assert f"no transaction begins at {inside['file']}:{inside['offset']}" in failed
        assert f"{inside['offset'] - 1} or " in failed
        positions = set()
        for name in starts[kind]:
            reader = Reader(daemon, f"{kind}-{name}").open()
            positions.add((reader.position["gtid"], reader.position["seq"]))
            assert inserted_ids(reader.read_to(server)) == [3, 4, 5], (kind, name)
        assert len(positions) == 1
