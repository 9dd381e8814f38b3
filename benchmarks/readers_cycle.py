"""The targets for one reader: latency, the CPU time of a cycle, and the start. `benchmarks.cycle` measures them."""

from __future__ import annotations

from benchmarks import cycle
from benchmarks.figures import Run
from tests.daemon.harness import Daemon
from tests.servers import Instance

PART = "a reader's cycle"
_ONE_CALL = "read"
RATE = 1000  # transactions per second
_P50_TARGET_MS, _P99_TARGET_MS, _CPU_TARGET_MS = 1.0, 3.0, 0.5
_SECONDS = 5.0  # of each round
_START_TARGETS_S = {1: 0.8, 1000: 2.0}  # by number of consumers


def measure(run: Run) -> None:
    with cycle.measured_server() as (server, folder):
        with cycle.streaming_daemon(server, folder, tls=False) as daemon:
            cycles = max(100, round((3000 if run.full else 1000) * run.scale))
            rounds = [cycle.cost_of_cycles(daemon, server, cycles) for _ in range(run.rounds)]
            for name in cycle.CYCLES:
                costs = [cost.cpu_ms for found in rounds for cost in found if cost.name == name]
                cpu_ms = run.series(PART, "", name, "CPU for a cycle", "ms", costs)
                if name == _ONE_CALL:
                    run.target(
                        "P8b",
                        "CPU of a cycle of one transaction",
                        cpu_ms,
                        "<=",
                        _CPU_TARGET_MS,
                        "ms",
                    )
            bare = [cycle.cost_of_bare_calls(cycles).cpu_ms for _ in range(run.rounds)]
            run.series(PART, "", cycle.BARE, "CPU for a call", "ms", bare)
            _measure_latency(run, daemon, server)
        for count in list(_START_TARGETS_S)[: None if run.full else 1]:
            settings = cycle.settings_of(server, count, tls=False)
            starts = cycle.start_times(settings, folder / str(count), count, run.rounds)
            name = f"{count:,} consumers" if count > 1 else "1 consumer"
            ready_s = run.series(PART, "", name, "start until ready", "s", starts.ready_s)
            run.series(PART, "", name, "CPU until ready", "s", starts.cpu_s)
            run.target(f"P11 {count}", f"start, {name}", ready_s, "<", _START_TARGETS_S[count], "s")


def _measure_latency(run: Run, daemon: Daemon, server: Instance) -> None:
    found = [cycle.latency(daemon, server, _ONE_CALL, RATE, _SECONDS) for _ in range(run.rounds)]
    subject = f"{RATE:,} transactions per second"
    run.series(PART, "", subject, "written", "1/s", [one.per_s for one in found])
    run.series(
        PART, "", subject, "the daemon's share of a core", "", [one.cpu_share for one in found]
    )
    p50 = run.series(
        PART, "", subject, "commit to reader, p50", "ms", [one.p50_ms for one in found]
    )
    p99 = run.series(
        PART, "", subject, "commit to reader, p99", "ms", [one.p99_ms for one in found]
    )
    run.target("P8 p50", "commit to the reader", p50, "<=", _P50_TARGET_MS, "ms")
    run.target("P8 p99", "commit to the reader", p99, "<=", _P99_TARGET_MS, "ms")
