"""Measures how long a client of the front waits for an answer while twenty clients with another token ask large
questions without a pause.

The question of the others has about as many bytes and items as the front accepts. The measured client asks a short
question every 10 ms. The other clients run in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from benchmarks.daemon import MeasuredDaemon, consumer
from benchmarks.figures import Run
from benchmarks.logs import OLTP, server_with
from dispatcher.front.client_session import QUESTION_BYTES_MAX
from tests.front.attacker import Attacker
from tests.front.fronted import until_greets
from tests.servers.ports import free_port

PART = "the front's questions"
_ASKERS = 20
_OWN, _OTHER = "token-of-the-measured-client", "token-of-the-attackers"
_SHORT = "SELECT @@version_comment LIMIT 1"
_ITEMS = 190  # of a question; about as many as it may have
_SEPARATOR = ",".ljust((QUESTION_BYTES_MAX - 100) // _ITEMS - len("@@version"))
_LARGE = f"SELECT {_SEPARATOR.join(['@@version'] * _ITEMS)}"
_PAUSE_S = 0.01
_TARGET_MS = 50.0


def measure(run: Run) -> None:
    asked = 2000 if run.full else 500
    port = free_port()
    with server_with(OLTP, 1000) as (server, log):
        consumers = {name: consumer(server.port, log.databases) for name in ("own", "other")}
        tokens = [
            {"token": _OWN, "consumers": ["own"]},
            {"token": _OTHER, "consumers": ["other"]},
        ]
        settings = {"front": {"listen": f"127.0.0.1:{port}"}, "api": {"tokens": tokens}}
        with MeasuredDaemon(consumers, **settings) as daemon:
            until_greets(port)
            _record(run, "without other clients", _waits_ms(port, asked))
            with _attack(port) as answered:
                _waits_ms(port, asked // 10)  # until all of the others ask
                cpu_s, began = daemon.cpu_s, time.monotonic()
                waits = _waits_ms(port, asked)
                share = (daemon.cpu_s - cpu_s) / (time.monotonic() - began)
            run.series(PART, "", "20 others", "large questions answered", "", [answered[0]])
            run.series(PART, "", "20 others", "the daemon's CPU", "% of a core", [100 * share])
            p99 = _record(run, "while 20 others ask", waits)
    run.target("P24", "an answer while 20 others ask, p99", p99, "<=", _TARGET_MS, "ms")


def _waits_ms(port: int, count: int) -> list[float]:
    found = []
    with Attacker(port).enter("own", _OWN) as client:
        for _ in range(count):
            began = time.perf_counter()
            client.ask(_SHORT)
            found.append((time.perf_counter() - began) * 1e3)
            time.sleep(_PAUSE_S)
    return found


@contextmanager
def _attack(port: int) -> Iterator[list[int]]:
    """Let other clients ask while the block runs. Yields a list, which after the block contains the number of questions
    that were answered."""
    command = [sys.executable, "-m", "benchmarks.front_askers", str(port), "other", _OTHER]
    command += [str(_ASKERS), _LARGE]
    answered: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n", "the others ask"
        yield answered
        printed, _ = process.communicate()
        answered.append(json.loads(printed)["answered"])


def _record(run: Run, subject: str, waits: list[float]) -> float:
    run.series(PART, "", subject, "an answer, p50", "ms", [quantiles(waits, n=100)[49]])
    return run.series(PART, "", subject, "an answer, p99", "ms", [quantiles(waits, n=100)[98]])
