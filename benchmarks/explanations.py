"""Explains why a run has not met a target: the reason, the figures of this run that show the reason, and a possible
improvement.

`make bench` prints this for each target that was measured and not met. The report's page contains it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks import freshness
from benchmarks.figures import Report, Target

_LOG = "{log}"  # in evidence, this stands for the log of the target
_UNTIL_ROWS = "until a reader has rows of the other daemon"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series of the same run: its part, log, subject and quantity."""

    part: str
    log: str
    subject: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a target is not met. `evidence`: series that show the reason; `improvement`: a possible
    improvement."""

    reason: str
    improvement: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """A target that was not met. `evidence`: (what, value, unit) of this run."""

    target: Target
    explanation: Explanation
    evidence: list[tuple[str, float, str]]


def _transport(subject: str, quantity: str) -> Evidence:
    return Evidence("transport", _LOG, subject, quantity)


_BYTES = Explanation(
    "one thread verifies each byte, copies it into the queue and sends it, while the relay only receives and sends it;"
    " by perf, half of the daemon's time is the system's, which receives and sends, a quarter is Python code for each"
    " batch and each answer, and the rest verifies and copies the bytes, or reads the events of small transactions",
    "let a segment refer to the receive buffer, so that a large row is not copied; run less Python code for each batch",
    (
        _transport("relay", "CPU"),
        _transport("relay that verifies and copies", "CPU"),
        _transport("daemon", "CPU"),
    ),
)

EXPLANATIONS: Mapping[str, Explanation] = {
    "P1": _BYTES,
    "P2": Explanation(
        "mysqlbinlog writes what it receives, and verifies nothing; for a transaction of one row, the daemon also makes"
        " an index entry and a part of a poll's answer",
        "as for the relay; for small transactions, run less Python code for each batch",
        (
            _transport("mysqlbinlog --raw", "wall"),
            _transport("daemon", "wall"),
            _transport("relay that verifies and copies", "wall"),
        ),
    ),
    "P3": Explanation(
        "for each consumer that gets events of a batch, Python code executes some 20,000 instructions",
        "keep the counts of all queues in arrays, so that no Python code runs for a single consumer",
        (
            Evidence("fan-out", _LOG, "1 consumer", "CPU until queued"),
            Evidence("fan-out", _LOG, "64 consumers", "CPU until queued"),
        ),
    ),
    "P5": Explanation(
        "for bulk, finding the rows takes a quarter of the time; for OLTP, each row needs the index and the checksums"
        " of six events",
        "make the index and find the rows in one pass over the bytes",
        (
            Evidence("decoding", _LOG, "to Arrow", "rows per CPU second"),
            Evidence("decoding", _LOG, "mysqlbinlog -v", "rows per CPU second"),
        ),
    ),
    "P8": Explanation(
        "two cores run the writer, the server, the daemon and the reader; each waits for a core",
        "measure with a core for each of the four; execute fewer instructions for a cycle",
        (Evidence("a reader's cycle", "", "read", "CPU for a cycle"),),
    ),
    "P8b": Explanation(
        "acknowledging takes a quarter of the time, and a quarter of that is passing the position to the thread that"
        " stores it; no single function takes more than 3 %",
        "make fewer system calls in the store: it asks for the state of its files at each commit",
        (
            Evidence(
                "a reader's cycle", "", "a call of a server that does nothing", "CPU for a call"
            ),
        ),
    ),
    "P9": Explanation(
        "this memory holds no queue: it is Python's modules, numba, and LLVM's library",
        "do not load numba if all kernels are in the cache",
        (Evidence("memory", "", "idle", "resident"),),
    ),
    "P10": Explanation(
        "the side dispatcher and the main dispatcher share one core, that of the event loop",
        "as for the relay",
        (Evidence("catching up", "wide", "recv", "rate"),),
    ),
    "P11": Explanation(
        "importing the daemon's modules and numba",
        "for the daemon's log, do not import what only a terminal needs, such as rich",
        (Evidence("a reader's cycle", "", "1 consumer", "CPU until ready"),),
    ),
    "P12": Explanation(
        "each second each connection wakes the event loop and makes a batch of one transaction, which costs as much as"
        " a larger batch",
        "run less Python code for each batch",
        (Evidence("many sources", "", "100 sources", "CPU"),),
    ),
    "P13": Explanation(
        "the start, which imports numba, numpy and pydantic; figures from before the kernels for text also include a"
        " Python object for each event",
        "import the parsers of rare events only when such an event comes; parse the arguments without pydantic",
        (
            Evidence("inspect", _LOG, "inspect of an empty file", "user CPU"),
            Evidence("inspect", _LOG, "mysqlbinlog -v", "user CPU"),
        ),
    ),
    "P14": Explanation(
        "the lease of a leader that was killed lasts 2.7 to 4 s more; then the standby notices it within 0.6 s, and the"
        " reader asks each second",
        "a shorter state.lease",
        (Evidence("two daemons", "", "the leader is killed", _UNTIL_ROWS),),
    ),
    "P18": Explanation(
        "the server and the client alone keep two cores busy, so what the daemon takes is added: it verifies each byte,"
        " copies it into the queue and sends it; before the first byte it looks for the client's place and opens a"
        " connection",
        "find the beginning of a file without a dump; with a third core only the daemon's own time would count",
        (
            Evidence("front", _LOG, "the server", "all programs' CPU for a GB"),
            Evidence("front", _LOG, "the front, read again", "all programs' CPU for a GB"),
            Evidence("front", _LOG, "the front, read again", "the daemon's CPU for a GB"),
            Evidence("front", _LOG, "the front, from the queue", "the daemon's CPU for a GB"),
        ),
    ),
    "P20": Explanation(
        "a tenth is the log, which the server reads and sends once; the rest is the questions of the daemon's start and"
        " of each client, which do not depend on the size of the log",
        "ask the server once for all consumers of a connection",
        (
            Evidence("front", _LOG, "10 clients at the server", "the server's CPU"),
            Evidence("front", _LOG, "10 clients at the front", "the server's CPU"),
        ),
    ),
    "mirror": Explanation(
        "Spark's tasks, Delta's commits and MySQL share two cores",
        "use a machine with more cores",
    ),
    "freshness 100 tables": Explanation(
        "the transactions go to the tables in turns, so each append to the log has rows of all tables, and each table"
        " needs a step with a commit of its own for a few hundred rows; two steps run at a time on two cores",
        "make a small step cheaper; run more steps at a time on a machine with more cores (parallel_tables)",
        tuple(
            Evidence(
                freshness.PART,
                "",
                freshness.subject(freshness.RATE, tables),
                freshness.quantity(place, 50),
            )
            for tables in (1, freshness.TABLES, 100)
            for place in (freshness.LOG, freshness.TABLE)
        ),
    ),
    "freshness": Explanation(
        "a row waits for the append to the log that runs when it comes, for its own append, for the step of its table"
        " that runs, and for its own step; Spark's tasks, Delta's commits, MySQL, the daemon and the writer share two"
        " cores",
        "use a machine with more cores",
        tuple(
            Evidence(
                freshness.PART,
                "",
                freshness.subject(freshness.RATE, freshness.TABLES),
                freshness.quantity(place, percent),
            )
            for place in (freshness.LOG, freshness.TABLE)
            for percent in (50, 99)
        ),
    ),
    "Spark": Explanation(
        "for a million JSON rows, decoding takes 1.1 s of processor time, the JVM's tasks, which copy each row, 0.9 s,"
        " compiling and planning 0.6 s, and MySQL and the daemon 0.5 s; two cores have only 2 s in a second",
        "write a reader in Java that gives columns to Spark; Python sources give rows",
        tuple(
            Evidence("Spark source", "", f"{form} rows, {part}", "processor time for 1 M rows")
            for form in ("json", "typed")
            for part in ("JVM", "decode")
        ),
    ),
}
"""The explanations. A key is the name of a target, or the first word of the names of several targets."""


def explanation_of(name: str) -> Explanation | None:
    """Returns the explanation of a target: for "P1 bulk CPU" the explanation with this name, or if there is none, the
    explanation "P1"."""
    return EXPLANATIONS.get(name) or EXPLANATIONS.get(name.split(maxsplit=1)[0])


def missed(report: Report) -> Iterator[Missed]:
    """Yields the targets that were measured and not met, each with its explanation."""
    for target in report.targets:
        explanation = explanation_of(target.id)
        if not target.met and target.value is not None and explanation is not None:
            yield Missed(target, explanation, list(_values(report, target, explanation)))


def _values(
    report: Report, target: Target, explanation: Explanation
) -> Iterator[tuple[str, float, str]]:
    logs = {log.name for log in report.logs}
    log = next((word for word in target.id.split() if word in logs), "")
    for evidence in explanation.evidence:
        wanted = (
            evidence.part,
            evidence.log.replace(_LOG, log),
            evidence.subject,
            evidence.quantity,
        )
        for series in report.series:
            if (series.part, series.log, series.subject, series.quantity) == wanted:
                yield f"{series.subject}, {series.quantity}", series.median, series.unit
