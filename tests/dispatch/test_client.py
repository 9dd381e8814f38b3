"""The rules of a client, played: a seeded world of losses, pauses, restarts and seeks around `Client.step`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.dispatch.client import Phase
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
from tests.support.fake_server import SERVER_NAME, Server, gtid_set
from tests.support.random_log import random_log, random_wanted
from tests.support.simulation import World

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
        rng,
        transactions=30,
        gtid=WRITER[mode],
        size_max=rng.choice((40, 2000, 30_000)),
        far=mode is not Mode.GTID and rng.random() < 0.3,
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
@settings(max_examples=settings().max_examples * 2 // 5)
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


TRACE = """
from tests.dispatch.test_client import world
play = world(77)
play.play(300)
play.finish()
print(play.log, play.store)
"""


def test_the_play_does_not_depend_on_the_hashes_of_texts() -> None:
    root = Path(__file__).parents[2]
    traces = {
        subprocess.run(
            [sys.executable, "-c", TRACE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
    assert "Arrived" in traces.pop()


# -- rules one at a time --------------------------------------------------------------------------------------


def small_log(n: int = 6, **kwargs: Any) -> LogWriter:
    return random_log(random.Random(1), transactions=n, files=False, checksum=True, **kwargs)


def at(log: LogWriter, k: int, server: str = SERVER_NAME, *extra: Transaction) -> Progress:
    held = [*log.transactions[:k], *extra]
    gtids = gtid_set(held)
    end = held[k - 1].end if k else 4
    position = Position(server, str(gtids), log.file.name, end, len(gtids), 0)
    return Progress(position, position, log.file.created)


def alone(
    log: LogWriter,
    *,
    mode: Mode = Mode.GTID,
    limit: int = 1 << 26,
    stored: dict[str, Progress] | None = None,
    names: tuple[str, ...] = ("a",),
) -> World:
    specs = [
        ConsumerSpec(n, ("shop", "billing", "crm"), None, limit, Start("earliest")) for n in names
    ]
    return World(random.Random(0), Server(log, mode), specs, stored)


def test_a_place_is_stored_before_anything_is_read() -> None:
    play = alone(small_log())
    effects = play.client.step(LoggedIn(play.server.view()), 0.0)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Store) < kinds.index(Dump)


def test_several_consumers_share_one_dump_of_what_all_have() -> None:
    log = small_log()
    first, *_, last = log.transactions
    stored = {"a": at(log, 3), "b": at(log, 1, SERVER_NAME, last)}
    play = alone(log, stored=stored, names=("a", "b"))
    (dump,) = (
        e for e in play.client.step(LoggedIn(play.server.view()), 0.0) if isinstance(e, Dump)
    )
    assert dump.place.gtids == gtid_set([first])
    play = alone(log, stored=stored, names=("a", "b"))
    play.finish()


def until_paused(play: World) -> None:
    while play.client.phase is not Phase.PAUSED:
        play.connect()
        play.read()


def test_reconnects_while_a_queue_is_full_add_nothing_to_it() -> None:
    log = random_log(random.Random(4), transactions=200, size_max=2000, files=False)
    play = alone(log, limit=1)
    until_paused(play)
    held = play.client.consumers["a"].queue.held_bytes
    for _ in range(5):
        play.lose()
        play.connect()
        assert play.paused
        play.read()
    assert play.client.consumers["a"].queue.held_bytes <= held
    play.finish()


def test_a_long_pause_closes_the_connection_until_there_is_room() -> None:
    log = random_log(random.Random(4), transactions=200, size_max=2000, files=False)
    play = alone(log, limit=1)
    until_paused(play)
    wakeup = play.client.next_wakeup()
    assert wakeup == play.now + 5.0
    play.now = wakeup
    play.tick_quietly()
    assert play.client.phase is Phase.ROOMLESS
    assert play.connection is None
    # What the closing of the connection raises in whoever read it changes nothing.
    assert play.client.step(Lost(BinlogError(Kind.CONNECTION_LOST, "closed")), play.now) == []
    waiting = []
    for _ in range(2):  # the second poll acknowledges what the first one returned
        play.poll("a", 1 << 26, ack=True)
        waiting.append(play.connect_at is None)
    assert waiting == [True, False]
    play.finish()


def test_backoff_grows_and_a_login_ends_it() -> None:
    play = alone(small_log())
    waits = []
    for _ in range(9):
        effects = play.client.step(Lost(BinlogError(Kind.CONNECT_FAILED, "no")), 0.0)
        waits += [effect.after_s for effect in effects if isinstance(effect, Connect)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    play.client.step(LoggedIn(play.server.view()), 0.0)
    effects = play.client.step(Lost(BinlogError(Kind.CONNECTION_LOST, "cut")), 0.0)
    assert [effect.after_s for effect in effects if isinstance(effect, Connect)] == [0.5]


def test_what_an_operator_must_mend_is_tried_slowly() -> None:
    play = alone(small_log())
    effects = play.client.step(Lost(BinlogError(Kind.ACCESS_DENIED, "no")), 0.0)
    assert [effect.after_s for effect in effects if isinstance(effect, Connect)] == [10.0]
    assert play.client.consumers["a"].error is not None


def damaged(log: LogWriter, k: int) -> None:
    """Damage the last event of the k-th transaction, in the file."""
    target = log.transactions[k].parts[-1].raw
    events = log.file.events
    n = next(n for n, (raw, _) in enumerate(events) if raw is target)
    events[n] = (target[:-1] + bytes((target[-1] ^ 1,)), events[n][1])


def test_damage_that_stays_fails_after_three_times_with_all_before_it_delivered() -> None:
    log = small_log(12)
    damaged(log, 7)
    play = alone(log)
    for _ in range(2000):
        play.connect()
        play.read()
        play.poll("a", ack=True)
    consumer = play.client.consumers["a"]
    assert consumer.failed is not None
    assert consumer.failed.kind is Kind.CHECKSUM_MISMATCH
    assert play.readers["a"].position.seq == 7
    assert play.log.count("Lost") == 3
    assert play.client.phase is Phase.IDLE


def test_damage_on_the_way_is_read_again() -> None:
    log = small_log(12)
    good = list(log.file.events)
    damaged(log, 7)
    play = alone(log)
    while "Lost" not in play.log:
        play.connect()
        play.read()
    log.file.events[:] = good
    play.finish()


@pytest.mark.parametrize("mode", Mode)
def test_a_fault_fails_those_whom_it_concerns_and_who_are_not_past_it(mode: Mode) -> None:
    log = small_log(3, gtid=WRITER[mode])
    log.begin()
    log.query("INSERT INTO t VALUES (1)", "shop")
    bad = log.commit()
    log.ddl("CREATE TABLE shop.x (id int)", tables=(("shop", "x"),))
    server = Server(log, mode)
    if mode is Mode.GTID:
        past = at(log, 4)
    else:
        gtid = f"0-1-{bad.gno}" if mode is Mode.MARIADB else ""
        position = Position(SERVER_NAME, gtid, bad.file, bad.end, packed_seq(bad.file, bad.end), 0)
        past = Progress(position, position, log.file.created)
    specs = [ConsumerSpec(n, ("shop",), None, 1 << 20, Start("earliest")) for n in ("a", "past")]
    play = World(random.Random(0), server, specs, {"past": past})
    for _ in range(300):
        play.connect()
        play.read()
        for name in ("a", "past"):
            play.poll(name, ack=True)
    assert play.client.consumers["past"].failed is None
    assert play.readers["past"].transactions == 1
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is Kind.STATEMENT_FORMAT
    assert "consumer a" in failed.where
    assert "INSERT as a statement" in failed.what
    # A reader that steps over the fault by hand goes on.
    after = past.covered
    play.resume("a", after)
    play.readers["a"].positions.append(after)
    play.finish()
    assert play.client.consumers["a"].failed is None


def test_a_fault_in_the_log_itself_closes_the_connection_when_nobody_is_left() -> None:
    log = small_log(3)
    log.add(250, b"of a later version")
    log.ddl("CREATE TABLE shop.x (id int)")
    play = alone(log)
    for _ in range(300):
        play.connect()
        play.read()
        play.poll("a", ack=True)
    assert play.connection is None
    assert play.client.phase is Phase.IDLE
    assert play.readers["a"].position.seq == 3


def test_a_failed_place_leaves_the_others_alone() -> None:
    log = small_log()
    play = alone(log, stored={"a": at(log, 2, "another")}, names=("a", "b"))
    play.server.purged = str(gtid_set(log.transactions[:1]))
    foreign = Position(SERVER_NAME, f"{'0' * 8}-1111-1111-1111-{'0' * 12}:1", "", 0, 1, 0)
    play.store["a"] = Progress(foreign, foreign, 0)
    play.boot()
    for _ in range(200):
        play.connect()
        play.read()
        play.poll("b", ack=True)
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is Kind.HISTORY_DIFFERS
    assert play.readers["b"].position.seq == 6


@pytest.mark.parametrize(("before", "now"), [(a, b) for a in Mode for b in Mode if a is not b])
def test_a_server_that_changed_its_mode_is_another_history(before: Mode, now: Mode) -> None:
    log = small_log(gtid=WRITER[before])
    play = alone(log, mode=before)
    play.finish()
    play.poll("a", ack=True)
    stored = dict(play.store)
    if {before, now} == {Mode.FILE, Mode.MARIADB}:
        return  # both count by file and offset; the servers' names differ
    play = alone(small_log(gtid=WRITER[now]), mode=now, stored=stored)
    effects = play.client.step(LoggedIn(play.server.view()), 0.0)
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is Kind.HISTORY_DIFFERS
    assert any(isinstance(effect, Close) for effect in effects)


def test_a_bare_marker_is_stored_a_second_later_and_moves_the_covered_place_only() -> None:
    log = LogWriter()
    for _ in range(3):
        log.begin()
        log.commit()
    play = alone(log)
    for _ in range(50):
        play.connect()
        play.read()
    assert play.client.next_wakeup() is not None
    play.now += 1
    play.tick_quietly()
    progress = play.store["a"]
    assert (progress.acknowledged.seq, progress.covered.seq) == (0, 3)
    assert progress.covered.gtid == str(GtidSet.parse(progress.covered.gtid))
    assert play.client.next_wakeup() is None
    play.restart()
    play.finish()


def test_refused_acknowledgements_change_nothing() -> None:
    log = small_log()
    play = alone(log)
    play.finish()
    end = play.readers["a"].position
    for bad, kind in (
        (Position(end.server, end.gtid, end.file, end.offset, end.seq, 1), Kind.POSITION_UNKNOWN),
        (
            Position(end.server, end.gtid, end.file, end.offset, end.seq + 1, 0),
            Kind.POSITION_UNKNOWN,
        ),
        (Position(end.server, "?", end.file, end.offset, 0, 0), Kind.SETTINGS),
    ):
        with pytest.raises(BinlogError) as info:
            play.client.progress_after("a", bad)
        assert info.value.kind is kind
    play.acknowledge("a", end)
    assert play.client.progress_after("a", end) is None
