"""Small worlds with a client, and what their tests do again and again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import ClientLimits, ConsumerSpec, Earliest, Progress
from dispatcher.model.position import Position
from tests.support.event_encoder import LogWriter, Transaction
from tests.support.fake_server import SERVER_NAME, Server, gtid_set
from tests.support.random_log import random_log
from tests.support.simulation import World

WRITER = {
    Mode.GTID: "mysql",
    Mode.FILE: "anonymous",
    Mode.MARIADB: "mariadb",
    Mode.DOMAINS: "domains",
}


def small_log(n: int = 6, **kwargs: Any) -> LogWriter:
    return random_log(random.Random(1), transactions=n, files=False, checksum=True, **kwargs)


def at(log: LogWriter, k: int, server: str = SERVER_NAME, *extra: Transaction) -> Progress:
    held = [*log.transactions[:k], *extra]
    gtids = gtid_set(held)
    end = held[k - 1].end if k else 4
    position = Position(server, str(gtids), log.file.name, end, len(gtids), 0)
    return Progress(position, position, log.file.created)


def spec(name: str, limit: int = 1 << 26, **more: Any) -> ConsumerSpec:
    return ConsumerSpec(name, ("shop", "billing", "crm"), None, limit, Earliest(), **more)


def alone(
    log: LogWriter,
    *,
    mode: Mode = Mode.GTID,
    limit: int = 1 << 26,
    stored: dict[str, Progress] | None = None,
    names: tuple[str, ...] = ("a",),
    limits: ClientLimits | None = None,
) -> World:
    specs = [spec(name, limit) for name in names]
    return World(random.Random(0), Server(log, mode), specs, stored, limits)


def until_paused(play: World) -> None:
    while play.client.dispatchers[1].phase is not Phase.PAUSED:
        play.connect()
        play.read()


FAR = ClientLimits(merge_bytes_max=2000)


def long_log(n: int = 60) -> LogWriter:
    return random_log(random.Random(4), transactions=n, size_max=2000, files=False)


def numbers(play: World) -> list[int]:
    return sorted(play.client.dispatchers)


def read_and_poll(play: World, until: Callable[[], bool], *names: str) -> None:
    for _ in range(5000):
        if until():
            return
        play.connect()
        play.read()
        for name in names:
            play.poll(name, 1 << 20, ack=True)
        play.tick_quietly()
    raise AssertionError("it does not come to that")
