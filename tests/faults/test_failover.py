"""Failover by GTID from a killed primary to its replica: readers get each transaction exactly once.

The test kills the primary during writes, promotes its replica, and writes to the replica. Consumers of
`user@primary,replica` continue at the replica, each with its own GTID set. If the replica lacks transactions that
consumers already have, the daemon waits until the replica has applied them. After `failover_wait_seconds`, the
consumers fail with the error that the history differs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dispatcher.model.gtid import GtidSet
from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, dumps, until
from tests.faults.churn import Copy, check_all, churn, create, new_daemon, reading
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.proxy import STALLED, Proxy

pytestmark = pytest.mark.rotate(2, of="failover")

DATABASES = ["a", "b"]


@dataclass
class Pair:
    primary: Instance
    replica: Instance
    proxy: Proxy  # listed before the primary

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.proxy.port},127.0.0.1:{self.replica.port}"

    def executed(self, server: Instance) -> GtidSet:
        return GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))

    def status(self) -> dict[str, Any]:
        with closing(self.replica.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW REPLICA STATUS")
            names = [column[0] for column in cursor.description]
            (values,) = cursor.fetchall()
        return dict(zip(names, values, strict=True))

    def until_received(self, wanted: GtidSet) -> None:
        def received() -> bool:
            found = self.status()
            assert not found["Last_Error"], found["Last_Error"]
            return (
                GtidSet.parse(found["Retrieved_Gtid_Set"])
                .union(self.executed(self.replica))
                .contains(wanted)
            )

        until(received, "the replica has received it")

    def until_executed(self, wanted: GtidSet) -> None:
        def has_executed() -> bool:
            return self.executed(self.replica).contains(wanted)

        until(has_executed, "the replica has executed it")

    def promote(self) -> None:
        """Let the replica apply everything that it has received, and make it the primary."""
        self.replica.execute("START REPLICA SQL_THREAD")
        received = GtidSet.parse(self.status()["Retrieved_Gtid_Set"])
        until(lambda: self.executed(self.replica).contains(received), "the replica has applied it")
        self.replica.execute("STOP REPLICA", "RESET REPLICA ALL")


@contextmanager
def new_pair(server_factory: ServerFactory) -> Iterator[Pair]:
    primary = server_factory("mysql97")
    replica = server_factory("mysql97", "--server-id=2", "--skip-replica-start")
    create(primary, DATABASES)
    primary.add_user("reader", PASSWORD)
    replica.execute(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'reader',"
        f' SOURCE_PORT = {primary.port}, SOURCE_PASSWORD = "{PASSWORD}",'
        " SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1",
        "START REPLICA",
    )
    with Proxy(primary.port) as proxy:
        pair = Pair(primary, replica, proxy)
        pair.until_received(pair.executed(primary))
        yield pair


def stop_hearing(pair: Pair, copies: list[Copy]) -> GtidSet:
    """Cut the daemon off from the primary. Returns the GTIDs of everything that the daemon may have received."""
    pair.proxy.set(STALLED)
    heard = pair.executed(pair.primary)
    for copy in copies:
        assert heard.contains(GtidSet.parse(copy.reader.position["gtid"]))
    return heard


def kill_the_primary(pair: Pair) -> None:
    pair.primary.kill()
    pair.proxy.refuse()
    pair.proxy.cut()


@pytest.mark.parametrize("lagging", [False, True], ids=["up to date", "lagging"])
def test_consumers_go_on_with_the_promoted_replica(
    lagging: bool, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with new_pair(server_factory) as pair:
        daemon, copies = new_daemon(make_daemon, pair.hosts)
        with reading(copies):
            with churn(pair.primary, DATABASES) as writing:
                writing.until_written(100)
                if lagging:
                    pair.replica.execute("STOP REPLICA SQL_THREAD")
                writing.until_written(300)
                heard = stop_hearing(pair, copies)
                pair.until_received(heard)
                if not lagging:
                    pair.until_executed(heard)
                kill_the_primary(pair)
            began = time.monotonic()
            if lagging:
                assert not pair.executed(pair.replica).contains(heard)
                # The daemon asks the replica and waits: no consumer has failed, and nothing is read from the replica.
                until(
                    lambda: "has not executed" in str(daemon.api.row("a")["last_error"]), "it waits"
                )
                assert not dumps(pair.replica)
            pair.promote()
            with churn(pair.replica, DATABASES, seed=2) as writing:
                until(lambda: dumps(pair.replica), "the replica sends its log")
                took = time.monotonic() - began
                writing.until_written(100)
        rows = check_all(pair.replica, copies)
        lost = pair.executed(pair.replica)
        print(
            f"failover ({'lagging' if lagging else 'up to date'}): reads on after {took:.1f} s, {rows} rows equal,"
            f" {[copy.transactions for copy in copies]} transactions, {len(lost)} in all"
        )
        assert [daemon.api.row(copy.reader.consumer)["state"] for copy in copies] == [
            "streaming"
        ] * 3
        until(lambda: len(dumps(pair.replica)) == 1, "one connection serves all")


def test_a_replica_that_never_catches_up_is_refused(
    server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with new_pair(server_factory) as pair:
        daemon, copies = new_daemon(make_daemon, pair.hosts, failover_wait_seconds=1)
        pair.replica.execute("STOP REPLICA")
        with churn(pair.primary, DATABASES) as writing, reading(copies):
            writing.until_written(50)
        check_all(pair.primary, copies)
        kill_the_primary(pair)
        pair.replica.execute("RESET REPLICA ALL")
        with churn(pair.replica, DATABASES, seed=2) as writing:
            writing.until_written(50)
        for copy in copies:
            row = daemon.api.until_state(copy.reader.consumer, "failed")
            assert "server history differs" in row["last_error"]
            assert (
                copy.reader.position["gtid"]
                == daemon.stored(copy.reader.consumer)["covered"]["gtid"]
            )


def test_consumers_go_on_by_themselves_when_their_primary_is_back(
    server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    """The consumers failed because the replica lacks transactions that they have read. They continue without a new copy
    and without a restart of the daemon."""
    with new_pair(server_factory) as pair:
        daemon, copies = new_daemon(make_daemon, pair.hosts, failover_wait_seconds=1)
        pair.replica.execute("STOP REPLICA")
        with churn(pair.primary, DATABASES) as writing, reading(copies):
            writing.until_written(50)
        check_all(pair.primary, copies)
        pair.proxy.refuse()
        pair.proxy.cut()
        for copy in copies:
            row = daemon.api.until_state(copy.reader.consumer, "failed")
            assert "server history differs" in row["last_error"]
            assert "continues by itself" in row["last_error_remedy"]
        pair.proxy.accept()
        for copy in copies:
            copy.reopen()  # the daemon surveys its hosts, as it does every 30 seconds
            daemon.api.until_state(copy.reader.consumer, "streaming")
        with churn(pair.primary, DATABASES, seed=2) as writing, reading(copies):
            writing.until_written(50)
        check_all(pair.primary, copies)
        until(lambda: len(dumps(pair.primary)) == 1, "one connection serves all")
