"""Measures the cost of consumers: 64 consumers that share a log, and 500 idle consumers beside one consumer with a
reader.

Three daemons follow one server. In each round they are stopped (SIGSTOP) while the server writes the log. Then they
continue, one after the other. So each daemon begins with the same log and with open sessions, and no other daemon runs
at the same time. Two CPU times are compared. The first one ends when the log is in the queues; the target is defined
for this time. The second one ends when readers have fetched and acknowledged the log; for 64 consumers, readers make 64
times as many calls.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.daemon import Json, MeasuredDaemon, Readers, consumer
from benchmarks.figures import Run
from benchmarks.logs import MIXED64, GeneratedLog, generate
from tests.servers import Instance

PART = "fan-out"
ONE, EACH, IDLE = "1 consumer", "64 consumers", "1 consumer and 500 idle"
_IDLE_CONSUMERS = 500
_EACH_TARGET, _IDLE_TARGET = 1.25, 1.3
_QUEUE = "256MiB"  # holds the whole log
QUEUED, DELIVERED = "CPU until queued", "CPU until acknowledged"


@dataclass(frozen=True, slots=True)
class Variant:
    """A daemon with these consumers. `readers`: the consumers that have a reader."""

    name: str
    consumers: dict[str, Json]
    readers: tuple[str, ...]


def measure(run: Run, server: Instance, log: GeneratedLog) -> None:
    """Measure on the log mixed64."""
    variants = _variants(server, log.databases)
    cpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        daemons = {}
        for variant in variants:
            daemon = stack.enter_context(MeasuredDaemon(variant.consumers))
            daemon.until_streaming()
            daemons[variant.name] = daemon
        for number in range(run.rounds + 1):
            for name, found in _round(server, log.rows, variants, daemons).items():
                if number:  # the first round only warms caches
                    for quantity, cpu_s in found.items():
                        cpu[name, quantity].append(cpu_s)
    medians = {key: run.series(PART, log.name, *key, "s", rounds) for key, rounds in cpu.items()}
    one = medians[ONE, QUEUED]
    run.target(
        "P3 64", "64 consumers ÷ 1, CPU until queued", medians[EACH, QUEUED] / one, "<=",
        _EACH_TARGET,
    )  # fmt: skip
    run.target(
        "P3 idle", "500 idle beside 1 ÷ 1, CPU until queued", medians[IDLE, QUEUED] / one, "<=",
        _IDLE_TARGET,
    )  # fmt: skip


def _variants(server: Instance, databases: tuple[str, ...]) -> tuple[Variant, ...]:
    together = {"all": consumer(server.port, databases, max_bytes_in_binlog_queue=_QUEUE)}
    idle = {
        name: consumer(server.port, [name])
        for name in (f"idle_{number:03}" for number in range(_IDLE_CONSUMERS))
    }
    each = {name: consumer(server.port, [name]) for name in databases}
    return (
        Variant(ONE, together, ("all",)),
        Variant(EACH, each, databases),
        Variant(IDLE, together | idle, ("all",)),
    )


def _round(
    server: Instance, rows: int, variants: tuple[Variant, ...], daemons: dict[str, MeasuredDaemon]
) -> dict[str, dict[str, float]]:
    """Returns the CPU seconds of each daemon, by quantity."""
    waiting: dict[str, tuple[ExitStack, Readers]] = {}
    with ExitStack() as stack:
        for variant in variants:
            daemon = daemons[variant.name]
            jobs: list[Json] = [{"consumer": name, "after": None} for name in variant.readers]
            readers = stack.enter_context(daemon.readers(jobs))
            standing = stack.enter_context(ExitStack())
            standing.enter_context(daemon.stopped())
            waiting[variant.name] = standing, readers
        written = generate(server, MIXED64, rows)
        spent = {}
        for name, (standing, readers) in waiting.items():
            daemon = daemons[name]
            standing.close()  # lets the daemon continue
            queued = daemon.cpu_s_until_queued(written.seq_after)
            before = daemon.cpu_s
            readers.read(written.seq_after)
            spent[name] = {QUEUED: queued, DELIVERED: queued + daemon.cpu_s - before}
            stack.enter_context(daemon.stopped())
    return spent
