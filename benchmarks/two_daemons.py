"""The targets for two daemons with one state in a database: takeovers, acknowledgements, and what the database does.

The state is on a server of its own, with the durability of MySQL's defaults.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks import cycle
from benchmarks.figures import Run
from benchmarks.many_readers import ManyReaders
from benchmarks.state_server import Meter, StateDatabase, Work, durable_server
from benchmarks.takeover import measured_pair, takeovers
from tests.servers import Instance

PART = "two daemons"
KILLED, STOPPED = "the leader is killed", "the leader gets SIGTERM"
UNTIL_ROWS = "until a reader has rows of the other daemon"
POLL = "poll, binlog"
IN_FILE, IN_DATABASE = "state in SQLite", "state in MySQL"
CYCLE_P50 = "p50 of a cycle"
_KILLED_TARGETS_S = {"p50": 5.0, "max": 10.0}
_STOPPED_TARGETS_S = {"p50": 1.0, "max": 1.0}
_ACKNOWLEDGE_TARGET_MS = 3.0
_CONSUMERS = 1000
_ACKNOWLEDGEMENTS_PER_S = 100


def measure(run: Run) -> None:
    with cycle.measured_server() as (server, folder), durable_server() as store:
        _measure_takeovers(run, server, store, folder)
        _measure_acknowledgements(run, server, store, folder)
        _measure_many(run, server, store, folder)


# -- takeovers ------------------------------------------------------------------------------------------------


def _measure_takeovers(run: Run, server: Instance, store: Instance, folder: Path) -> None:
    count = max(2, round((20 if run.full else 5) * run.scale))
    state = StateDatabase.make(store, "takeovers")
    settings = cycle.settings_of(server, 1, tls=False)
    with measured_pair(server, state, folder / "takeovers", settings) as pair:
        for name, by, subject, targets_s in (
            ("P14", signal.SIGKILL, KILLED, _KILLED_TARGETS_S),
            ("P15", signal.SIGTERM, STOPPED, _STOPPED_TARGETS_S),
        ):
            seconds = takeovers(pair, server, by, count)
            p50 = run.series(PART, "", subject, UNTIL_ROWS, "s", seconds)
            for of, value in (("p50", p50), ("max", max(seconds))):
                what = f"{subject}, {UNTIL_ROWS}"
                run.target(f"{name} {of}", what, value, "<", targets_s[of], "s")


# -- acknowledgements -----------------------------------------------------------------------------------------


def _measure_acknowledgements(run: Run, server: Instance, store: Instance, folder: Path) -> None:
    """Measure cycles of one transaction with both kinds of states, in alternating rounds."""
    cycles = max(100, round((1000 if run.full else 300) * run.scale))
    state = StateDatabase.make(store, "cycles")
    found: dict[tuple[str, str], list[float]] = {}
    with (
        cycle.streaming_daemon(server, folder / "file", tls=False) as in_file,
        cycle.streaming_daemon(
            server, folder / "database", tls=False, state=state.section
        ) as in_database,
    ):
        for _ in range(run.rounds):
            for calls in cycle.CYCLES:
                for where, daemon in ((IN_FILE, in_file), (IN_DATABASE, in_database)):
                    times = cycle.times_of_cycles(daemon, server, calls, cycles)
                    found.setdefault((where, calls), []).append(median(times))
    p50 = {
        (where, calls): run.series(PART, "", f"{where}: {calls}", CYCLE_P50, "ms", times)
        for (where, calls), times in found.items()
    }
    more_ms = p50[IN_DATABASE, POLL] - p50[IN_FILE, POLL]
    run.target(
        "P16", f"{CYCLE_P50}, state in MySQL, more than in SQLite", more_ms, "<=", _ACKNOWLEDGE_TARGET_MS,
        "ms",
    )  # fmt: skip


# -- very many consumers that do nothing ------------------------------------------------------------------------


def _measure_many(run: Run, server: Instance, store: Instance, folder: Path) -> None:
    count = max(2, round((_CONSUMERS if run.full else _CONSUMERS // 10) * run.scale))
    subject = f"{count:,} consumers"
    state = StateDatabase.make(store, "many")
    settings = cycle.settings_of(server, count, tls=False)
    starts = cycle.start_times(
        {**settings, "state": state.section}, folder / "starts", count, run.rounds
    )
    run.series(PART, "", subject, "start until ready", "s", starts.ready_s)
    run.series(PART, "", subject, "CPU until ready", "s", starts.cpu_s)
    with ExitStack() as stack:
        pair = stack.enter_context(measured_pair(server, state, folder / "many", settings))
        cycle.until_all_stream(pair.a.api, count)
        meter = stack.enter_context(state.meter())
        with _counted(meter) as opening:
            readers = stack.enter_context(ManyReaders(pair.a.port, list(settings["consumers"])))
        run.series(PART, "", subject, "opening all sessions", "s", [opening[0].seconds])
        _measure_at_once(run, server, meter, readers, subject, count)
        _measure_at_rate(run, server, meter, readers, subject)
        _measure_idle(run, meter, readers, subject)


def _measure_at_once(
    run: Run, server: Instance, meter: Meter, readers: ManyReaders, subject: str, count: int
) -> None:
    found = []
    for _ in range(run.rounds):
        cycle.write(server, 1)
        readers.read()
        with _counted(meter) as work:
            readers.acknowledge()
        found += work
    subject = f"{subject} at once"
    per_save = [count / max(1, work.saves) for work in found]
    run.series(PART, "", subject, "acknowledgements in a transaction of the state", "", per_save)
    rates = [count / work.seconds for work in found]
    run.series(PART, "", subject, "acknowledgements", "1/s", rates)


def _measure_at_rate(
    run: Run, server: Instance, meter: Meter, readers: ManyReaders, subject: str
) -> None:
    found, laps = [], []
    for _ in range(run.rounds):
        cycle.write(server, 1)
        readers.read()
        with _counted(meter) as work:
            laps.append(readers.acknowledge_at_rate(_ACKNOWLEDGEMENTS_PER_S))
        found += work
    subject = f"{subject}, {_ACKNOWLEDGEMENTS_PER_S} acknowledgements per second"
    run.series(PART, "", subject, "p50 of an acknowledgement", "ms", map(median, laps))
    p99 = [quantiles(lap, n=100)[98] for lap in laps]
    run.series(PART, "", subject, "p99 of an acknowledgement", "ms", p99)
    _record_work(run, subject, found)


def _measure_idle(run: Run, meter: Meter, readers: ManyReaders, subject: str) -> None:
    """All readers wait, and nothing is written."""
    seconds = 10.0 if run.full else 4.0
    found = []
    for _ in range(run.rounds):
        with _counted(meter) as work:
            readers.wait(seconds)
        found += work
    subject = f"{subject}, all idle"
    _record_work(run, subject, found)
    run.series(
        PART, "", subject, "bytes of the server's log", "1/s",
        [work.log_bytes / work.seconds for work in found],
    )  # fmt: skip
    saves = sum(work.saves for work in found)
    run.target("P17", "an idle pair's transactions besides renewals", saves, "<=", 0)


def _record_work(run: Run, subject: str, found: list[Work]) -> None:
    for quantity, rates in (
        ("transactions of the state's server", [work.transactions for work in found]),
        ("transactions besides renewals", [work.saves for work in found]),
        ("statements of the state's server", [work.statements for work in found]),
    ):
        per_s = [value / work.seconds for value, work in zip(rates, found, strict=True)]
        run.series(PART, "", subject, quantity, "1/s", per_s)


@contextmanager
def _counted(meter: Meter) -> Iterator[list[Work]]:
    """Count the work of the state's server during the block, and append it to the list that is yielded."""
    found: list[Work] = []
    before = meter.count()
    yield found
    found.append(meter.count().since(before))
