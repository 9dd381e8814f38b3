"""Plays a random history from a seed: the scenario at the start, the moves, and the end, at which all readers must have
everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dispatcher.dispatch.queue import queue_contents
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import (
    AtFile,
    AtGtid,
    AtTime,
    ClientLimits,
    ConsumerSpec,
    Earliest,
    Latest,
    OnPurged,
    OnQueueFull,
    Progress,
    Start,
)
from dispatcher.model.errors import ErrorKind
from dispatcher.model.position import packed_seq
from tests.simulation import lives
from tests.simulation.histories import History, history
from tests.simulation.readers import ReadWorld
from tests.simulation.runs import SEEDS_PER_RUN
from tests.simulation.transcript import Transcript
from tests.simulation.world import SIZES, Scenario
from tests.support.event_encoder import Transaction
from tests.support.fake_server import gtid_set
from tests.support.random_log import random_wanted, spelled
from tests.support.simulation import wanted_by
from tests.support.spelling import random_speller

SEEDS_PER_LOG = SEEDS_PER_RUN  # writing a log takes longer than a play
MOVES = (60, 120, 200)
SLOW_MOVES = 500
# Retries, and times in which consumers may not merge, end within a minute.
FINISH_MAX_S = 600.0
MODES = (Mode.GTID, Mode.GTID, Mode.FILE, Mode.MARIADB, Mode.DOMAINS)


def play(seed: int, transcript: Transcript | None = None) -> ReadWorld:
    """Play the history of a seed. Raises AssertionError, or any error of the rules."""
    rng = random.Random(seed)
    begin = scenario(rng, seed)
    large, queue_contents.LARGE_MIN = queue_contents.LARGE_MIN, begin.large_bytes
    try:
        world = ReadWorld(rng, begin, transcript or Transcript(kept=False))
        if begin.slow:
            moves(world, SLOW_MOVES, calm=True, manners=("crawling", "keen", "keen"))
        else:
            moves(world, rng.choice(MOVES), calm=rng.random() < 0.3)
        finish(world)
    finally:
        queue_contents.LARGE_MIN = large
    return world


def trace(seed: int) -> list[str]:
    transcript = Transcript(kept=True)
    play(seed, transcript)
    assert transcript.lines is not None
    return transcript.lines


# -- at first -------------------------------------------------------------------------------------------------


def scenario(rng: random.Random, seed: int) -> Scenario:
    mode = MODES[seed % len(MODES)]
    log = seed // SEEDS_PER_LOG
    histories = [history(mode, log, life) for life in range(2)]
    limits = ClientLimits(
        merge_bytes_max=rng.choice((1, 1500, 6000, 1 << 20)),
        queues_bytes_max=rng.choice((0, 0, 0, 30_000, 60_000, 200_000)),
        failover_wait_s=rng.choice((2.0, 60.0)),
    )
    written = rng.choice((0, 5, 20, 30, 100))
    specs, stored = [], {}
    together = rng.random() < 0.3  # all consumers begin near the end of the log
    for n in range(rng.choice((1, 2, 2, 3, 3, 4, 6))):
        spec = random_spec(rng, f"c{n}", histories[0], written)
        specs.append(spec)
        if rng.random() < (1.0 if together else 0.5):
            stored[spec.name] = random_stored(rng, histories[0], written, together=together)
    if slow := rng.random() < 0.06:
        histories = [history(mode, log, 0, long=True)]
        limits, stored, written = ClientLimits(), {}, 2
        specs = [slow_spec(rng, f"c{n}", limit) for n, limit in enumerate((1, 1 << 22, 1 << 22))]
    elif rng.random() < 0.08:  # no queue may be evicted, even if a transaction does not fit
        limits = replace(limits, queues_bytes_max=rng.choice((1, 4000, 30_000)))
        specs = [replace(spec, on_queue_full=OnQueueFull.WAIT) for spec in specs]
    if histories[0].lower_case:
        specs = in_random_case(specs, seed)
    large_bytes = rng.choice((1 << 20, 1 << 20, 2000))
    return Scenario(mode, log, histories, specs, stored, limits, written, large_bytes, slow)


def in_random_case(specs: list[ConsumerSpec], seed: int) -> list[ConsumerSpec]:
    """Returns the consumers with their names of databases and tables in random case."""
    speller, out = random_speller(seed), list[ConsumerSpec]()
    for spec in specs:
        wanted = spelled(wanted_by(spec), speller)
        out.append(
            replace(
                spec,
                databases=wanted.databases,
                tables=wanted.tables,
                exclude_tables=wanted.exclude_tables,
            )
        )
    return out


def slow_spec(rng: random.Random, name: str, limit: int) -> ConsumerSpec:
    """Returns a consumer for a play in which the daemon repeatedly detaches one consumer."""
    databases = ("shop", "billing", "crm")
    return ConsumerSpec(name, databases, None, limit, Earliest(), wait_max_s=rng.choice((0.5, 2.0)))


def random_spec(rng: random.Random, name: str, log: History, written: int) -> ConsumerSpec:
    wanted = random_wanted(rng)
    return ConsumerSpec(
        name,
        wanted.databases,
        wanted.tables,
        rng.choice((1, 1, 20_000, 40_000, 1 << 22)),
        random_start(rng, log, written),
        wait_max_s=rng.choice((0.0, 0.5, 2.0, 10.0)),
        on_queue_full=rng.choice((OnQueueFull.DETACH,) * 4 + (OnQueueFull.WAIT,)),
        on_purged=rng.choice((OnPurged.FAIL, OnPurged.FAIL, OnPurged.LATEST)),
        exclude_tables=wanted.exclude_tables,
    )


def random_start(rng: random.Random, log: History, written: int) -> Start:
    at = rng.choice(("earliest", "earliest", "latest", "set", "timestamp"))
    executed = log.transactions[: min(written, len(log.transactions))]
    if at == "timestamp":
        moment = rng.choice(log.transactions).commit_us + rng.choice((-1, 0, 1))
        return AtTime(moment)
    if at != "set":
        return Earliest() if at == "earliest" else Latest()
    if log.mode is Mode.GTID:
        return AtGtid(str(gtid_set(t for t in executed if rng.random() < 0.6)))
    if log.mode is Mode.DOMAINS:
        return AtGtid(log.after(rng.randrange(len(executed) + 1)).gtid)
    if not executed:
        return Earliest()
    first = rng.choice(executed)
    return AtFile(first.file, first.start)


def random_stored(rng: random.Random, log: History, written: int, *, together: bool) -> Progress:
    """Returns a stored position within the written transactions; with GTIDs, its set may contain any of the
    transactions.

    The creation time is negative if a transaction of the set lies after the file and offset.
    """
    executed = log.transactions[: min(written, len(log.transactions))]
    low = max(0, len(executed) - 3) if together else 0
    k = rng.randrange(low, len(executed) + 1)
    more: list[Transaction] = []
    if log.mode is Mode.GTID and rng.random() < 0.4:
        more = [t for t in executed[k:] if rng.random() < 0.3]
    position = log.after(k, more)
    created = {f.name: f.created for f in log.logs[0].files}[position.file]
    known = rng.choice((0, created, created, created))
    return Progress(position, position, -known if more else known)


# -- what happens ---------------------------------------------------------------------------------------------


MANY = ("keen", "keen", "lazy", "crawling", "stuck")


def moves(
    world: ReadWorld, count: int, *, calm: bool, manners: tuple[str, ...] | None = None
) -> None:
    """Make moves. `calm`: no faults, so that a play lasts; `manners`: of the readers, for the whole play."""
    rng = world.rng
    for n, reader in enumerate(world.readers.values()):
        reader.manner = manners[n] if manners else rng.choice(MANY)
    for _ in range(count):
        world.now += 0.005
        if (world.survey_ordered or world.surveyed is not None) and rng.random() < 0.3:
            world.survey_or_tell()
        choice = rng.random()
        if choice < 0.5:
            link = world.some_link()
            if link is None or not world.advance(link):
                world.pass_time(0.3)
        elif choice < 0.72:
            world.act(rng.choice(list(world.readers)))
        elif choice < 0.80:
            world.pass_time(rng.choice((0.1, 0.5, 2.0, 6.0, 6.0, 30.0)))
        elif manners:
            world.grow(1)
        else:
            rarer_move(world, choice, calm=calm)


def rarer_move(world: ReadWorld, choice: float, *, calm: bool) -> None:
    """Make one of the rarer moves. `choice`: a random number 0.8..1, which selects the move."""
    rng = world.rng
    name = rng.choice(list(world.readers))
    if choice < 0.87:
        world.grow(rng.choice((1, 1, 2, 6)))
    elif choice < 0.90:
        world.change_manner(name)
    elif choice < 0.93:
        world.seek(name)
    elif not calm:
        fault(world, (choice - 0.93) / 0.07)
    elif choice < 0.95:
        world.crash()


def fault(world: ReadWorld, choice: float) -> None:
    """Cause a fault or a rare event. `choice`: a random number 0..1, which selects the fault."""
    rng = world.rng
    name, link = rng.choice(list(world.client.consumers)), world.some_link()

    def on_link(move: Callable[..., None], *more: ErrorKind) -> Callable[[], None]:
        return partial(move, link, *more) if link else (lambda: None)

    moves: tuple[tuple[int, Callable[[], None]], ...] = (
        (12, on_link(world.cut)),
        (5, on_link(world.cut, ErrorKind.DUPLICATE_SERVER_UUID)),
        (5, on_link(world.cut, ErrorKind.ACCESS_DENIED)),
        (6, on_link(world.stall)),
        (6, on_link(world.silence)),
        (6, on_link(world.garble)),
        (6, world.fail_over),
        (10, world.fail_over_too_early),
        (6, world.restart_server),
        (8, world.purge),
        (6, lambda: lives.reset(world)),
        (5, lambda: lives.restore(world)),
        (8, world.survey_or_tell),
        (8, lambda: world.fence(name)),
        (8, lambda: world.leap(name)),
        (6, lambda: world.remove(name)),
        (6, lambda: world.add(changed=rng.random() < 0.5)),
        (8, lambda: world.revive(name)),
        (4, world.fill_disk),
        (6, lambda: world.store_slowly(name)),
        (10, world.crash),
    )
    at = choice * sum(weight for weight, _ in moves)
    for weight, move in moves:
        if at < weight:
            move()
            return
        at -= weight


# -- how it ends ----------------------------------------------------------------------------------------------


def finish(world: ReadWorld, rounds: int = 400) -> None:
    """End the faults, and let all readers read until all readers have everything and one connection is left."""
    settle(world)
    until = world.now + FINISH_MAX_S
    for _ in range(rounds):
        if world.now > until:
            break
        progress = False
        for link in list(world.links.values()):
            while world.links.get(link.number) is link and world.advance(link):
                progress = True
        if world.survey_ordered or world.surveyed is not None:
            world.answer()
            progress = True
        for name in list(world.client.consumers):
            progress |= read_on(world, name)
        if not progress:
            if arrived(world):
                return
            world.skip_time()
    raise AssertionError(f"a reader has not got everything: {state(world)}")


def read_on(world: ReadWorld, name: str) -> bool:
    """Poll and acknowledge. Returns True if the poll or the acknowledgement has moved the reader or the consumer."""
    queue, reader = world.client.consumers[name].queue, world.readers[name]
    before = (queue.acknowledged.seq, reader.positions[-1:])
    world.poll(name, bytes_max=1 << 22, ack=True)
    world.complete(name)
    return before != (queue.acknowledged.seq, reader.positions[-1:])


def settle(world: ReadWorld) -> None:
    for server in world.servers:
        server.grow(1000)
    world.refuses_until = world.disk_full_until = 0.0
    for link in world.links.values():
        connection = link.connection
        if connection is not None:
            connection.stalled_until = 0.0  # type: ignore[attr-defined]
            connection.feed.spoil_at = None
            connection.sizes = SIZES[0]
    while world.shelved:
        world.add(changed=False)
    world.settled = True


def arrived(world: ReadWorld) -> bool:
    """True if every reader has everything, and one connection is left. A failed consumer is made to begin again."""
    done = True
    for name, consumer in list(world.client.consumers.items()):
        if consumer.failed:
            # Before a person would act, the daemon makes a survey, which may find that the consumer's server is back.
            world.survey()
            world.tell_survey()
            if world.client.consumers[name].failed and not world.returns(name):
                world.revive(name)
            done = False
        elif not at_the_end(world, name):
            follow_refusal(world, name)
            done = False
    return done and len(world.client.dispatchers) == 1 == len(world.links)


def follow_refusal(world: ReadWorld, name: str) -> None:
    """Follow the remedy of a refused session: if a reader is ahead of the queue, at a position that the server does not
    have, it opens a session without a position. Otherwise the reader would never read the queued transactions, and the
    daemon would read no further."""
    consumer, reader = world.client.consumers[name], world.readers[name]
    queue = consumer.queue
    if not consumer.started or not reader.positions:
        return
    is_ahead = reader.position.order > (queue.epoch, queue.queued.seq)
    if is_ahead and not world.resume(name, reader.position):
        world.fence(name)


def at_the_end(world: ReadWorld, name: str) -> bool:
    """True if the reader has all transactions that match its filter, and the consumer's covered position is the end of
    the log."""
    reader, history = world.readers[name], world.history
    if not reader.positions or name not in world.opened or reader.history is not history:
        return False
    covered = world.store[name].covered
    if covered.seq < end_seq(world):
        return False
    behind = history.between(reader.position, covered)
    return not any(history.share(0, i, reader.wanted, 0, 0) for i in behind)


def end_seq(world: ReadWorld) -> int:
    if world.scenario.mode.by_gtid:
        return len(world.history.parse(world.server.stop.executed))
    last = world.history.transactions[-1]
    return packed_seq(last.file, last.end)


def state(world: ReadWorld) -> str:
    dispatchers = {
        d.number: (str(d.phase), [c.name for c in d.attached], d.read)
        for d in world.client.dispatchers.values()
    }
    readers = {
        name: (reader.positions[-1:], world.client.consumers[name].dispatcher)
        for name, reader in world.readers.items()
        if name in world.client.consumers
    }
    return f"dispatchers {dispatchers}, readers {readers}, links {list(world.links.values())}"
