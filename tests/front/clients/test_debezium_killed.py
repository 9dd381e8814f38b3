"""Debezium reads through the front with its own offsets, and is killed again and again at random moments. No change is
lost.

`FRONT_MINUTES` sets the length of the run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.churn import churn, create
from tests.front.clients.debezium import Debezium, UnreadableOffset
from tests.front.clients.judging import DATABASES, PASSWORD, USER
from tests.front.clients.readings import Endpoint
from tests.servers import Server
from tests.servers.plugin import ServerFactory

MINUTES = float(os.environ.get("FRONT_MINUTES", "0.5"))
SEED = int(os.environ.get("FRONT_SEED", "0"))
DEADLINE_S = 240.0
MINE, OTHERS = DATABASES
Place = tuple[str, int, int]
Values = dict[str, Any]


class Copy:
    """The table `churn`, made only of the events that Debezium delivers. Each event must fit: an inserted row did not
    exist, and a changed or deleted row equals the event's before image. So a lost event is found at once."""

    def __init__(self) -> None:
        self.rows: dict[int, Values] = {}
        self.marks: set[int] = set()
        self.counts: Counter[str] = Counter()
        self._seen: dict[Place, Values] = {}

    def take(self, value: Values) -> None:
        source = value.get("source") or {}
        if "ddl" in value or source.get("table") not in ("churn", "seed"):
            return
        place = source["file"], source["pos"], source.get("row") or 0
        change = {name: value[name] for name in ("op", "before", "after")}
        if (seen := self._seen.get(place)) is not None:
            assert seen == change, f"at {place} there was {seen}, and now there is {change}"
            self.counts["repeated"] += 1
            return
        self._seen[place] = change
        self.counts[change["op"]] += 1
        if source["table"] == "seed":
            self.marks.add(change["after"]["id"])
            return
        before, after = change["before"], change["after"]
        key = (before or after)["id"]
        assert self.rows.pop(key, None) == before, f"{change} at {place} follows no event"
        if after is not None:
            self.rows[key] = after


@pytest.mark.deep
@pytest.mark.timeout(MINUTES * 60 + 900)
def test_debezium_that_is_killed_at_random_loses_nothing(
    server_factory: ServerFactory, front_of: Callable[[Server], Endpoint], tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    server.add_user(USER, PASSWORD)
    create(server, [MINE, OTHERS])
    server.execute(f"CREATE TABLE {MINE}.seed (id INT PRIMARY KEY)")
    front = front_of(server)
    debezium = Debezium(tmp_path / "debezium", more={"max.batch.size": 64, "max.queue.size": 256})
    debezium.prepare(front, lambda: server.execute(f"INSERT INTO {MINE}.seed VALUES (1)"))
    debezium.keep_offset()
    chance, copy = random.Random(SEED), Copy()
    end = time.monotonic() + MINUTES * 60
    with churn(server, [MINE, OTHERS], seed=SEED, pause_s=0.02) as writing:
        while time.monotonic() < end:
            events = chance.choice((1, 10, 100, 1000))
            with debezium.restless(front) as engine:
                for n, value in enumerate(engine.values()):
                    copy.take(value)
                    if n >= events:
                        break
                # Between two events, while a batch or its offset is stored, or while it waits for events.
                threading.Event().wait(chance.random() * 0.2)
                engine.kill()
                for value in engine.values():
                    copy.take(value)
            copy.counts["kills"] += 1
            try:
                debezium.keep_offset()
            except UnreadableOffset:
                copy.counts["offsets restored"] += 1
    server.execute(f"INSERT INTO {MINE}.seed VALUES (2)")
    with debezium.restless(front) as engine:
        for value in engine.values():
            copy.take(value)
            if 2 in copy.marks:
                break
    print(f"{MINUTES:g} minutes, {writing.written} transactions: {dict(copy.counts)}")
    wanted = {
        row[0]: {"id": row[0], "n": row[1], "t": row[2]}
        for row in server.execute(f"SELECT id, n, t FROM {MINE}.churn")
    }
    assert copy.rows == wanted
