"""Many takeovers of all kinds, one after another, under load: each consumer gets the rows that the server's own tool
prints for the consumer's filter.

`TAKEOVERS=100` makes 100 takeovers. The seed of a run is `COMMIT_SEED`, which is printed.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon.conftest import MakePair, Source
from tests.daemon.harness import Json, tip_seq, until
from tests.daemon.pair import LONG_LEASE_S, reach_state_through
from tests.daemon.steady_reader import PATIENCE_S, Habit, SteadyReader, order
from tests.daemon.takeovers import Takeovers, drawn
from tests.faults import judge
from tests.faults.churn import churn, create
from tests.faults.histories import History
from tests.servers import Instance
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.support.commit_seed import commit_seed
from tests.support.proxy import Proxy
from tests.support.repeated import Repeated, repeated

TAKEOVERS = int(os.environ.get("TAKEOVERS", "30"))
CONSUMERS = 12
KINDS_OF_STATE: tuple[Kind, ...] = ("mariadb118", "mysql97")
SETTLED_S = 300.0  # time limit until all readers have everything that was written before a takeover

# Two tables in each database, without DDL: the tool cannot tell which table a DDL statement concerns.
PLAIN = ("c0", "c1")
TABLES = ("churn", "beside")
FILTERS: tuple[Json, ...] = (
    {"tables": ["c0.churn"]},
    {"tables": ["*.beside"]},
    {"exclude_tables": ["c1.beside", "c0.ch*"]},
)
FILTERED = (["c0.churn"], ["c0.beside", "c1.beside"], ["c0.beside", "c1.churn"])


@dataclass
class Consumer:
    """`tables`: the tables of the consumer's filter, as `database.table`."""

    name: str
    databases: list[str]
    tables: list[str]
    settings: Json


