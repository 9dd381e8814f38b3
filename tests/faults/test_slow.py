"""A consumer that is slow, or does not read at all, does not slow down others.

Eight consumers read a log that is too long to be read to its end. The network between server and daemon is the
bottleneck (`SLOW_MIB_PER_SECOND`), so readers get less if the daemon waits. The test measures how much seven readers
get within `SLOW_SECONDS` in three cases: the eighth reader reads like the seven, does not read at all, or acknowledges
1 KiB/s.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pytest

from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, Daemon, Json, dumps, tip_seq, until
from tests.daemon.test_sharing import measured
from tests.faults.drain import Drain, draining
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.proxy import NORMAL, Conditions, Proxy

SECONDS = float(os.environ.get("SLOW_SECONDS", "3"))
MIB = 1 << 20
RATE = int(os.environ.get("SLOW_MIB_PER_SECOND", "2")) * MIB
QUEUE, SLOW_QUEUE = (
    4 * MIB,
    MIB // 4,
)  # a size at which the slow consumer's queue is full within two seconds
SEVEN = [f"c{n}" for n in range(7)]
SLOW = "slow"
BASE_BYTES_MAX = 250 * MIB
LOSS_MAX = 0.10
ROW_BYTES = 1000
STATEMENT_ROWS = 25


def write(server: Instance, size: int) -> None:
    """Write a log of about `size` bytes, in files of 16 MiB. The databases get equal parts, in turns."""
    values = ", ".join([f"(REPEAT('x', {ROW_BYTES}))"] * STATEMENT_ROWS)
    statements = [f"INSERT INTO `{name}`.t (b) VALUES {values}" for name in (*SEVEN, SLOW)]
    server.execute(*statements * (1 + size // (8 * ROW_BYTES * STATEMENT_ROWS)))


@dataclass
class Window:
    """The bytes per second of seven readers, and the daemon's memory."""

    bytes_per_s: float
    resident_max: int


def measure(drains: list[Drain], daemon: Daemon, proxy: Proxy) -> Window:
    with measured(daemon) as sizes:
        began, before = time.monotonic(), [drain.bytes for drain in drains]
        ends = began + SECONDS
        until(lambda: time.monotonic() >= ends, "the window is over", timeout_s=SECONDS + 10)
        took = time.monotonic() - began
        read = [drain.bytes - b for drain, b in zip(drains, before, strict=True)]
    for drain in drains:
        assert drain.error is None, drain.error
    return Window(sum(read) / took, max(sizes))


@pytest.mark.rotate(1, of="loads")
@pytest.mark.timeout(120 + 10 * SECONDS)
def test_a_slow_consumer_does_not_slow_down_seven_others(
    server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    server = server_factory("mysql97", "--max-binlog-size=2M")
    server.add_user("reader", PASSWORD)
    for name in (*SEVEN, SLOW):
        server.execute(
            f"CREATE DATABASE `{name}`",
            f"CREATE TABLE `{name}`.t (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR({ROW_BYTES}))",
        )
    write(server, int(RATE * (3.3 * SECONDS + 8)))
    with Proxy(server.port) as proxy:
        proxy.set(Conditions(bytes_per_s=RATE // 20))  # slow until the readers begin
        common: Json = {
            "mysql": f"reader@127.0.0.1:{proxy.port}",
            "password": PASSWORD,
            "start": "earliest",
            "max_bytes_in_binlog_queue": QUEUE,
            "max_milliseconds_to_wait_in_binlog_queue": 1000,
        }
        consumers = {name: {**common, "databases": [name]} for name in (*SEVEN, SLOW)}
        consumers[SLOW]["max_bytes_in_binlog_queue"] = SLOW_QUEUE
        daemon = make_daemon(consumers)
        daemon.start()
        with draining(daemon, [*SEVEN, SLOW]) as drains:
            seven, slow = [drains[name] for name in SEVEN], drains[SLOW]
            until(lambda: all(d.bytes > 0 for d in drains.values()), "all readers read")
            proxy.set(Conditions(bytes_per_s=RATE))
            beside_a_live_one = measure(seven, daemon, proxy)

            slow.stick()
            beside_a_stuck_one = measure(seven, daemon, proxy)
            row = daemon.api.row(SLOW)
            assert row["detaches"] >= 1
            assert row["last_error"] is None
            assert row["bytes"] <= SLOW_QUEUE + MIB // 8  # the queue allocates whole segments
            purge_unneeded_files(server, daemon)

            slow.crawl(1024)
            beside_a_crawling_one = measure(seven, daemon, proxy)
            assert slow.error is None

            proxy.set(NORMAL)
            slow.wake()
            began = time.monotonic()
            wanted = tip_seq(server)
            until(
                lambda: all(d.seq >= wanted for d in drains.values()),
                "all has been read",
                timeout_s=120,
            )
            caught_up_s = time.monotonic() - began
            until(lambda: len(dumps(server)) == 1, "all share one connection")
            rows = daemon.api.rows()
            assert len({row["dispatcher_name"] for row in rows.values()}) == 1
        for name, drain in drains.items():
            (count,) = server.execute(f"SELECT COUNT(*) FROM `{name}`.t")[0]
            assert drain.rows == count, name
    report(beside_a_live_one, beside_a_stuck_one, beside_a_crawling_one)
    print(
        f"  it is woken: {caught_up_s:.1f} s until all is read and merged; detached {rows[SLOW]['detaches']} times"
    )


def report(live: Window, stuck: Window, crawling: Window) -> None:
    """Print the measurements, and assert the promised ratios."""
    bound = 7 * QUEUE + SLOW_QUEUE + BASE_BYTES_MAX
    said = []
    for name, window in (("stuck", stuck), ("acknowledges 1 KiB/s", crawling)):
        loss = 1 - window.bytes_per_s / live.bytes_per_s
        said.append((name, loss, window))
    print(
        f"\nseven readers for {SECONDS:g} s each: {live.bytes_per_s / 1e6:.2f} MB/s beside a live one; "
        + "; ".join(
            f"{window.bytes_per_s / 1e6:.2f} MB/s beside one that {name} ({100 * loss:+.1f} % lost)"
            for name, loss, window in said
        )
        + f"; resident at most {max(live.resident_max, stuck.resident_max, crawling.resident_max) / MIB:.0f}"
        f" MiB of {bound / MIB:.0f} MiB"
    )
    assert max(window.resident_max for window in (live, stuck, crawling)) < bound
    if SECONDS >= 30:  # in a shorter window, one wait of a second would change the ratio too much
        for name, loss, _ in said:
            assert loss < LOSS_MAX, name


def purge_unneeded_files(server: Instance, daemon: Daemon) -> None:
    """Purge every file before the one that the slowest consumer needs."""
    needed = min(row["acknowledged"]["file"] for row in daemon.api.rows().values())
    server.execute("FLUSH BINARY LOGS")
    before = server.binlogs()

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{needed}'")
        return bool(server.binlogs()[0][0] == needed)

    until(purged, "the older files are purged", timeout_s=5)
    print(
        f"\npurged {len(before) - len(server.binlogs())} files of {len(before)} beside a stuck consumer"
    )
