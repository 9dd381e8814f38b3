"""Measures how fast a log comes from the server to a reader, through the daemon and, for comparison, in simpler ways:

* `recv` alone (`benchmarks.drain`)
* a relay, which receives and sends each byte once (`benchmarks.relay`): the limit of any daemon
* a relay that also verifies and copies each byte: the limit of a daemon that keeps bytes for its readers
* the daemon: it verifies, routes and queues; an HTTP reader fetches, and acknowledges durably
* `mysqlbinlog --raw`, MySQL's own tool, which copies the log into a file

Each round measures all of them. The daemon's wall and CPU times begin with the first bytes at the reader, and end when
the reader's last bytes are acknowledged. So they do not include a login. The times of mysqlbinlog are those of the
whole program, including its start of some 20 ms. TLS is not used.
"""

from __future__ import annotations

from collections import defaultdict

from benchmarks import tools
from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import PASSWORD, USER, GeneratedLog
from benchmarks.processes import CommandFailed, run_module
from tests.servers import Instance

PART = "transport"
WIRE, RELAY, DAEMON, RAW = "recv", "relay", "daemon", "mysqlbinlog --raw"
CHECKED_RELAY = "relay that verifies and copies"
_CONSUMER = "bench"
# Targets by log: the smallest permitted ratio `mysqlbinlog --raw` ÷ daemon, the smallest permitted ratio relay ÷
# daemon, and the largest permitted ratio of the CPU times, daemon ÷ relay. For mixed64, only the CPU time has a target.
_RAW_TARGETS = {"bulk": 1.0, "OLTP": 4.0, "wide": 1.2, "blobs": 1.2}
_RELAY_TARGET = 0.7
_CPU_TARGETS = {"bulk": 2.0, "OLTP": 2.5, "mixed64": 2.5, "wide": 2.0, "blobs": 2.0}


def measure(run: Run, server: Instance, log: GeneratedLog) -> None:
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    settings = {_CONSUMER: consumer(server.port, log.databases)}
    with MeasuredDaemon(settings) as daemon:
        daemon.until_streaming()
        jobs = [{"consumer": _CONSUMER, "after": daemon.start_of(log)}]
        for number in range(run.rounds + 1):
            found = {
                WIRE: _program("drain", server, log),
                RELAY: _program("relay", server, log),
                CHECKED_RELAY: _program("relay", server, log, "checked"),
                DAEMON: daemon.read(jobs, log.seq_after),
            }
            usage = tools.raw(server.host, server.port, log)
            found[RAW] = {"seconds": usage.wall_s, "cpu_seconds": usage.cpu_s, "bytes": log.bytes}
            for subject, figures in found.items():
                if figures["bytes"] < log.bytes * 0.9:
                    raise CommandFailed(
                        f"{subject} read {figures['bytes']} of {log.bytes} bytes of {log.name}"
                    )
                if number:  # the first round warms caches and compiles kernels
                    wall[subject].append(figures["seconds"])
                    cpu[subject].append(figures["cpu_seconds"])
    wall_s = {
        subject: run.series(PART, log.name, subject, "wall", "s", rounds)
        for subject, rounds in wall.items()
    }
    cpu_s = {
        subject: run.series(PART, log.name, subject, "CPU", "s", rounds)
        for subject, rounds in cpu.items()
    }
    ratio = cpu_s[DAEMON] / cpu_s[RELAY]
    limit = _CPU_TARGETS[log.name]
    run.target(f"P1 {log.name} CPU", "daemon ÷ relay, CPU", ratio, "<=", limit)
    if log.name not in _RAW_TARGETS:
        return
    run.target(
        f"P1 {log.name}",
        "relay ÷ daemon, wall",
        wall_s[RELAY] / wall_s[DAEMON],
        ">=",
        _RELAY_TARGET,
    )
    run.target(
        f"P2 {log.name}",
        "mysqlbinlog --raw ÷ daemon, wall",
        wall_s[RAW] / wall_s[DAEMON],
        ">=",
        _RAW_TARGETS[log.name],
    )


def _program(module: str, server: Instance, log: GeneratedLog, *more: str) -> dict[str, float]:
    return run_module(module, server.host, server.port, USER, PASSWORD, log.file, *more)