@pytest.fixture(scope="module")
def state_server(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory(random.Random(commit_seed()).choice(KINDS_OF_STATE))


@pytest.fixture
def histories(source_server: Instance) -> Iterator[list[History]]:
    made = [History(random.Random(commit_seed() + n), source_server, n) for n in range(2)]
    yield made
    for history in made:
        history.abandon()


def declared(
    chance: random.Random, source: Source, server: Instance, databases: list[str], start: str
) -> list[Consumer]:
    """Returns consumers that begin after the GTID set `start`. Some consumers have a filter of tables from `FILTERS`;
    the other consumers read all tables of some databases."""
    consumers: list[Consumer] = []
    for number in range(CONSUMERS):
        if number < len(FILTERS):
            chosen, tables, more = list(PLAIN), FILTERED[number], FILTERS[number]
        else:
            chosen, tables, more = chance.sample(databases, chance.randint(1, 3)), [], {}
        settings = source(
            server, *chosen, start={"gtid": start}, heartbeat_milliseconds=300, **more
        )
        consumers.append(Consumer(f"r{number}", chosen, tables, settings))
    return consumers


def executed_set(server: Instance) -> str:
    return str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")


@contextmanager
def writing(server: Instance, histories: list[History]) -> Iterator[list[Repeated]]:
    """Write random histories, and small transactions in tables without DDL, until the block ends."""
    with ExitStack() as stack:
        for seed, database in enumerate(PLAIN):
            stack.enter_context(churn(server, [database], tables=TABLES, seed=seed, pause_s=0.1))
        yield [
            stack.enter_context(repeated(history.step, "history", pause_s=0.2))
            for history in histories
        ]


@contextmanager
def reading(readers: list[SteadyReader]) -> Iterator[list[Repeated]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(repeated(reader.step, reader.consumer, pause_s=0.2))
            for reader in readers
        ]


def until_acknowledged(
    server: Instance, readers: Sequence[SteadyReader], threads: Sequence[Repeated]
) -> None:
    """Wait until all readers have acknowledged what the server has executed by now."""
    seq = tip_seq(server)

    def behind() -> list[SteadyReader]:
        return [reader for reader in readers if not reader.has_acknowledged(seq)]

    def acknowledged() -> bool:
        for thread in threads:
            thread.check()
        return not behind()

    try:
        until(acknowledged, f"all readers have acknowledged {seq}", timeout_s=SETTLED_S)
    except AssertionError as error:
        for each in behind():
            error.add_note(f"{each.consumer}, {each.habit}: {each.acknowledged}, {each.refusals}")
        raise


@pytest.mark.deep
@pytest.mark.timeout(600 + 120 * TAKEOVERS)
def test_readers_lose_nothing_in_many_takeovers(
    make_pair: MakePair,
    source: Source,
    source_server: Instance,
    state_server: Instance,
    histories: list[History],
    tmp_path: Path,
) -> None:
    server, seed = source_server, commit_seed()
    chance = random.Random(seed)
    print(f"\nCOMMIT_SEED={seed} TAKEOVERS={TAKEOVERS}, the state is on {state_server.kind}")
    create(server, PLAIN, TABLES)
    databases = [*PLAIN, *(name for history in histories for name in history.databases)]
    start = executed_set(server)
    with Proxy(server.port) as to_source, ExitStack() as stack:
        consumers = declared(chance, source, server, databases, start)
        for each in consumers:
            each.settings["mysql"] = f"{each.settings['mysql'].rpartition(':')[0]}:{to_source.port}"
        settings = {each.name: each.settings for each in consumers}
        pair = make_pair(LONG_LEASE_S, begun=False, consumers=settings)
        to_state = {}
        for daemon in (pair.a, pair.b):
            daemon.timeout_s = PATIENCE_S
            to_state[daemon] = stack.enter_context(Proxy(state_server.port))
            reach_state_through(daemon, to_state[daemon].port)
        pair.start()
        habits = itertools.cycle(Habit)
        readers = [
            SteadyReader(pair.a, pair.b, consumer=each.name, habit=next(habits))
            for each in consumers
        ]
        takeovers = Takeovers(pair, to_state, to_source, readers, chance)
        with reading(readers) as reading_threads:
            with writing(server, histories) as writing_threads:
                take_over(takeovers, drawn(chance, TAKEOVERS), reading_threads + writing_threads)
            for history in histories:
                history.finish()
            until_acknowledged(server, readers, reading_threads)
        for reader in readers:
            # The server may have begun another file since then, so the files and offsets may differ.
            stored = order(pair.stored(reader.consumer))
            assert stored == order(reader.acknowledged) == order(reader.reader.position)
        for daemon in (pair.a, pair.b):
            daemon.stop()
    check(server, start, consumers, readers, tmp_path)


def take_over(takeovers: Takeovers, names: list[str], threads: list[Repeated]) -> None:
    """Cause each takeover, and wait until all readers continue and the server sends one dump."""
    pair, readers = takeovers.pair, takeovers.readers
    until_acknowledged(pair.server, readers, threads)
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        getattr(takeovers, name)()
        took_s = time.monotonic() - began
        until_acknowledged(pair.server, readers, threads)
        caught_up_s = time.monotonic() - began
        pair.until_one_dump()
        for reader in readers:
            acknowledged = order(reader.acknowledged)  # must be read before the stored position
            assert acknowledged <= order(pair.stored(reader.consumer)), reader.consumer
        print(
            f"{number}. {name}: {took_s:.1f} s, all readers after {caught_up_s:.1f} s,"
            f" term {pair.lease()[1]}",
            flush=True,
        )


def check(
    server: Instance,
    start: str,
    consumers: list[Consumer],
    readers: list[SteadyReader],
    folder: Path,
) -> None:
    """Compare the acknowledged data of each reader with the output of the server's own tool for the consumer's
    databases and tables."""
    logged = judge.executed(server, start)
    transactions = 0
    for consumer, reader in zip(consumers, readers, strict=True):
        wanted = judge.expected(logged, consumer.databases, consumer.tables)
        found = judge.got(judge.delivered(server, reader.chunks, folder))
        if differing := judge.difference(wanted, found):
            pytest.fail(f"{consumer.name}, {reader.habit}, {consumer.settings}:\n{differing}")
        assert len(wanted) > TAKEOVERS, consumer.name
        transactions += len(wanted)
    refusals = sum((reader.refusals for reader in readers), Counter[str]())
    print(f"{transactions} transactions judged by {judge.tool_version(server)}; {dict(refusals)}")
