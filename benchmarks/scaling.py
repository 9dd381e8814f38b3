"""The cost of each additional byte, transaction, consumer, connection, and interval of a GTID set.

Most of these slopes are computed from what other parts have measured in the same run. If a part did not run, its slopes
are missing. The effect of large GTID sets is measured here: a daemon reads one small log on servers whose executed sets
have different numbers of intervals.
"""

from __future__ import annotations

from benchmarks import fan_out, many_sources, transport
from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Report, Run
from benchmarks.logs import OLTP, generate, server_with

PART = "scaling"
_CONSUMER = "bench"
_INTERVALS = (1, 1000)
_FOREIGN = "11111111-2222-3333-4444-555555555555"
_ROWS = 20_000


def measure(run: Run) -> None:
    _measure_gtid_sets(run)
    for what, unit, value in slopes(run.report):
        run.series(PART, "", what, "CPU" if unit.startswith("CPU") else "memory", unit, [value])


def slopes(report: Report) -> list[tuple[str, str, float]]:
    """Returns (what, unit, value) of each slope whose measurements the report contains."""
    logs = {log.name: log for log in report.logs}
    cpu = {name: report.median(transport.PART, name, transport.DAEMON, "CPU") for name in logs}
    found: list[tuple[str, str, float]] = []
    bulk_s, oltp_s = cpu.get("bulk"), cpu.get("OLTP")
    if bulk_s is not None:
        per_byte = bulk_s / logs["bulk"].bytes
        found.append(("a gigabyte of log", "CPU s", per_byte * 1e9))
        if oltp_s is not None:
            oltp = logs["OLTP"]
            beyond = (oltp_s - oltp.bytes * per_byte) / oltp.transactions
            found.append(("a million transactions, beyond their bytes", "CPU s", beyond * 1e6))
    medians = {
        name: report.median(fan_out.PART, "mixed64", name, fan_out.QUEUED)
        for name in (fan_out.ONE, fan_out.EACH, fan_out.IDLE)
    }
    one, each, idle = medians[fan_out.ONE], medians[fan_out.EACH], medians[fan_out.IDLE]
    if one and each and idle:
        millions = logs["mixed64"].transactions / 1e6
        a_million = "for a million transactions"
        found.append((f"a further consumer, {a_million}", "CPU s", (each - one) / 63 / millions))
        found.append((f"an idle consumer, {a_million}", "CPU s", (idle - one) / 500 / millions))
    return [*found, *_of_sources(report)]


def _of_sources(report: Report) -> list[tuple[str, str, float]]:
    def at(count: str, quantity: str) -> float | None:
        return report.median(many_sources.PART, "", f"{count} sources", quantity)

    cores, fewer_cores = at("1,000", "CPU"), at("100", "CPU")
    memory, less_memory = at("1,000", "resident memory"), at("100", "resident memory")
    if cores is None or fewer_cores is None or memory is None or less_memory is None:
        return []
    return [
        ("a connection of 1 KB/s, in an hour", "CPU s", (cores - fewer_cores) / 900 * 3600),
        ("a connection of 1 KB/s", "MB", (memory - less_memory) / 900),
    ]


def _measure_gtid_sets(run: Run) -> None:
    for intervals in _INTERVALS:
        rows = max(100, round(_ROWS * run.scale))
        cpu_s, polls = _read_with_intervals(run.rounds, intervals, rows)
        name = f"executed set of {intervals:,} further intervals"
        run.series("GTID sets", "OLTP", name, f"CPU, {rows:,} transactions", "s", cpu_s)
        run.series("GTID sets", "OLTP", name, "polls", "", polls)


def _read_with_intervals(rounds: int, intervals: int, rows: int) -> tuple[list[float], list[float]]:
    with server_with(OLTP, 2) as (server, _):
        foreign = ":".join(str(2 * number + 1) for number in range(intervals))
        server.execute(f"SET GLOBAL gtid_purged = '+{_FOREIGN}:{foreign}'")
        with MeasuredDaemon({_CONSUMER: consumer(server.port, OLTP.databases)}) as daemon:
            daemon.until_streaming()
            cpu_s, polls = [], []
            for number in range(rounds + 1):
                with daemon.readers([{"consumer": _CONSUMER, "after": None}]) as readers:
                    with daemon.stopped():
                        log = generate(server, OLTP, rows)
                    before = daemon.cpu_s
                    found = readers.read(log.seq_after)
                    if number:
                        cpu_s.append(daemon.cpu_s - before)
                        polls.append(found["polls"])
    return cpu_s, polls
