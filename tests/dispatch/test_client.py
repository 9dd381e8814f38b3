"""The rules of a client, played: a seeded world of losses, pauses, restarts and seeks around `Client.step`."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.dispatch.client import Client, Phase
from dispatcher.dispatch.history import Mode
from dispatcher.dispatch.inputs import (
    Close,
    Connect,
    ConsumerSpec,
    Dump,
    LoggedIn,
    Lost,
    Progress,
    Start,
    Store,
)
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from tests.support.event_encoder import LogWriter, Transaction
from tests.support.random_log import random_log, random_wanted
from tests.support.simulation import SERVER_NAME, Server, World, gtid_set

SEEDS = st.integers(0, 2**32 - 1)
WRITER = {Mode.GTID: "mysql", Mode.FILE: "anonymous", Mode.MARIADB: "mariadb"}


def random_stored(rng: random.Random, server: Server) -> Progress | None:
    """Nothing, a place in the log, or (with GTIDs) any set of its transactions."""
    log = server.log
    if rng.random() < 0.3:
        return None
    k = rng.randrange(len(log.transactions) + 1)
    held = log.transactions[:k]
    last = held[-1] if held else None
    file, offset = (last.file, last.end) if last else (log.files[0].name, 4)
    if server.mode is Mode.GTID:
        if rng.random() < 0.4:
            held = held + [t for t in log.transactions[k:] if rng.random() < 0.3]
        gtids = gtid_set(held)
        position = Position(server.name, str(gtids), file, offset, len(gtids), 0)
    else:
        gtid = f"0-1-{last.gno}" if last and server.mode is Mode.MARIADB else ""
        position = Position(server.name, gtid, file, offset, packed_seq(file, offset), 0)
    created = {f.name: f.created for f in log.files}[file]
    return Progress(position, position, rng.choice((0, created)))


def world(seed: int, mode: Mode = Mode.GTID) -> World:
    rng = random.Random(seed)
    log = random_log(
        rng, transactions=30, gtid=WRITER[mode], size_max=rng.choice((40, 2000, 30_000))
    )
    server = Server(log, mode)
    specs, stored = [], {}
    for n in range(rng.randrange(1, 5)):
        wanted = random_wanted(rng)
        limit = rng.choice((1, 20_000, 100_000, 1 << 26))
        start = Start(rng.choice(("earliest", "latest")))
        specs.append(ConsumerSpec(f"c{n}", wanted.databases, wanted.tables, limit, start))
        progress = random_stored(rng, server)
        if progress:
            stored[f"c{n}"] = progress
    largest = max(t.end - t.start for t in log.transactions)
    return World(rng, server, specs, stored, largest_transaction=largest)


@pytest.mark.parametrize("mode", Mode)
@given(seed=SEEDS)
def test_every_consumer_gets_exactly_its_own(mode: Mode, seed: int) -> None:
    play = world(seed, mode)
    play.play(400)
    play.finish()


def test_the_play_is_the_same_each_time() -> None:
    plays = [world(77), world(77)]
    for play in plays:
        play.play(300)
        play.finish()
    assert plays[0].log == plays[1].log
    assert plays[0].store == plays[1].store
