"""A consumer without changes, while the test writes to other databases all the time, for `QUIET_SECONDS`.

The daemon seldom sends progress to the reader of this consumer, but the consumer's covered position advances with the
log, so the server may purge any older file. After such a purge, the reader restarts without an error.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Reader, tip_seq, until
from tests.faults.churn import Copy, busy, check_all, create
from tests.faults.drain import draining
from tests.servers.plugin import ServerFactory

SECONDS = float(os.environ.get("QUIET_SECONDS", "4"))
# The time between two markers for a reader: the default if the run is long.
MARKERS_S = 60 if SECONDS >= 120 else 1
RUNWAY_SLACK_S = 5.0


@pytest.mark.rotate(1, of="loads")
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_a_quiet_consumer_survives_purges_on_a_busy_server(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory("mysql97", "--max-binlog-size=1M")
    create(server, ["quiet"])
    server.execute("CREATE DATABASE busy")
    seldom = {"max_seconds_between_markers": MARKERS_S}
    daemon = make_daemon(
        {"quiet": source(server, "quiet", **seldom), "busy": source(server, "busy", **seldom)}
    )
    api = daemon.start()
    runways: list[float] = []
    behind: list[int] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.wait(min(1.0, SECONDS / 20)):
            row = api.row("quiet")
            if row["runway_seconds"] is not None:
                runways.append(row["runway_seconds"])
            server_now, covered = server.binlog_position(), row["covered"]
            files = int(server_now[0].split(".")[1]) - int(covered["file"].split(".")[1])
            behind.append(files)

    began = time.monotonic()
    with draining(daemon, ["quiet"], markers=False) as drains, busy(server, "busy"):
        # The consumer `quiet` starts at the end that the log had at its reader's first session.
        server.execute("INSERT INTO quiet.churn VALUES (1, 1, 'the only row')")
        looking = threading.Thread(target=look)
        looking.start()
        ends = time.monotonic() + SECONDS
        until(lambda: time.monotonic() >= ends, "the time is over", timeout_s=SECONDS + 30)
        stopping.set()
        looking.join()
        quiet = drains["quiet"]
        until(lambda: quiet.rows, "the only row is delivered")
        assert (quiet.rows, quiet.transactions) == (1, 1)
        files = len(server.binlogs())
        (written,) = server.execute("SELECT COUNT(*) FROM busy.busy")[0]
    took_s = time.monotonic() - began
    reader = quiet.reader
    # The consumer's position moves to the end of the log without a call of the reader.
    tip = tip_seq(server)
    until(lambda: daemon.stored("quiet")["covered"]["seq"] >= tip, "its place has moved on")
    server.execute("FLUSH BINARY LOGS")
    newest = server.binlog_position()[0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(server.binlogs()) == 1

    until(purged, "everything older is gone")
    daemon.restart()
    server.execute("INSERT INTO quiet.churn VALUES (2, 2, 'after the purge')")
    copy = Copy(Reader(daemon, "quiet", position=reader.position).open(), ["quiet"])
    copy.tables["quiet"][1] = (1, 1, "the only row")
    assert check_all(server, [copy]) == 2
    print(
        f"\na quiet consumer for {SECONDS:g} s beside {written} transactions in {files} files:"
        f" {quiet.answers} answers with progress; runway {runways[0]:.0f} s at first, {min(runways):.0f} s at least,"
        f" {runways[-1]:.0f} s at last; at most {max(behind)} files behind"
    )
    # There may be one answer for the row, and one for each marker that was due.
    assert quiet.answers <= 2 + took_s / MARKERS_S
    if SECONDS >= 120:
        assert quiet.answers <= 12
    assert min(runways) >= runways[0] - RUNWAY_SLACK_S
