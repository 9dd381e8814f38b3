"""Members of a replication group of MariaDB die while a mirror and a replica behind the front read. Both are equal to
the group afterwards, and each change was applied once."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, until
from tests.faults.mariadb_group import new_group
from tests.faults.test_failover_mariadb import (
    DATABASES,
    create_all,
    fail_over,
    until_written,
    writing,
)
from tests.front.test_replicas import Replica
from tests.mirror.harness import mirror_job
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.servers.server import Rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3000)]


def has_rows(replica: Replica, query: str, wanted: Rows) -> bool:
    return replica.server.execute(query) == wanted


def survive(
    kind: Kind,
    kills: int,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    home: Path,
) -> None:
    rng = random.Random(kills)
    with new_group(server_factory, kind) as group:
        create_all(group)
        front = free_port()
        common = {"mysql": f"reader@{group.hosts}", "password": PASSWORD, "start": "earliest"}
        consumers = {"a": ["a"], "b": ["b"], "shop": ["a", "b"]}
        daemon = make_daemon(
            {
                name: {**common, "heartbeat_milliseconds": 300, "databases": databases}
                for name, databases in consumers.items()
            },
            front={"listen": f"127.0.0.1:{front}"},
        )
        daemon.start()
        replica = Replica(server_factory(kind, "--server-id=99"))
        replica.begin(front)
        with mirror_job(group.primary.server, daemon, home) as job:
            job.start(*DATABASES, now=False)
            with writing(group) as churns:
                until_written(churns, 10)
            job.until_equal(*DATABASES)
            primaries = sum(fail_over(group, [], rng, 10 * kill) for kill in range(kills))
            group.until_equal()
            job.server = primary = group.primary.server
            job.until_equal(*DATABASES)
            rows = 0
            for database in DATABASES:
                table = f"SELECT * FROM {database}.churn ORDER BY id"
                wanted = primary.execute(table)
                rows += len(wanted)
                until(partial(has_rows, replica, table, wanted), "the replica is equal")
            replica.require_running()
            assert job.stop() == 0, job.log
            verified = job.verify(*DATABASES)
        print(
            f"{kind}: {kills} kills, {primaries} of the primary, {group.rebuilt} members rebuilt: {rows} rows equal in"
            f" the mirror and in the replica behind the front; {verified.splitlines()[-1]}"
        )


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize("kind", ["mariadb118"])
def test_a_mirror_and_a_replica_go_on_with_another_member(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    survive(kind, 3, server_factory, make_daemon, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["mariadb118", "mariadb1011"])
def test_a_mirror_and_a_replica_go_on_after_thirty_kills(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    survive(kind, 30, server_factory, make_daemon, tmp_path)
