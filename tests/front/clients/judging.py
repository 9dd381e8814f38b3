"""What holds for each client on any endpoint: two readings are equal, and a restart loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.front.clients.history import SERVER_OPTIONS, History
from tests.front.clients.readings import Client, Endpoint, Reading, Start, Until
from tests.servers import Server

USER, PASSWORD = "replicant", "replicant's secret"
DATABASES = ("shop", "others")
KILLED_AFTER = 40  # rows
MakeClient = Callable[[Path], Client]

__all__ = ["DATABASES", "PASSWORD", "SERVER_OPTIONS", "USER", "Recorded", "judge", "record"]


@dataclass
class Recorded:
    """A history on a server. `marks`: the ends of its parts; `file_start` and `gtid_start`: its begin."""

    server: Server
    history: History
    file_start: Start
    gtid_start: Start
    marks: list[Until]

    def endpoint(self, *, tls: bool = False) -> Endpoint:
        server = self.server
        return Endpoint(server.host, server.port, USER, PASSWORD, server.mariadb, tls)

    def start(self, *, gtids: bool) -> Start:
        return self.gtid_start if gtids else self.file_start


def record(server: Server) -> Recorded:
    """Write the history on a server that has the account: tables, rows, a rotation, large rows, DDL, and rows after
    the DDL."""
    history = History(server, *DATABASES)
    file_start, gtid_start = history.here(), history.here(gtids=True)
    marks = []
    history.create()
    history.write(100)
    marks.append(history.mark())
    history.rotate()
    history.large()
    history.write(60)
    marks.append(history.mark())
    history.alter()
    history.write(60)
    history.rotate()
    history.write(40)
    marks.append(history.mark())
    return Recorded(server, history, file_start, gtid_start, marks)


def judge(
    make: MakeClient,
    folder: Path,
    start: Start,
    endpoints: Sequence[Endpoint],
    marks: Sequence[Until],
) -> Reading:
    """Read the history in one go from each endpoint, and then in parts, with kills and moves between the endpoints.
    Assert that no row is lost or doubled. Returns the reading."""
    whole = _read(make(folder / "whole"), endpoints[:1], start, marks[-1:])
    for number, endpoint in enumerate(endpoints[1:]):
        again = _read(make(folder / f"again {number}"), [endpoint], start, marks[-1:])
        compare(whole, again)
    database = marks[-1].database
    parts = [Until(database, rows=KILLED_AFTER), marks[0], Until(database, rows=1), *marks[1:]]
    moved = [endpoints[number % len(endpoints)] for number in range(len(parts))]
    compare(whole, _read(make(folder / "parts"), moved, start, parts))
    return whole


def compare(one: Reading, other: Reading) -> None:
    """Assert that two readings are equal; the message names the first difference."""
    for number, (left, right) in enumerate(zip(one.transactions, other.transactions, strict=False)):
        if left != right:
            rows = zip(left.rows, right.rows, strict=False)
            pair = next((pair for pair in rows if pair[0] != pair[1]), None)
            raise AssertionError(f"transaction {number} of {left.gtid}: {pair or (left, right)}")
    assert len(one.transactions) == len(other.transactions)
    assert one.stored == other.stored


def _read(
    client: Client, endpoints: Sequence[Endpoint], start: Start, parts: Sequence[Until]
) -> Reading:
    client.begin(endpoints[0], start)
    reading = Reading([], start)
    for endpoint, until in zip(endpoints, parts, strict=True):
        reading = reading.then(client.read(endpoint, until))
    return reading
