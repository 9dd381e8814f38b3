"""Writes the results of a report: `benchmarks/report.md` with its plots, and tables of measured values in README and
docs.

`python -m benchmarks.report` renders the committed `benchmarks/report.json`. In a document, it replaces the text
between the comments `<!-- benchmarks NAME -->` and `<!-- end of benchmarks -->` with a table. Plots need matplotlib,
which is in the group `bench` of pyproject.toml.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.figures import Report, Series, Target
from benchmarks.limits import missed

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "benchmarks" / "report.json"
PAGE = ROOT / "benchmarks" / "report.md"
PLOTS = ROOT / "benchmarks" / "plots"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "scaling.md", ROOT / "docs" / "comparison.md")
_BLOCK = re.compile(
    r"(<!-- benchmarks (?P<name>[a-z]+) -->\n).*?(<!-- end of benchmarks -->)", re.DOTALL
)
_PARTS_IN_ORDER = ("transport", "fan-out", "decoding", "inspect")


def number(value: float) -> str:
    """Returns the value with three digits, such as "0.813" or "1,240,000"."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        rounded = float(f"{value:.3g}")
        return f"{rounded:,.0f}"
    return f"{value:.3g}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _row(header) + "|" + "---|" * len(header) + "\n" + "".join(map(_row, rows))


# -- tables of documents --------------------------------------------------------------------------------------


def targets_table(report: Report) -> str:
    """One row for each promise. A promise for several logs has a value for each of them."""
    groups: dict[tuple[str, str], list[Target]] = defaultdict(list)
    for target in report.targets:
        groups[target.id.split()[0], target.what].append(target)
    rows = []
    for (_, what), targets in sorted(groups.items(), key=lambda entry: _order(entry[0][0])):
        limits = {target.target for target in targets}
        one = len(limits) == 1
        values = ", ".join(_value(target, with_limit=not one) for target in targets)
        missed = [_label(target) or "it" for target in targets if not target.met]
        kept = "yes" if not missed else "no" if len(missed) == len(targets) else _except(missed)
        rows.append((what, values, limits.pop() if one else "", kept))
    return _table(("measured", "value", "target", "met"), rows)


def missed_table(report: Report) -> str:
    """One row for each promise that was not kept: the reason, the figures that show it, and a possible improvement."""
    rows = []
    for found in missed(report):
        target = found.target
        value = f"{number(target.value or 0)} {target.unit}".strip()
        shown = [f"{what}: {number(value)} {unit}".strip() for what, value, unit in found.evidence]
        rows.append(
            (
                f"{target.id}, {target.what}",
                f"{value} ({target.target})",
                found.limit.reason,
                "; ".join(shown),
                found.limit.next,
            )
        )
    return _table(("promise", "value", "why", "shown by", "next"), rows)


