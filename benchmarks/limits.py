"""What limits a promise that a run has not kept: why, which figures of the same run show it, and what would be next.

`make bench` prints it for each promise that was measured and not kept, and so does the report's page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.figures import Report, Target

_LOG = "{log}"  # in evidence: the log that the promise is about


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series of the same run: its part, log, subject and quantity."""

    part: str
    log: str
    subject: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Limit:
    """`reason`: why the promise is not kept; `evidence`: what shows it; `next`: what would come nearer to it."""

    reason: str
    next: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """A promise that was not kept. `evidence`: (what, value, unit) of this run."""

    target: Target
    limit: Limit
    evidence: list[tuple[str, float, str]]


def _transport(subject: str, quantity: str) -> Evidence:
    return Evidence("transport", _LOG, subject, quantity)


_BYTES = Limit(
    "each byte is verified, copied into the queue and sent by one thread, while the relay only receives and sends"
    " it; of large rows a quarter of the time is the copy into the queue, a third receiving, verifying and sending, and"
    " the rest Python for each batch and each answer",
    "let a segment refer to the receive buffer, so that a large row is not copied; fewer instructions of Python for"
    " each batch",
    (
        _transport("relay", "CPU"),
        _transport("relay that verifies and copies", "CPU"),
        _transport("daemon", "CPU"),
    ),
)

LIMITS: Mapping[str, Limit] = {
    "P1": _BYTES,
    "P2": Limit(
        "mysqlbinlog writes what it receives, and verifies nothing; a transaction of one row costs the daemon its"
        " index and its part of a poll besides",
        "as for the relay; for small transactions, fewer instructions of Python for each batch",
        (
            _transport("mysqlbinlog --raw", "wall"),
            _transport("daemon", "wall"),
            _transport("relay that verifies and copies", "wall"),
        ),
    ),
    "P3": Limit(
        "some 20,000 instructions of Python for each consumer that gets something of a batch",
        "the counts of all queues in arrays, so that no Python runs for a consumer",
        (
            Evidence("fan-out", _LOG, "1 consumer", "CPU until queued"),
            Evidence("fan-out", _LOG, "64 consumers", "CPU until queued"),
        ),
    ),
    "P5": Limit(
        "the walk over the rows takes a quarter of bulk; OLTP pays for an index of six events, and their checksums,"
        " for each row",
        "index and rows in one pass over the bytes",
        (
            Evidence("decoding", _LOG, "to Arrow", "rows per CPU second"),
            Evidence("decoding", _LOG, "mysqlbinlog -v", "rows per CPU second"),
        ),
    ),
    "P8": Limit(
        "two cores run the writer, the server, the daemon and the reader; each waits for a core",
        "measure with a core for each of them; fewer instructions for a cycle",
        (Evidence("a reader's cycle", "", "read", "CPU for a cycle"),),
    ),
    "P8b": Limit(
        "acknowledging takes a quarter, of which a quarter is the hand-over to the thread that stores; no function"
        " takes more than 3 % by itself",
        "fewer calls of the system in the store: it asks for the state of its files at each commit",
        (
            Evidence(
                "a reader's cycle", "", "a call of a server that does nothing", "CPU for a call"
            ),
        ),
    ),
    "P9": Limit(
        "what is not a queue: Python's modules, numba, and LLVM's library",
        "load no numba where all kernels are kept",
        (Evidence("memory", "", "idle", "resident"),),
    ),
    "P10": Limit(
        "the side dispatcher and the main one share the core of the event loop",
        "as for the relay",
        (Evidence("catching up", "wide", "recv", "rate"),),
    ),
    "P11": Limit(
        "importing the daemon's modules and numba",
        "import nothing for the log that only a terminal needs, such as rich",
        (Evidence("a reader's cycle", "", "1 consumer", "CPU until ready"),),
    ),
    "P12": Limit(
        "each second each connection wakes the loop and makes a batch of one transaction, with the costs of a batch",
        "fewer instructions of Python for each batch",
        (Evidence("many sources", "", "100 sources", "CPU"),),
    ),
    "P13": Limit(
        "the start, which imports numba, numpy and pydantic; in the figures of before the kernels for text, also an"
        " object in Python for each event",
        "import the parsers of rare events when one comes; parse the arguments without pydantic",
        (
            Evidence("inspect", _LOG, "inspect of an empty file", "user CPU"),
            Evidence("inspect", _LOG, "mysqlbinlog -v", "user CPU"),
        ),
    ),
    "mirror": Limit(
        "Spark's tasks, Delta's commits and MySQL share two cores",
        "a machine with more cores; docs/performance.md has the phases",
    ),
    "Spark": Limit(
        "a million JSON rows cost 1.1 s to decode, 0.9 s in the JVM's tasks, which copy each row, 0.6 s to compile and"
        " plan, and 0.5 s in MySQL and the daemon; two cores have 2 s in a second",
        "a reader in Java that gives Spark columns: its Python sources give rows",
        tuple(
            Evidence("Spark source", "", f"{form} rows, {part}", "processor time for 1 M rows")
            for form in ("json", "typed")
            for part in ("JVM", "decode")
        ),
    ),
}
"""By the promise's name, or by its first word for all that begin with it."""


def limit_of(name: str) -> Limit | None:
    """Returns the limit of a promise: the one of "P1 bulk CPU", else that of "P1"."""
    return LIMITS.get(name) or LIMITS.get(name.split(maxsplit=1)[0])


def missed(report: Report) -> Iterator[Missed]:
    """Yields the promises that were measured and not kept, with what limits them."""
    for target in report.targets:
        limit = limit_of(target.id)
        if not target.met and target.value is not None and limit is not None:
            yield Missed(target, limit, list(_values(report, target, limit)))


def _values(report: Report, target: Target, limit: Limit) -> Iterator[tuple[str, float, str]]:
    logs = {log.name for log in report.logs}
    log = next((word for word in target.id.split() if word in logs), "")
    for evidence in limit.evidence:
        wanted = (
            evidence.part,
            evidence.log.replace(_LOG, log),
            evidence.subject,
            evidence.quantity,
        )
        for series in report.series:
            if (series.part, series.log, series.subject, series.quantity) == wanted:
                yield f"{series.subject}, {series.quantity}", series.median, series.unit
