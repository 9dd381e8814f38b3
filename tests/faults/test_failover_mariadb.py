"""Failover of MariaDB by GTID: readers get each transaction exactly once, whatever member of a replication group dies.

The members' logs hold two replication domains, which interleave differently in each log. The test kills the member that
the daemon reads, during writes; the daemon continues with another one, at its GTID of each domain. If the daemon cannot
show that another host has a position, it refuses the position with the reason.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from dispatcher.cli import app
from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import Daemon, Reader, tip_seq, until
from tests.faults.churn import Churn, Copy, churn, create, new_daemon, read_all, reading
from tests.faults.mariadb_group import Group, Member, new_group
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory

pytestmark = pytest.mark.rotate(3, of="failover of MariaDB")

DATABASES = {"a": 0, "b": 5}  # each database with the domain in which it is written
KINDS: tuple[Kind, ...] = ("mariadb118", "mariadb1011")


def in_domain(domain: int) -> str:
    return f"SET SESSION gtid_domain_id = {domain}"


def create_all(group: Group) -> None:
    """Create each database in its domain: replicas apply the domains independently."""
    for database, domain in DATABASES.items():
        create(group.primary.server, [database], session=in_domain(domain))


@contextmanager
def writing(group: Group, seed: int = 1) -> Iterator[list[Churn]]:
    """Write in both domains of the primary until the block ends."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                churn(
                    group.primary.server,
                    [database],
                    seed=seed,
                    pause_s=0.002,
                    session=in_domain(domain),
                )
            )
            for database, domain in DATABASES.items()
        ]


def until_written(churns: list[Churn], more: int) -> None:
    for each in churns:
        each.until_written(more)


def check_all(group: Group, copies: list[Copy]) -> int:
    """Read to the end of the log, and compare everything with the primary. Returns the number of rows."""
    group.until_equal()
    read_all(copies, len(group.primary.logged))
    return sum(copy.check(group.primary.server) for copy in copies)


def fail_over(group: Group, copies: list[Copy], rng: random.Random, seed: int) -> bool:
    """Kill the member that the daemon reads, while the primary writes. Returns True if the primary was killed."""
    with reading(copies):
        with writing(group, seed) as churns:
            until_written(churns, rng.choice((5, 40)))
            until(lambda: group.read_member() is not None, "the daemon reads a member")
            victim = group.read_member()
            assert victim is not None
            others = [member for member in group.members if member is not victim]
            lagging = rng.choice([None, *(m for m in others if m is not group.primary)])
            if lagging is not None:
                lagging.server.execute("STOP SLAVE SQL_THREAD")
            until_written(churns, rng.choice((5, 40)))
            heard = group.cut_off(victim)
            for member in others:
                if member is not group.primary:
                    member.until_received(heard)
            group.kill(victim)
        killed_primary = victim is group.primary
        if killed_primary:
            group.promote(victim)
        elif lagging is not None:
            lagging.server.execute("START SLAVE SQL_THREAD")
        with writing(group, seed + 1) as churns:
            until(lambda: group.read_member() is not None, "the daemon reads another member")
            until_written(churns, 5)
    group.rejoin(victim)
    return killed_primary


