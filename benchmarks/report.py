"""Writes the results of a report: `benchmarks/report.md` with its plots, and tables of measured values in README and
docs.

`python -m benchmarks.report` renders the committed `benchmarks/report.json`; with `--add FILE` it first adds the parts
of another report, such as that of `python -m benchmarks --full --only PART`. In a document, it replaces the text
between the comments `<!-- benchmarks NAME -->` and `<!-- end of benchmarks -->` with a table. Plots need matplotlib,
which is in the group `bench` of pyproject.toml.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import freshness, mirror, reader_cost, readers_cycle, two_daemons
from benchmarks.explanations import missed
from benchmarks.figures import Report, Series, Target

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
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{value:.3g}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _row(header) + "|" + "---|" * len(header) + "\n" + "".join(map(_row, rows))


# -- tables of documents --------------------------------------------------------------------------------------


def targets_table(report: Report) -> str:
    """One row for each target. A target for several logs has a value for each of them."""
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
    """One row for each target that was not met: the reason, the figures that show it, and a possible improvement."""
    rows = []
    for found in missed(report):
        target = found.target
        value = f"{number(target.value or 0)} {target.unit}".strip()
        shown = [f"{what}: {number(value)} {unit}".strip() for what, value, unit in found.evidence]
        rows.append(
            (
                f"{target.id}, {target.what}",
                f"{value} ({target.target})",
                found.explanation.reason,
                "; ".join(shown),
                found.explanation.improvement,
            )
        )
    return _table(("target", "value", "why", "shown by", "next"), rows)


def _order(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return (int(digits) if digits else 1000, name)


def _label(target: Target) -> str:
    """The log or variant of a target: "bulk" of "P1 bulk"."""
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
    """The size of the logs, the least and the greatest number of rounds, and the machines."""
    form = "All logs" if report.form == "full" else "Smaller logs"
    if "scale" in report.machine:
        form = f"A trial: logs of {report.machine['scale']} of their size"
    rounds = [len(series.rounds) for series in report.series]
    counts = f", {min(rounds)} to {max(rounds)} rounds" if rounds else ""
    parts: dict[str, list[str]] = {}
    for part, facts in report.elsewhere.items():
        parts.setdefault(_machine(facts), []).append(part)
    elsewhere = "".join(
        f" Measured at another time, {', '.join(names)}: {machine}."
        for machine, names in parts.items()
    )
    return (
        f"{form}{counts}; {_machine(report.machine)};"
        f" MySQL {report.versions['MySQL']}, Python {report.versions['Python']}.{elsewhere}\n"
    )


def _machine(facts: Mapping[str, str]) -> str:
    cores = f"{facts['cores']} cores of {facts['processor']}, {facts['memory']}"
    commit = f", commit {facts['commit']}" if "commit" in facts else ""
    return f"{cores}, load {facts['load before']} before{commit}"


def series_table(report: Report, part: str) -> str:
    """All series of a part: the median, and the least and the greatest value of the rounds."""
    found = [series for series in report.series if series.part == part]
    header = ("log", "subject", "quantity", "median", "least to greatest", "rounds")
    table = _table(header, [_series_row(series) for series in found])
    return table + (_NOISE if any(series.median < 0 for series in found) else "")


def _part_table(report: Report, part: str) -> str:
    made = {freshness.PART: freshness_table, reader_cost.PART: readers_table}.get(part)
    return series_table(report, part) if made is None else made(report)


def freshness_table(report: Report) -> str:
    """A row for each load: p50, p95 and p99 of the time from the commit of a marker to each place."""
    part = freshness.PART
    subjects = dict.fromkeys(
        series.subject
        for series in report.series
        if series.part == part and series.quantity == freshness.WRITTEN
    )
    rows = []
    for subject in subjects:
        places = [_percentiles(report, subject, place) for place in freshness.PLACES]
        ends = [
            _or_empty(report.median(part, "", subject, quantity))
            for quantity in (freshness.CAUGHT_UP, freshness.WRITTEN)
        ]
        rows.append((subject, *places, *ends))
    header = (
        "load",
        *(f"commit to {place}, {_unit(place)}" for place in freshness.PLACES),
        f"{freshness.CAUGHT_UP}, s",
        "written, rows/s",
    )
    of, tables = freshness.KEPT, f"{freshness.TABLES} tables"
    kept = report.median(part, "", of, tables)
    text = f"\nThe {of}, {tables}: {number(kept)} rows/s.\n" if kept is not None else ""
    return f"Times are p50 / p95 / p99.\n\n{_table(header, rows)}{text}"


def _unit(place: str) -> str:
    return "ms" if place == freshness.READER else "s"


def _percentiles(report: Report, subject: str, place: str) -> str:
    found = [
        report.median(freshness.PART, "", subject, freshness.quantity(place, percent))
        for percent in freshness.PERCENTILES
    ]
    return " / ".join(number(value) for value in found if value is not None)


def _or_empty(value: float | None) -> str:
    return "" if value is None else number(value)


def readers_table(report: Report) -> str:
    """A row for each number of readers and each way, with the medians."""
    quantities = (
        reader_cost.SERVER_CPU,
        reader_cost.SENT,
        reader_cost.DAEMON_CPU,
        reader_cost.P50,
        reader_cost.P99,
        reader_cost.WRITTEN,
    )
    subjects = dict.fromkeys(s.subject for s in report.series if s.part == reader_cost.PART)
    rows = [
        (
            subject,
            *(
                _or_empty(report.median(reader_cost.PART, "", subject, quantity))
                for quantity, _ in quantities
            ),
        )
        for subject in subjects
    ]
    header = ("readers", *(f"{quantity}, {unit}" for quantity, unit in quantities))
    load = f"{reader_cost.TRANSACTIONS_PER_SECOND} transactions of {reader_cost.ROWS} rows"
    return f"Medians, while {load} per second are written to the server.\n\n{_table(header, rows)}"


_BELOW_NOISE = "below the noise"
_NOISE = f"""
*{_BELOW_NOISE.capitalize()}*: the figure is the difference of two measurements, and is negative.
"""


def _series_row(series: Series) -> tuple[str, ...]:
    median = f"{number(series.median)} {series.unit}".strip()
    span = f"{number(min(series.rounds))} to {number(max(series.rounds))}"
    shown = (_BELOW_NOISE, "") if series.median < 0 else (median, span)
    return (series.log, series.subject, series.quantity, *shown, str(len(series.rounds)))


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


_FACTS = (
    (
        "reads",
        "MySQL, MariaDB",
        "MySQL, MariaDB and many others",
        "MySQL, MariaDB",
        "MySQL, MariaDB",
    ),
    (
        "delivers to",
        "HTTP, Spark, Delta tables",
        "Kafka and its hundreds of sinks, or one sink without Kafka",
        "one of many kinds of queues",
        "its clients, or a queue",
    ),
    (
        "keeps what was read",
        "no; the mirror keeps its log for some days",
        "yes, in Kafka",
        "in the queue",
        "in the queue",
    ),
    (
        "existing rows",
        "copied by the mirror, read by the Spark source",
        "snapshots, also incremental and on demand",
        "bootstrap by `SELECT`",
        "by its adapter",
    ),
    ("maturity", "new", "older, known to more people", "older", "years in large installations"),
    (
        "connections at the server",
        "one per user, password, hosts and ports; one more while a consumer catches up",
        "one per connector, which may serve all readers by Kafka",
        "one per process",
        "one per instance",
    ),
    (
        "if a machine fails",
        "a standby continues, if the state is in a database",
        "Kafka Connect moves the connector",
        "another process leads, by ZooKeeper or Raft",
        "another instance takes over, by ZooKeeper",
    ),
)


def peers_table(report: Report) -> str:
    """A comparison of the daemon with other programs that read MySQL's log. All rows but the last one are facts of
    `docs/comparison.md`."""
    measured = (
        _rate(report, "Spark source", "", "json rows", "from MySQL to Spark", "into Spark"),
        *(
            _rate(report, "decoding", "bulk", peer, "rows per second", f"by {peer}{how}")
            for peer, how in _PEERS
        ),
    )
    rows = [*_FACTS, ("rows per second as JSON", *measured)]
    return _table(("", "binlog-dispatcher", "Debezium", "Maxwell", "Canal"), rows)


_PEERS = (("Debezium embedded", ""), ("Maxwell", ""), ("Canal's parser", ", without JSON"))


def _rate(report: Report, part: str, log: str, subject: str, quantity: str, how: str) -> str:
    found = report.series_of(part, log, subject, quantity)
    if found is None:
        return "not measured"
    once = " (one run)" if len(found.rounds) == 1 else ""
    return f"{number(found.median)} {how}{once}"


def own_lines(report: Report) -> str:
    """The front figures, which compare this project with no other program. A figure that was not measured is left
    out."""
    measured = (
        ("freshness", _freshness(report)),
        ("what readers cost MySQL", _at_server(report)),
        ("rows decoded in a second of CPU time", _decoded(report)),
        ("copy of a table of ten columns", _copied(report)),
        ("takeover by a second daemon", _takeover(report)),
    )
    return "".join(f"* {what}: {values}\n" for what, values in measured if values)


def _values(report: Report, part: str, *wanted: tuple[str, str, str, str]) -> str:
    """Returns the medians of a part that were measured. `wanted`: subject, quantity, and the words before and behind
    the number."""
    found = (
        (report.median(part, "", subject, quantity), before, behind)
        for subject, quantity, before, behind in wanted
    )
    values = [
        f"{before} {number(value)} {behind}".strip()
        for value, before, behind in found
        if value is not None
    ]
    return ", ".join(values)


def _freshness(report: Report) -> str:
    """The times from a commit to a reader, and to a Delta table."""
    to_reader = f"{readers_cycle.RATE:,} transactions per second"
    rate, tables = freshness.RATE, freshness.TABLES
    to_table = freshness.subject(rate, tables)
    few = f"s to a Delta table for a row in each of {mirror.TABLES} tables"
    many = f"s to a Delta table at {rate:,} rows per second in {tables} tables"
    p50, p99 = (freshness.quantity(freshness.TABLE, percent) for percent in (50, 99))
    kept = "the highest rate that does not fall behind is"
    texts = (
        _values(
            report,
            readers_cycle.PART,
            (to_reader, "commit to reader, p50", "p50", "ms"),
            (to_reader, "commit to reader, p99", "p99", f"ms to a reader at {to_reader}"),
        ),
        _values(report, mirror.PART, ("mirror", mirror.FEW_ROWS, "", few)),
        _values(report, freshness.PART, (to_table, p50, "p50", "s"), (to_table, p99, "p99", many)),
        _values(
            report, freshness.PART, (freshness.KEPT, f"{tables} tables", kept, "rows per second")
        ),
    )
    return "; ".join(filter(None, texts))


def _at_server(report: Report) -> str:
    """The cost of the largest number of readers at the server, and through the daemon."""
    count, texts = max(reader_cost.READERS), []
    for way, how in (
        (reader_cost.SERVER, f"{count} readers with a connection each take"),
        (reader_cost.FRONT, f"the same {count} readers through the daemon take"),
        (reader_cost.OVER_HTTP, f"{count} readers over HTTP take"),
    ):
        subject = reader_cost.subject(count, way)
        cpu, sent = (
            report.median(reader_cost.PART, "", subject, quantity)
            for quantity in (reader_cost.SERVER_CPU[0], reader_cost.SENT[0])
        )
        if cpu is not None and sent is not None:
            texts.append(f"{how} {number(cpu)} % of a core and {number(sent)} MB/s")
    without = _values(
        report,
        reader_cost.PART,
        (reader_cost.NONE, reader_cost.SERVER_CPU[0], "writing alone takes", "%"),
    )
    return "; ".join([*texts, *filter(None, [without])])


def _decoded(report: Report) -> str:
    texts = []
    for log, what in (("bulk", "statements of 1,000 rows"), ("OLTP", "transactions of one row")):
        rate, other = (
            report.median("decoding", log, subject, "rows per CPU second")
            for subject in ("to Arrow", "mysqlbinlog -v")
        )
        if rate is not None and other is not None:
            faster = f"{number(rate / other)} times `mysqlbinlog -v`"
            texts.append(f"{number(rate)} from {what} ({faster})")
    return ", ".join(texts)


def _copied(report: Report) -> str:
    return _values(
        report,
        mirror.PART,
        ("mirror", mirror.COPY, "", "rows per second"),
        ("mirror", mirror.COPY_CPU, "", "rows per second of the job's CPU time"),
    )


def _takeover(report: Report) -> str:
    texts = []
    for subject in (two_daemons.KILLED, two_daemons.STOPPED):
        found = report.series_of(two_daemons.PART, "", subject, two_daemons.UNTIL_ROWS)
        if found is not None:
            longest = number(max(found.rounds))
            texts.append(f"{subject}: p50 {number(found.median)} s, longest {longest} s")
    return "; ".join(texts)


BLOCKS = {
    "peers": lambda report: "\n".join(
        (peers_table(report), own_lines(report), machine_line(report))
    ),
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
        "## Targets\n\n" + targets_table(report),
        *(
            f"![{alternative}](plots/{name}.svg)\n"
            for name, alternative in PLOT_TEXTS.items()
            if (PLOTS / f"{name}.svg").exists()
        ),
        "## Targets that were not met\n\n" + missed_table(report),
        "## Logs\n\n" + logs,
        *(f"## {part.capitalize()}\n\n{_part_table(report, part)}" for part in parts),
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

    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument(
        "--add", type=Path, help="a report whose parts replace those of report.json"
    )
    options = parser.parse_args()
    report = Report.read(REPORT)
    if options.add is not None:
        report.add(Report.read(options.add))
        REPORT.write_text(report.to_json(), encoding="utf-8")
    plots.draw(report, PLOTS)
    PAGE.write_text(page(report), encoding="utf-8")
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(with_blocks(text, report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
