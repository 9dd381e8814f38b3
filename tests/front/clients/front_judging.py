"""Checks that hold for each client that reads one database from the server and from the front."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.front.clients.judging import KILLED_AFTER, MakeClient
from tests.front.clients.readings import DDL, Endpoint, Reading, Start, Until


def judge_front(
    make: MakeClient,
    folder: Path,
    start: Start,
    server: Endpoint,
    front: Endpoint,
    marks: Sequence[Until],
) -> Reading:
    """Read one database from the server, from the front, and in parts. Between the parts, the client is killed and
    moves between server and front.

    Assert that all readings have the same rows at the same places. Returns the reading of the server. The GTID sets
    that clients have at the end may differ, because the front sends the GTIDs of other transactions after a range.
    """
    database = marks[-1].database

    def read(name: str, endpoints: Sequence[Endpoint], parts: Sequence[Until]) -> Reading:
        client, reading = make(folder / name), Reading([], start)
        client.begin(endpoints[0], start)
        for endpoint, until in zip(endpoints, parts, strict=True):
            reading = reading.then(client.read(endpoint, until))
        return _rows_only(reading.only(database))

    whole = read("server", [server], marks[-1:])
    _compare(whole, read("front", [front], marks[-1:]))
    parts = [Until(database, rows=KILLED_AFTER), marks[0], Until(database, rows=1), *marks[1:]]
    _compare(whole, read("parts", [(front, server)[n % 2] for n in range(len(parts))], parts))
    return whole


# Canal reports the GTID set up to each transaction. With the front, GTIDs of other transactions are added to this set
# at other times.
_SET = re.compile(r":\d+-\d+|,")


def _rows_only(reading: Reading) -> Reading:
    """Returns the reading without statements, because some clients do not report to which database a statement
    belongs."""
    kept = []
    for one in reading.transactions:
        rows = tuple(row for row in one.rows if row.op != DDL)
        if rows:
            gtid = "" if _SET.search(one.gtid) else one.gtid
            kept.append(replace(one, rows=rows, gtid=gtid))
    return replace(reading, transactions=kept)


def _compare(one: Reading, other: Reading) -> None:
    """Assert that two readings have the same transactions. The message of the assertion names the first difference."""
    for number, (left, right) in enumerate(zip(one.transactions, other.transactions, strict=False)):
        if left != right:
            rows = zip(left.rows, right.rows, strict=False)
            pair = next((pair for pair in rows if pair[0] != pair[1]), None)
            raise AssertionError(f"transaction {number} of {left.gtid}: {pair or (left, right)}")
    assert len(one.transactions) == len(other.transactions)