def go_on(
    kills: int, kind: Kind, strict: str, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    rng = random.Random(kills)
    with new_group(server_factory, kind, f"--gtid-strict-mode={strict}") as group:
        create_all(group)
        daemon, copies = new_daemon(make_daemon, group.hosts, start="earliest")
        primaries = rows = 0
        for kill in range(kills):
            primaries += fail_over(group, copies, rng, 10 * kill)
            rows = check_all(group, copies)
        states = [daemon.api.row(copy.reader.consumer)["state"] for copy in copies]
        print(
            f"{kind}, strict {strict}: {kills} kills, {primaries} of the primary, {group.rebuilt} members rebuilt,"
            f" {rows} rows equal, {[copy.transactions for copy in copies]} transactions, {group.primary.logged}"
        )
        assert states == ["streaming"] * 3


@pytest.mark.parametrize("strict", ["ON", "OFF"])
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_go_on_with_another_member(
    kind: Kind, strict: str, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    go_on(2, kind, strict, server_factory, make_daemon)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_go_on_after_thirty_kills(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    go_on(30, kind, "ON", server_factory, make_daemon)


@contextmanager
def two(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, *options: str, **more: Any
) -> Iterator[tuple[Group, Daemon, list[Copy]]]:
    """A primary that consumers have read to its end, and its replica, which has all of it."""
    with new_group(server_factory, kind, *options, count=2) as group:
        create_all(group)
        daemon, copies = new_daemon(
            make_daemon, group.hosts, start="earliest", failover_wait_seconds=1, **more
        )
        with writing(group) as churns, reading(copies):
            until_written(churns, 10)
        check_all(group, copies)
        yield group, daemon, copies


def kill_the_primary(group: Group) -> Member:
    """Kill the primary, and make its replica the primary. Returns the new one."""
    group.kill(group.primary)
    (replica,) = group.replicas
    replica.server.execute("STOP SLAVE", "RESET SLAVE ALL")
    group.primary = replica
    return replica


def reports(daemon: Daemon, consumer: str, text: str) -> bool:
    return text in str(daemon.api.row(consumer)["last_error"])


def fails(daemon: Daemon, copies: list[Copy], *texts: str) -> None:
    for copy in copies:
        row = daemon.api.until_state(copy.reader.consumer, "failed")
        for text in texts:
            assert text in row["last_error"] + row["last_error_remedy"], row["last_error"]
        stored = daemon.stored(copy.reader.consumer)
        assert copy.reader.position["gtid"] == stored["covered"]["gtid"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_never_catches_up_is_refused(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with two(kind, server_factory, make_daemon) as (group, daemon, copies):
        (replica,) = group.replicas
        replica.server.execute("STOP SLAVE")
        with writing(group, 2) as churns, reading(copies):
            until_written(churns, 10)
        read_all(copies, len(group.primary.logged))
        kill_the_primary(group)
        fails(daemon, copies, "server history differs", "never executed", "continues by itself")


@pytest.mark.parametrize("kind", KINDS)
def test_other_transactions_with_the_same_numbers_are_refused(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    """The replica stops early. As the primary, it gives its own transactions the numbers that the consumers have
    read."""
    with two(kind, server_factory, make_daemon) as (group, daemon, copies):
        (replica,) = group.replicas
        replica.server.execute("STOP SLAVE")
        with writing(group, 2) as churns, reading(copies):
            until_written(churns, 10)
        read = group.primary.logged
        read_all(copies, len(read))
        old = group.primary
        group.primary = replica
        with writing(group, 3) as churns:
            until(lambda: replica.logged.contains(read), "the replica has written as much")
        group.primary = old
        kill_the_primary(group)
        fails(daemon, copies, "server history differs", "does not have ", "there it has ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_has_purged_what_a_consumer_needs_is_refused(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with two(kind, server_factory, make_daemon) as (group, daemon, copies):
        (replica,) = group.replicas
        group.cut_off(group.primary)
        with writing(group, 2) as churns:
            until_written(churns, 10)
        group.until_equal()
        replica.server.execute("FLUSH BINARY LOGS")
        newest = replica.server.binlogs()[-1][0]
        until(
            lambda: (
                replica.server.execute(f"PURGE BINARY LOGS TO '{newest}'")
                or len(replica.server.binlogs()) == 1
            ),
            "the first file is purged",
        )
        kill_the_primary(group)
        fails(daemon, copies, "position purged")


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_without_a_domain_is_refused(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with new_group(server_factory, kind, count=2) as group:
        (replica,) = group.replicas
        replica.server.execute(
            "STOP SLAVE", "CHANGE MASTER TO IGNORE_DOMAIN_IDS = (5)", "START SLAVE"
        )
        create_all(group)
        daemon, copies = new_daemon(
            make_daemon, group.hosts, start="earliest", failover_wait_seconds=1
        )
        with writing(group) as churns, reading(copies):
            until_written(churns, 10)
        read_all(copies, len(group.primary.logged))
        kill_the_primary(group)
        fails(daemon, copies, "server history differs", "never executed 5-1-")


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_does_not_log_what_it_replicates_is_refused(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with new_group(server_factory, kind, count=2) as group:
        create_all(group)
        (replica,) = group.replicas
        replica.server.stop()
        replica.server.start("--skip-log-slave-updates")
        replica.server.execute("START SLAVE")
        daemon, copies = new_daemon(make_daemon, group.hosts, start="earliest")
        with writing(group) as churns, reading(copies):
            until_written(churns, 10)
        read_all(copies, len(group.primary.logged))
        primary = group.primary
        group.kill(primary)
        for name in [copy.reader.consumer for copy in copies]:
            until(partial(reports, daemon, name, "log_slave_updates=OFF"), "the replica is refused")
        # The daemon does not ask the replica for its log, and nothing is lost: the consumers go on when the primary is
        # back.
        assert not [
            row for row in replica.server.execute("SHOW PROCESSLIST") if "Dump" in str(row[4])
        ]
        primary.server.restart()
        primary.proxy.accept()
        with writing(group, 2) as churns, reading(copies):
            until_written(churns, 10)
        read_all(copies, len(primary.logged))
        assert sum(copy.check(primary.server) for copy in copies)


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_does_not_ascend_stops_the_consumers(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with two(kind, server_factory, make_daemon, "--gtid-strict-mode=OFF") as (
        group,
        daemon,
        copies,
    ):
        group.primary.server.execute("SET gtid_seq_no = 3", "INSERT INTO a.churn VALUES (0, 0, '')")
        fails(daemon, copies, "0-1-3 follows 0-1-", "gtid_strict_mode=ON")


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_of_one_host_goes_on_with_several_as_the_remedy_says(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    with new_group(server_factory, kind, count=2) as group:
        create_all(group)
        server = group.primary.server
        one = f"127.0.0.1:{group.primary.proxy.port}"
        daemon, copies = new_daemon(make_daemon, one, start="earliest")
        with writing(group) as churns, reading(copies):
            until_written(churns, 10)
        read_all(copies, tip_seq(server))
        for hosts, before in ((group.hosts, "one host"), (one, "several")):
            for settings in daemon.settings["consumers"].values():
                settings["mysql"] = f"reader@{hosts}"
            daemon.restart()
            for copy in copies:
                name = copy.reader.consumer
                error = daemon.api.until_state(name, "failed")["last_error"]
                assert f"the stored position is of {before}" in error
                (to,) = re.findall(r"move the consumer to (\S+): binlog-dispatcher", error)
                url = f"http://127.0.0.1:{daemon.port}"
                words = ["consumers", "seek", name, "--to", to, "--url", url, "--yes"]
                done = CliRunner().invoke(app, words)
                assert (done.exit_code, done.stderr) == (0, ""), done.stderr
                copy.reader = Reader(daemon, name).open()
                copy.begins_anew()
            with writing(group, 2) as churns, reading(copies):
                until_written(churns, 10)
            read_all(copies, tip_seq(server) if hosts == one else len(group.primary.logged))
            assert sum(copy.check(server) for copy in copies)
