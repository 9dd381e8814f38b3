"""Failover in a group of MySQL Group Replication (InnoDB Cluster): the primary is killed, the group elects another one,
and the consumers of `user@member,member,member` continue there, each transaction exactly once.

The group gives its transactions the UUID of the group, so that each has one GTID on all members.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatcher.model.gtid import GtidSet
from dispatcher.mysql.login import Endpoint
from dispatcher.source.mysql.examination import report_of
from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, Reader, dumps, until
from tests.faults.churn import Copy, check_all, churn, create, reading
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

GROUP = "6b2d6d2e-0000-4000-8000-000000000001"
DATABASES = ["a", "b"]
MEMBERS = 3  # the fewest that elect a primary when one is killed


def start_group(server_factory: ServerFactory) -> list[Instance]:
    """Start a group with one primary. Returns its members, the primary first."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(MEMBERS)]
    members = [
        server_factory(
            "mysql97",
            f"--server-id={number}",
            "--performance-schema=ON",  # the group describes its members there
            "--report-host=127.0.0.1",
            "--plugin-load-add=group_replication.so",
            f"--group-replication-group-name={GROUP}",
            f"--group-replication-local-address={address}",
            f"--group-replication-group-seeds={','.join(addresses)}",
            "--group-replication-start-on-boot=OFF",
            "--group-replication-recovery-use-ssl=ON",
        )
        for number, address in enumerate(addresses, 1)
    ]
    for member in members:
        # No member may have transactions of its own, so the account is not logged.
        member.execute(
            "SET sql_log_bin = 0",
            f'CREATE USER reader IDENTIFIED BY "{PASSWORD}"',
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO reader",
            "SET sql_log_bin = 1",
            "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'reader',"
            f" SOURCE_PASSWORD = \"{PASSWORD}\" FOR CHANNEL 'group_replication_recovery'",
        )
    first, *others = members
    first.execute(
        "SET GLOBAL group_replication_bootstrap_group = ON",
        "START GROUP_REPLICATION",
        "SET GLOBAL group_replication_bootstrap_group = OFF",
    )
    for member in others:
        member.execute("START GROUP_REPLICATION")
    until(lambda: online(first) == MEMBERS, "all members are online", timeout_s=120)
    return members


def online(member: Instance) -> int:
    query = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"
    return int(member.execute(query)[0][0])


def primary_of(members: Sequence[Instance]) -> Instance | None:
    """Returns the member that the first of `members` names as the primary, if it is one of `members`."""
    query = (
        "SELECT MEMBER_PORT FROM performance_schema.replication_group_members"
        " WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'"
    )
    ports = [port for (port,) in members[0].execute(query)]
    return next((member for member in members if member.port in ports), None)


def writable(member: Instance) -> bool:
    return member.execute("SELECT @@GLOBAL.super_read_only") == ((0,),)


@pytest.mark.deep
def test_consumers_go_on_with_the_elected_primary(
    server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    members = start_group(server_factory)
    first, *others = members
    create(first, DATABASES)
    hosts = ",".join(f"127.0.0.1:{member.port}" for member in members)
    consumers = {"a": ["a"], "both": ["a", "b"]}
    daemon = make_daemon(
        {
            name: {
                "mysql": f"reader@{hosts}",
                "password": PASSWORD,
                "databases": databases,
                "heartbeat_milliseconds": 300,
            }
            for name, databases in consumers.items()
        }
    )
    daemon.start()
    copies = [Copy(Reader(daemon, name).open(), databases) for name, databases in consumers.items()]
    with reading(copies):
        with churn(first, DATABASES) as writing:
            writing.until_written(200)
            first.kill()
        until(lambda: primary_of(others), "the group has elected a primary", timeout_s=120)
        elected = primary_of(others)
        assert elected is not None
        until(lambda: writable(elected), "the primary accepts writes")
        with churn(elected, DATABASES, seed=2) as writing:
            until(lambda: any(dumps(member) for member in others), "another member sends its log")
            writing.until_written(100)
    rows = check_all(elected, copies)
    executed = GtidSet.parse(str(elected.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))
    print(f"{rows} rows equal, {len(executed)} transactions, of {list(executed.sources())}")
    assert set(executed.sources()) == {GROUP}
    assert [daemon.api.row(name)["state"] for name in consumers] == ["streaming"] * 2
    assert (
        report_of(
            Endpoint("127.0.0.1", elected.port, "reader", PASSWORD), [], (), several=True
        ).findings
        == ()
    )
