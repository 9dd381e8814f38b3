"""One transaction of more than 4 GiB: the offset of its end does not fit into an event's header, nor into a request of
a dump by file and offset. A slow reader gets it in parts while the daemon is killed."""

from __future__ import annotations

import itertools
from contextlib import closing
from functools import partial

import pytest

from dispatcher.binlog.decode import delivered
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import DEADLINE_S, Json, Reader, inserted_ids, tip_seq, until
from tests.servers.plugin import ServerFactory
from tests.servers.server import Instance

MIB = 1 << 20
GIB = 1 << 30
ROWS, EACH = 516, 43  # rows of 8 MiB, and the rows of each statement
TIMEOUT_S = 15 * DEADLINE_S

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]


def write(server: Instance) -> None:
    """Write one transaction of more than 4 GiB, between small ones, and one after it in the next file."""
    numbers = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(EACH))
    with closing(server.connect("d")) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (-1, '')")
        cursor.execute("BEGIN")
        for first in range(0, ROWS, EACH):
            text = f"REPEAT(CHAR(97 + n % 26), {8 * MIB})"
            cursor.execute(f"INSERT INTO t SELECT {first} + n, {text} FROM ({numbers}) r")
        cursor.execute("COMMIT")
        cursor.execute("INSERT INTO t VALUES (-2, '')")
        cursor.execute("INSERT INTO e.t VALUES (1)")


def part(reader: Reader, start: tuple[Json, Json | None], end: tuple[Json, Json | None]) -> bytes:
    body = {"session": reader.session, "start": start[0], "end": end[0]}
    if start[1]:
        body["start_event"] = start[1]
    if end[1]:
        body["end_event"] = end[1]
    return reader.daemon.api.raw("POST", f"/v1/consumers/{reader.consumer}/binlog", body)


def rows_of(data: bytes) -> list[tuple[int, int, int, str]]:
    """Returns ordinal, id, and the length and the characters of the text of each row."""
    found = []
    for change in delivered.changes(data, {}):
        if isinstance(change, delivered.TableChanges):
            for row in change.batch.to_pylist():
                text = row["after"]["b"]
                found.append((row["ordinal"], row["after"]["id"], len(text), text[:1] + text[-1:]))
    return found


def read_to(reader: Reader, seq: int) -> None:
    def has_read() -> bool:
        reader.step()
        return int(reader.position["seq"]) >= seq

    until(has_read, f"{reader.consumer} has read up to {seq}", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("gtids", ["ON", "OFF"])
def test_a_transaction_whose_end_lies_beyond_4_gib(
    gtids: str, server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory(
        "mysql97",
        f"--gtid-mode={gtids}",
        f"--enforce-gtid-consistency={gtids}",
        "--max-allowed-packet=64M",
    )
    # The engine stores no rows, because the test needs only the log.
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGTEXT CHARACTER SET ascii) ENGINE=BLACKHOLE",
        "CREATE DATABASE e",
        "CREATE TABLE e.t (id INT PRIMARY KEY)",
    )
    daemon = make_daemon(
        {
            "slow": source(server, "d", max_bytes_in_binlog_queue="1MiB"),
            "quiet": source(server, "e"),
        }
    )
    daemon.start()
    quiet, slow = Reader(daemon, "quiet").open(), Reader(daemon, "slow").open()
    write(server)
    file, size, *_ = max(row for row in server.execute("SHOW BINARY LOGS") if row[1] > 4 * GIB)
    wanted = tip_seq(server)
    read_to(quiet, wanted)
    assert inserted_ids(quiet) == [1]

    slow.step(max_bytes=1)
    assert inserted_ids(slow) == [-1]
    begin = slow.position

    def polled() -> Json | None:
        answer = daemon.api.poll("slow", slow.session, begin, max_bytes=1, wait_ms=500)
        return answer["end"] if answer["transactions"] else None

    end = until(polled, "the transaction is queued", timeout_s=TIMEOUT_S)
    assert end is not None
    assert end["file"] == file and 4 * GIB < end["offset"] <= size
    assert end["seq"] - begin["seq"] == (1 if gtids == "ON" else end["offset"] - begin["offset"])
    asked = {"session": slow.session, "start": begin, "end": end}
    answer = daemon.api.call("slow", "slices", **asked, n=200, inside=True)
    assert answer["bytes"] > 4 * GIB
    cuts = [(begin, None), *zip(answer["cuts"], answer["events"], strict=True), (end, None)]
    assert len(cuts) > 100
    rows = []
    for n, (start, stop) in enumerate(itertools.pairwise(cuts)):
        if n == len(cuts) // 2:
            daemon.restart(kill=True)
        again = partial(part, slow, start, stop)
        rows += rows_of(until(again, "the part can be read", timeout_s=TIMEOUT_S))
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    assert [row[1:] for row in rows] == [
        (n, 8 * MIB, 2 * chr(97 + n % EACH % 26)) for n in range(ROWS)
    ]

    # The consumer continues at an offset that a dump by file and offset cannot name.
    slow.position = end
    slow.acknowledge()
    slow.chunks.clear()
    daemon.restart(kill=True)
    slow.open()
    assert slow.position["offset"] == end["offset"]
    read_to(slow, wanted)
    assert inserted_ids(slow) == [-2]