def _order(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return (int(digits) if digits else 1000, name)


def _label(target: Target) -> str:
    """The log or variant of a promise: "bulk" of "P1 bulk"."""
    words = target.id.split()[1:]
    return words[0] if words and target.id.startswith("P") else ""


def _value(target: Target, *, with_limit: bool) -> str:
    value = "not measured" if target.value is None else number(target.value)
    if target.value is not None and target.unit:
        value += f" {target.unit}"
    limit = f" ({target.target})" if with_limit else ""
    return f"{_label(target)} {value}{limit}".strip()


def _except(missed: list[str]) -> str:
    return f"not {', '.join(missed)}"


def machine_line(report: Report) -> str:
    facts = report.machine
    form = "All logs, five rounds" if report.form == "full" else "Smaller logs, three rounds"
    if "scale" in facts:
        form = f"A trial: logs of {facts['scale']} of their size"
    return (
        f"{form}; {facts['cores']} cores of {facts['processor']}, {facts['memory']}, load"
        f" {facts['load before']} before; MySQL {report.versions['MySQL']}, Python {report.versions['Python']}.\n"
    )


def series_table(report: Report, part: str) -> str:
    """All series of a part: the median, and the least and the greatest value of the rounds."""
    rows = [
        (
            series.log,
            series.subject,
            series.quantity,
            f"{number(series.median)} {series.unit}",
            f"{number(min(series.rounds))} to {number(max(series.rounds))}",
            str(len(series.rounds)),
        )
        for series in report.series
        if series.part == part
    ]
    return _table(("log", "subject", "quantity", "median", "least to greatest", "rounds"), rows)


def decoding_table(report: Report) -> str:
    """Rows per CPU second of each reader, by log."""
    found: dict[str, dict[str, Series]] = defaultdict(dict)
    for series in report.series:
        if series.part == "decoding" and series.quantity == "rows per CPU second":
            found[series.subject][series.log] = series
    logs = sorted({log for by_log in found.values() for log in by_log})
    rows = [
        (
            subject,
            report.versions.get(subject, ""),
            *(number(by_log[log].median) if log in by_log else "not run" for log in logs),
        )
        for subject, by_log in found.items()
    ]
    return _table(("reader", "version", *(f"{log}, rows per CPU second" for log in logs)), rows)


def peers_table(report: Report) -> str:
    """A comparison of the daemon with other programs that read MySQL's log.

    Rows, latency and start are those of this report; for a program that was not measured the table says so. The first
    row and the last row are facts of `docs/comparison.md`.
    """
    not_measured = ("not measured",) * 4
    rows = [
        (
            "connections at the server",
            "one per account and server",
            "one per connector",
            "one per process",
            "one per instance",
            "one per pipeline",
        ),
        *(
            (f"rows decoded per CPU second, {log}", *_rates_beside(report, log))
            for log in sorted({series.log for series in report.series if series.part == "decoding"})
        ),
        ("rows per second from MySQL into Spark, as JSON", _into_spark(report), *not_measured),
        ("commit to reader", _latency(report), *not_measured),
        (
            "after a crash",
            f"continues after what was acknowledged; {_ready(report)}; {_takeover(report)}",
            *_RECOVERY,
        ),
    ]
    header = ("", "binlog-dispatcher", "Debezium", "Maxwell", "Canal", "a connection per pipeline")
    return _table(header, rows)


_KILLED = ("the leader is killed", "until a reader has rows of the other daemon")
_RECOVERY = (
    "Kafka Connect moves the connector to another worker; time not measured",
    "another process leads, by ZooKeeper or Raft; time not measured",
    "another instance takes over, by ZooKeeper; time not measured",
    "depends on each pipeline",
)
_PEERS = (
    ("Debezium embedded",),
    (),  # Maxwell
    ("Canal's parser",),
    ("python-mysql-replication", "mysql-binlog-connector-java"),
)


def _rates_beside(report: Report, log: str) -> Iterable[str]:
    """Yields rows per CPU second: of this project, then of each peer, with this project's rate divided by the
    peer's."""
    quantity = "rows per CPU second"
    own = report.median("decoding", log, "to Arrow", quantity)
    yield "not measured" if own is None else number(own)
    for subjects in _PEERS:
        found = []
        for subject in subjects:
            rate = report.median("decoding", log, subject, quantity)
            if rate is not None and own is not None:
                found.append(f"{number(rate)} by {subject} (ratio {number(own / rate)})")
        yield ", ".join(found) or "not measured"


def _into_spark(report: Report) -> str:
    rate = report.median("Spark source", "", "json rows", "from MySQL to Spark")
    cores = report.machine.get("cores", "?")
    return "not measured" if rate is None else f"{number(rate)} on {cores} cores"


def _latency(report: Report) -> str:
    load = "1,000 transactions per second"
    found = {
        percentile: report.median("a reader's cycle", "", load, f"commit to reader, {percentile}")
        for percentile in ("p50", "p99")
    }
    values = [f"{name} {number(value)} ms" for name, value in found.items() if value is not None]
    return f"{', '.join(values)}, at {load}" if values else "not measured"


def _ready(report: Report) -> str:
    found = {
        consumers: report.median("a reader's cycle", "", consumers, "start until ready")
        for consumers in ("1 consumer", "1,000 consumers")
    }
    values = [
        f"{number(value)} s with {name}" for name, value in found.items() if value is not None
    ]
    return f"ready after {', '.join(values)}" if values else "the start was not measured"


def _takeover(report: Report) -> str:
    seconds = report.median("two daemons", "", *_KILLED)
    measured = "" if seconds is None else f"; readers have rows after {number(seconds)} s (p50)"
    return f"of two daemons, the standby takes over{measured}"


BLOCKS = {
    "peers": lambda report: peers_table(report) + "\n" + machine_line(report),
    "scaling": lambda report: series_table(report, "scaling"),
    "decoding": decoding_table,
}


def with_blocks(text: str, report: Report) -> str:
    """Returns the text of a document, with its tables made from this report."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found['name']](report)}{found[3]}", text)


# -- the page -------------------------------------------------------------------------------------------------


def page(report: Report) -> str:
    parts = list(dict.fromkeys(series.part for series in report.series))
    parts.sort(
        key=lambda part: _PARTS_IN_ORDER.index(part) if part in _PARTS_IN_ORDER else len(parts) + 9
    )
    logs = _table(
        ("log", "what", "bytes", "rows", "transactions"),
        [
            (log.name, log.what, f"{log.bytes:,}", f"{log.rows:,}", f"{log.transactions:,}")
            for log in report.logs
        ],
    )
    out = [
        "# Benchmarks\n\nWritten by `python -m benchmarks.report` from [report.json](report.json), which"
        f" `{'FULL=1 ' if report.form == 'full' else ''}make bench` wrote. Compare ratios, because times depend on"
        " the machine and on its other load.\n",
        machine_line(report),
        "## Promises\n\n" + targets_table(report),
        *(
            f"![{alternative}](plots/{name}.svg)\n"
            for name, alternative in PLOT_TEXTS.items()
            if (PLOTS / f"{name}.svg").exists()
        ),
        "## Promises that were not kept\n\n" + missed_table(report),
        "## Logs\n\n" + logs,
        *(f"## {part.capitalize()}\n\n{series_table(report, part)}" for part in parts),
        "## Not run\n\n"
        + _table(("what", "why"), [(entry.subject, entry.reason) for entry in report.not_run]),
        "## Versions\n\n" + _table(("of", "version"), list(report.versions.items())),
    ]
    return "\n".join(out)


PLOT_TEXTS = {
    "transport": "How fast a log comes to a reader: recv, a relay, the daemon, mysqlbinlog --raw",
    "decoding": "Rows decoded per CPU second, by reader",
}


def main() -> int:
    from benchmarks import plots  # noqa: PLC0415 - matplotlib is needed here only

    report = Report.read(REPORT)
    plots.draw(report, PLOTS)
    PAGE.write_text(page(report), encoding="utf-8")
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(with_blocks(text, report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
