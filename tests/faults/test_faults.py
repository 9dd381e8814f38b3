"""Each consumer gets exactly its transactions, whatever happens between the daemon and its server.

One daemon, whose connections go through a proxy, runs during all tests. All the time, the tests write changes and read
them from the daemon. Each consumer's reader builds a copy of the tables from the changes alone (`churn`), and each
change must fit the row that it changes. After each fault the copies are compared with the server's tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import ER

from tests.daemon.harness import PASSWORD, Daemon, Reader, dumps, until
from tests.faults.churn import Churn, Copy, check_all, churn, create, reading
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.proxy import NORMAL, STALLED, SWALLOWING, Conditions, Link, Proxy

DATABASES = ["a", "b"]
CONSUMERS = {"a": ["a"], "b": ["b"], "both": ["a", "b"], "small": ["a"]}
# The daemon closes a connection without data after three heartbeat periods.
HEARTBEAT_MS = 300


@dataclass
class World:
    server: Instance
    proxy: Proxy
    daemon: Daemon
    copies: list[Copy] = field(default_factory=list)

    def hosts(self) -> list[str]:
        """Returns the client addresses of the server's dumps, from the server's thread list."""
        shown = self.server.execute("SHOW PROCESSLIST")
        return [str(row[2]) for row in shown if "Binlog Dump" in str(row[4])]

    def dump_links(self) -> list[Link]:
        return self.proxy.of_hosts(self.hosts())

    def until_streaming(self, *but: Link) -> list[Link]:
        """Wait for a dump through a link that is not in `but`."""

        def found() -> list[Link]:
            return [link for link in self.dump_links() if link not in but and link.bytes_down > 500]

        return until(found, "the log is sent through a new connection")


@pytest.fixture(scope="module")
def world(
    module_server_factory: ServerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    server = module_server_factory("mysql97")
    create(server, DATABASES)
    server.add_user("reader", PASSWORD)
    with Proxy(server.port) as proxy:
        settings = {
            name: {
                "mysql": f"reader@127.0.0.1:{proxy.port}",
                "password": PASSWORD,
                "tls": {"mode": "disabled"},  # so that damaged bytes reach the daemon
                "databases": databases,
                "heartbeat_milliseconds": HEARTBEAT_MS,
                "max_bytes_in_binlog_queue": 20_000 if name == "small" else "64MiB",
            }
            for name, databases in CONSUMERS.items()
        }
        daemon = Daemon(tmp_path_factory.mktemp("faults"), {"consumers": settings})
        try:
            daemon.start()
            made = World(server, proxy, daemon)
            for name, databases in CONSUMERS.items():
                made.copies.append(Copy(Reader(daemon, name).open(), databases))
            yield made
        finally:
            daemon.close()


def check(world: World, what: str, began: float, opened: int) -> None:
    rows = check_all(world.server, world.copies)
    transactions = sum(copy.transactions for copy in world.copies)
    print(
        f"{what}: {time.monotonic() - began:.1f} s, {world.proxy.opened - opened} connections opened,"
        f" {transactions} transactions read so far, {rows} rows equal"
    )


def reset(world: World, writing: Churn) -> None:
    for _ in range(2):
        links = world.until_streaming()
        world.proxy.cut(*links)
        world.until_streaming(*links)


def close(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    world.proxy.cut(*links, reset=False)
    world.until_streaming(*links)


def cut_everything(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    world.proxy.cut()
    world.until_streaming(*links)


def cut_at_bytes(world: World, writing: Churn) -> None:
    """Cut connections during the greeting, the login, the answers and the dump."""
    for at in (1, 700, 5000):
        links = world.until_streaming()
        opened = world.proxy.opened
        world.proxy.set(Conditions(cut_at=at))
        world.proxy.cut()
        until(lambda opened=opened: world.proxy.opened > opened, "it tries again")  # type: ignore[misc]
        until(
            lambda opened=opened: not all(k.is_open for k in world.proxy.links[opened:]),  # type: ignore[misc]
            "it is cut again",
        )
        world.proxy.set(NORMAL)
        world.until_streaming(*links)


def stall(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    opened = world.proxy.opened
    world.proxy.set(STALLED, *links)
    until(lambda: world.proxy.opened > opened, "the silent connection is given up")
    world.until_streaming(*links)
    world.proxy.set(NORMAL, *[link for link in links if link.is_open])


def stall_everything(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    opened = world.proxy.opened
    world.proxy.set(STALLED)
    until(lambda: world.proxy.opened > opened, "the silent connection is given up")
    writing.until_written(20)
    world.proxy.set(NORMAL)
    world.until_streaming(*links)


def throttle(world: World, writing: Churn) -> None:
    """The daemon does not treat a slow network as dead. A side dispatcher that merges meanwhile closes its link."""
    links = world.until_streaming()
    lost = world.daemon.log.count('"not connected"')
    world.proxy.set(Conditions(bytes_per_s=30_000), *links)
    before = [(link, link.bytes_down) for link in links]
    writing.until_written(200)
    until(lambda: any(link.bytes_down > at + 60_000 for link, at in before), "it trickles")
    assert world.daemon.log.count('"not connected"') == lost
    world.proxy.set(NORMAL, *[link for link in links if link.is_open])


def lose_silently(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    world.proxy.set(SWALLOWING, *links)
    world.until_streaming(*links)
    # The server does not know that the old connection is gone. The new connection has the same server id, so the server
    # ends the old dump.
    until(lambda: not {link.server_side for link in links} & set(world.hosts()), "it is ended")
    world.proxy.set(NORMAL, *[link for link in links if link.is_open])


def garble(world: World, writing: Churn) -> None:
    """Flip one bit anywhere in packets and events."""
    for ahead in (0, 1, 3, 4, 5, 17, 60, 200, 3000, 20_000):
        link = world.until_streaming()[0]
        at = link.bytes_down + ahead
        world.proxy.set(Conditions(garble_at=at, garble_bit=ahead % 8), link)
        until(lambda link=link, at=at: link.bytes_down > at or not link.is_open, "it is garbled")  # type: ignore[misc]


def refuse(world: World, writing: Churn) -> None:
    links = world.until_streaming()
    world.proxy.refuse()
    world.proxy.cut()
    row = world.daemon.api.until_state("a", "connecting")
    writing.until_written(20)
    assert row["last_error"]
    world.proxy.accept()
    world.until_streaming(*links)


def kill_dumps(world: World, writing: Churn) -> None:
    for _ in range(2):
        links = world.until_streaming()
        for thread in dumps(world.server):
            try:
                world.server.execute(f"KILL {thread}")
            except pymysql.OperationalError as error:
                if error.args[0] != ER.NO_SUCH_THREAD:
                    raise
        world.until_streaming(*links)


def kill_the_daemon(world: World, writing: Churn) -> None:
    for kill in (True, False):
        writing.until_written(20)
        world.daemon.restart(kill=kill)
    world.until_streaming()


@pytest.mark.rotate(4)
@pytest.mark.parametrize(
    "fault",
    [
        reset, close, cut_everything, cut_at_bytes, stall, stall_everything, throttle, lose_silently, garble,
        refuse, kill_dumps, kill_the_daemon,
    ],
    ids=lambda fault: fault.__name__,
)  # fmt: skip
def test_a_fault_loses_and_repeats_no_transaction(
    world: World, fault: Callable[[World, Churn], None]
) -> None:
    began, opened = time.monotonic(), world.proxy.opened
    with churn(world.server, DATABASES) as writing, reading(world.copies):
        writing.until_written(20)
        fault(world, writing)
        writing.until_written(20)
    check(world, fault.__name__, began, opened)
    for name in CONSUMERS:  # the last connection may have been cut after the last byte
        world.daemon.api.until_state(name, "streaming")


@pytest.mark.rotate(1)
@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "killed"])
def test_a_server_restart_loses_and_repeats_no_transaction(world: World, kill: bool) -> None:
    began, opened = time.monotonic(), world.proxy.opened
    with reading(world.copies):
        with churn(world.server, DATABASES) as writing:
            writing.until_written(50)
            world.server.restart(kill=kill)
        world.proxy.lead_to(world.server.port)
        with churn(world.server, DATABASES) as writing:
            writing.until_written(50)
    check(world, "server killed" if kill else "server restarted", began, opened)


@pytest.mark.rotate(1)
@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "killed"])
def test_a_crash_of_server_and_daemon_loses_and_repeats_no_transaction(
    world: World, kill: bool
) -> None:
    """The daemon's acknowledged positions are compared with the log that the server recovered."""
    began, opened = time.monotonic(), world.proxy.opened
    with reading(world.copies):
        with churn(world.server, DATABASES) as writing:
            writing.until_written(50)
            world.daemon.kill()
            world.server.restart(kill=kill)
        world.proxy.lead_to(world.server.port)
        with churn(world.server, DATABASES) as writing:
            writing.until_written(50)
            world.daemon.start()
            writing.until_written(50)
    check(world, "both " + ("killed" if kill else "restarted"), began, opened)


def test_the_daemons_log_has_the_faults_and_no_secret(world: World) -> None:
    log = world.daemon.log
    assert PASSWORD not in log
    assert "Traceback" not in log
    assert Path(world.daemon.folder / "state.db").exists()
