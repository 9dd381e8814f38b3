"""A replica that commits transactions in another order than its source has gaps in its executed set until it has
committed all of them. The daemon reads such a replica: a position keeps its gaps, so a transaction that the replica
commits late is delivered exactly once, also if the daemon was restarted or replaced in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest

from dispatcher.model.gtid import GtidSet
from tests.daemon.conftest import MakeDaemon, MakePair, Source
from tests.daemon.harness import PASSWORD, Daemon, Reader, inserted_ids, until
from tests.daemon.pair import Follower
from tests.servers import Instance
from tests.servers.plugin import ServerFactory


@dataclass
class Replica:
    """A replica of `primary` whose workers commit in any order."""

    server: Instance
    primary: Instance

    def executed(self) -> GtidSet:
        return _executed(self.server)

    def until_executed(self, wanted: GtidSet) -> None:
        until(lambda: self.executed().contains(wanted), f"the replica has executed {wanted}")

    @contextmanager
    def one_is_late(self, late: int, *ids: int) -> Iterator[GtidSet]:
        """Insert rows with these ids in the primary, each in a transaction. Until the end of the block, the replica has
        all of them but `late`. Yields the replica's executed set."""
        with closing(self.server.connect("d")) as blocking:
            blocking.begin()
            blocking.cursor().execute(f"INSERT INTO t VALUES ({late})")
            wanted = self.executed()
            for number in ids:
                before = _executed(self.primary)
                self.primary.execute(f"INSERT INTO d.t VALUES ({number})")
                if number != late:
                    wanted = wanted.union(_executed(self.primary).subtract(before))
            self.until_executed(wanted)
            assert self.executed() == wanted
            yield wanted
            blocking.rollback()
        self.until_executed(_executed(self.primary))


def _executed(server: Instance) -> GtidSet:
    return GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))


@pytest.fixture
def replica(source_server: Instance, server_factory: ServerFactory) -> Replica:
    source_server.execute(
        "DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)"
    )
    server = server_factory(
        "mysql97",
        "--server-id=2",
        "--replica-preserve-commit-order=OFF",
        "--replica-parallel-workers=4",
    )
    source_server.add_user("replicating", PASSWORD)
    server.execute(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'replicating',"
        f' SOURCE_PORT = {source_server.port}, SOURCE_PASSWORD = "{PASSWORD}",'
        " SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1",
        "START REPLICA",
    )
    made = Replica(server, source_server)
    made.until_executed(_executed(source_server))
    return made


@pytest.fixture(autouse=True)
def no_account_stays(source_server: Instance) -> Iterator[None]:
    yield
    source_server.execute("DROP USER IF EXISTS replicating")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_late_transaction_is_delivered_once_after_a_restart(
    kill: bool, replica: Replica, source: Source, make_daemon: MakeDaemon
) -> None:
    settings = source(replica.server, "d")
    daemon = make_daemon({"d": settings, "behind": settings})
    daemon.start()
    reader, behind = Reader(daemon, "d").open(), Reader(daemon, "behind").open()
    with replica.one_is_late(8, 7, 8, 9) as executed:
        assert ":9" not in str(executed) and str(executed).count(":") > 1  # it has a gap
        reader.read_to(replica.server)
        _holds(daemon, "d", executed)
        daemon.restart(kill=kill)
        reader.open()
        assert GtidSet.parse(reader.position["gtid"]) == executed
    for each in (reader, behind.open()):
        each.read_to(replica.server)
        assert inserted_ids(each, "d.t") == [7, 9, 8]
    _holds(daemon, "d", replica.executed())


def test_a_late_transaction_is_delivered_once_by_the_next_leader(
    replica: Replica, source: Source, make_pair: MakePair
) -> None:
    pair = make_pair(consumers={"d": source(replica.server, "d")}, begun=False)
    replica.primary.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")  # the fixture has made d anew
    replica.until_executed(_executed(replica.primary))
    pair.start()
    follower = Follower(pair.a, pair.b)
    with replica.one_is_late(8, 7, 8, 9) as executed:
        follower.read_to(2)
        pair.kill_the_leader()
        assert GtidSet.parse(pair.stored("d")["gtid"]) == executed
        pair.end_the_leader()
    follower.read_to(3)
    assert inserted_ids(follower.reader, "d.t") == [7, 9, 8]
    assert GtidSet.parse(pair.stored("d")["gtid"]) == replica.executed()


def _holds(daemon: Daemon, consumer: str, executed: GtidSet) -> None:
    acknowledged = daemon.api.row(consumer)["acknowledged"]
    assert GtidSet.parse(acknowledged["gtid"]) == executed
