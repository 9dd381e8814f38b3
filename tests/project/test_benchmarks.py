"""The committed report of the benchmarks, and what documents show of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import __main__ as benchmark_command
from benchmarks import arrivals, explanations, freshness, many_tables, reader_cost, two_daemons
from benchmarks import report as pages
from benchmarks.figures import LogFacts, NotRun, Report, Run, Target
from benchmarks.processes import DescendantsMeter
from benchmarks.state_server import Work
from tests.daemon.harness import until

ROOT = Path(__file__).parents[2]
COMMITTED = Report.read(pages.REPORT)


@pytest.mark.parametrize("document", pages.DOCUMENTS, ids=lambda document: document.name)
def test_the_tables_of_a_document_are_those_of_the_report(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert "<!-- benchmarks " in text
    assert pages.with_blocks(text, COMMITTED) == text, "run `python -m benchmarks.report`"


def test_the_targets_are_in_the_page_alone() -> None:
    table = pages.targets_table(COMMITTED)
    assert table in pages.PAGE.read_text(encoding="utf-8")
    header = table.splitlines()[0]
    assert not [file.name for file in pages.DOCUMENTS if header in file.read_text(encoding="utf-8")]


def test_a_program_that_was_not_measured_has_no_figure() -> None:
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    assert re.findall(r"\d", pages.peers_table(run.report)) == []
    assert pages.own_lines(run.report) == ""
    run.series("Spark source", "", "json rows", "from MySQL to Spark", "rows/s", [900.0])
    run.series("decoding", "bulk", "Canal's parser", "rows per second", "rows/s", [200.0, 400.0])
    run.series("decoding", "OLTP", "Debezium embedded", "rows per second", "rows/s", [1.0])
    assert pages.peers_table(run.report).splitlines()[-1] == (
        "| rows per second as JSON | 900 into Spark (one run) | not measured | not measured"
        " | 300 by Canal's parser, without JSON |"
    )


def test_a_time_of_a_takeover_has_its_longest_case() -> None:
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    run.series(
        two_daemons.PART, "", two_daemons.KILLED, two_daemons.UNTIL_ROWS, "s", [3.5, 4.0, 5.5]
    )
    assert pages.own_lines(run.report) == (
        "* takeover by a second daemon: the leader is killed: p50 4 s, longest 5.5 s\n"
    )


def test_the_cost_of_readers_is_that_of_the_most_readers() -> None:
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    for count in reader_cost.READERS:
        for way, share in ((reader_cost.SERVER, 3.0), (reader_cost.FRONT, 1.0)):
            name = reader_cost.subject(count, way)
            for quantity, unit in (reader_cost.SERVER_CPU, reader_cost.SENT):
                run.series(reader_cost.PART, "", name, quantity, unit, [share * count])
    assert pages.own_lines(run.report) == (
        "* what readers cost MySQL: 32 readers with a connection each take 96 % of a core and 96 MB/s;"
        " the same 32 readers through the daemon take 32 % of a core and 32 MB/s\n"
    )
    rows = pages.readers_table(run.report).splitlines()
    assert rows[-1] == "| 32 readers through the front | 32 | 32 |  |  |  |  |"


def test_the_table_of_freshness_has_the_places_that_were_measured() -> None:
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    load = freshness.subject(10_000, 1)
    run.series(freshness.PART, "", load, freshness.WRITTEN, "rows/s", [9990])
    for percent, value in zip(freshness.PERCENTILES, (1.5, 2.0, 4.0), strict=True):
        quantity = freshness.quantity(freshness.TABLE, percent)
        run.series(freshness.PART, "", load, quantity, "s", [value])
    table = pages.freshness_table(run.report)
    assert table.splitlines()[-1] == "| 10,000 rows/s, 1 table |  |  | 1.5 / 2 / 4 |  |  | 9,990 |"
    run.series(freshness.PART, "", freshness.KEPT, "10 tables", "rows/s", [45_000])
    assert pages.freshness_table(run.report).endswith("behind, 10 tables: 45,000 rows/s.\n")


@pytest.mark.parametrize(
    ("limit", "kept", "missed", "asked"),
    [
        (44_000, 30_000, None, [60_000, 45_000, 37_500]),
        (500_000, 30_000, None, [60_000, 120_000, 240_000, 480_000]),
        (26_000, 10_000, 30_000, [20_000, 25_000]),
        (700, 0, 1_000, [500, 750, 625]),
    ],
)
def test_the_search_doubles_and_bisects(
    limit: int, kept: int, missed: int | None, asked: list[int]
) -> None:
    rates = list[int]()

    def keeps(rate: int) -> bool:
        rates.append(rate)
        return rate <= limit

    assert freshness.search(keeps, kept, missed) == max(rate for rate in asked if rate <= limit)
    assert rates == asked


def test_a_rate_is_kept_if_the_age_of_the_rows_does_not_grow() -> None:
    commits = [n / 10 for n in range(100)]

    def measured(growth: float, rate: float) -> freshness.Measured:
        ages = [1 + at * growth + at % 1 for at in commits]  # they vary, too
        return freshness.Measured(rate, [], commits, {freshness.TABLE: ages}, 1.0)

    assert freshness.is_kept(1000, measured(0.0, 1000))
    assert not freshness.is_kept(1000, measured(0.5, 1000))
    assert not freshness.is_kept(1000, measured(0.0, 800)), "the writer was too slow"


def test_each_file_of_a_table_is_searched_for_markers_once(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()

    def commit(version: int, markers: list[int], *paths: str) -> None:
        for path in paths:
            notes = ["a note", *(f"marker {marker:08}" for marker in markers), None]
            pq.write_table(pa.table({"note": notes}), tmp_path / path)
        actions = [json.dumps({"add": {"path": quote(path)}}) for path in paths]
        (log / f"{version:020}.json").write_text("\n".join(actions))

    files = arrivals.Files(tmp_path)
    commit(0, [1, 2], "a b.parquet")
    files.look()
    commit(1, [2, 3], "c.parquet", "d.parquet")
    files.look()
    assert {marker: found.version for marker, found in files.found.items()} == {1: 0, 2: 0, 3: 1}


def test_the_work_of_many_tables_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_tables, "SIZES", (20,))
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    many_tables.measure(run)
    assert len(run.report.series) == 4 and all(each.rounds for each in run.report.series)


def test_a_difference_below_the_noise_is_no_figure() -> None:
    run = Run(Report("quick", {}), lambda _: None, None)
    run.series("scaling", "", "an idle consumer", "CPU", "CPU s", [-0.25])
    run.series("scaling", "", "a connection", "CPU", "CPU s", [0.25])
    rows = pages.series_table(run.report, "scaling").splitlines()
    assert rows[2] == "|  | an idle consumer | CPU | below the noise |  | 1 |"
    assert rows[3] == "|  | a connection | CPU | 0.25 CPU s | 0.25 to 0.25 | 1 |"
    assert "difference of two measurements" in rows[-1]


def test_the_line_of_the_machine_counts_the_rounds() -> None:
    facts = {"cores": "2", "processor": "A", "memory": "8 GiB", "load before": "0.1"}
    run = Run(Report("full", facts, {"MySQL": "9.7", "Python": "3.11"}), lambda _: None, None)
    run.series("transport", "bulk", "relay", "wall", "s", [1.0] * 5)
    run.series("memory", "", "idle", "resident", "MB", [1.0])
    assert pages.machine_line(run.report).startswith("All logs, 1 to 5 rounds; 2 cores of A, 8 GiB")


def test_the_line_of_the_machine_names_the_commit() -> None:
    facts = {
        "cores": "2",
        "processor": "A",
        "memory": "8 GiB",
        "load before": "0.1",
        "commit": "c1",
    }
    report = Report("full", facts, {"MySQL": "9.7", "Python": "3.11"})
    assert "load 0.1 before, commit c1; MySQL 9.7" in pages.machine_line(report)


def test_a_busy_machine_writes_no_figures_of_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setattr(benchmark_command, "QUIET_WAIT_S", 0.0)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--full"])
    with pytest.raises(SystemExit, match="2"):
        benchmark_command.main()
    assert "the load of this machine is 0.5" in capsys.readouterr().err


def test_parts_of_another_run_replace_those_of_the_report() -> None:
    run = Run(Report("full", {"cores": "2"}), lambda _: None, None)
    other = Run(Report("full", {"cores": "4"}), lambda _: None, None)
    for part in ("memory", "transport"):
        run.series(part, "", "idle", "resident", "MB", [1.0])
        run.target(part, "resident", 1.0, "<=", 5, "MB")
    other.series("memory", "", "idle", "resident", "MB", [2.0])
    other.target("memory", "resident", 2.0, "<=", 5, "MB")
    run.not_run("memory", "it failed")
    run.not_run("go-mysql", "it is absent")
    run.report.add(other.report)
    assert [each.subject for each in run.report.not_run] == ["go-mysql"]
    assert run.report.median("memory", "", "idle", "resident") == 2.0
    assert run.report.median("transport", "", "idle", "resident") == 1.0
    assert sorted((target.id, target.value) for target in run.report.targets) == [
        ("memory", 2.0),
        ("transport", 1.0),
    ]
    assert run.report.elsewhere == {"memory": {"cores": "4"}}


def test_the_time_of_an_ended_process_counts_though_its_parent_ignores_it() -> None:
    spent_s = 0.4
    burn = f"import time\nwhile time.process_time() < {spent_s}: pass"
    parent = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"os.fork() or os.execv(sys.executable, [sys.executable, '-c', {burn!r}])\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        try:
            with DescendantsMeter(os.getpid()) as meter:
                until(lambda: meter.cpu_s() >= spent_s * 0.5, "the child works")
                until(lambda: not children_of(process.pid), "the child has ended")
                assert meter.cpu_s() >= spent_s * 0.5
        finally:
            process.kill()


def children_of(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")


def test_the_page_is_that_of_the_report() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    assert page == pages.page(COMMITTED), "run `python -m benchmarks.report`"
    for plot in re.findall(r"\]\((plots/[^)]+)\)", page):
        assert (pages.PAGE.parent / plot).stat().st_size > 1000


def test_each_promise_that_was_not_kept_says_what_limits_it() -> None:
    told = {found.target.id for found in explanations.missed(COMMITTED)}
    assert told == {t.id for t in COMMITTED.targets if not t.met and t.value is not None}


def test_the_reason_of_a_missed_promise_names_figures_of_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floor = explanations.Evidence("transport", "{log}", "relay", "CPU")
    explanation = explanations.Explanation("two copies", "one copy", (floor,))
    monkeypatch.setattr(explanations, "EXPLANATIONS", {"P1": explanation})
    run = Run(Report("quick", {}), lambda _: None, None)
    run.log(LogFacts("bulk", "1000-row statements", 10, 2, 1))
    run.series("transport", "bulk", "relay", "CPU", "s", [0.25])
    run.series("transport", "wide", "relay", "CPU", "s", [0.5])
    run.target("P1 bulk CPU", "daemon ÷ relay, CPU", 3.0, "<=", 2)
    run.target("P1 wide CPU", "daemon ÷ relay, CPU", None, "<=", 2)
    run.target("P9 idle", "resident memory, idle", 200, "<=", 150, "MB")
    assert list(explanations.missed(run.report)) == [
        explanations.Missed(run.report.targets[0], explanation, [("relay, CPU", 0.25, "s")])
    ]
    assert pages.missed_table(run.report).splitlines()[-1] == (
        "| P1 bulk CPU, daemon ÷ relay, CPU | 3 (<= 2) | two copies | relay, CPU: 0.25 s | one copy |"
    )


def test_the_report_names_no_machine_path_or_address() -> None:
    text = pages.REPORT.read_text(encoding="utf-8")
    assert (
        re.findall(r"://|/(?:home|root|tmp|work|usr|opt|var)\b|\b\d+\.\d+\.\d+\.\d+:", text) == []
    )


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run = Run(Report("quick", {"cores": "2"}, {"MySQL": "9.7.4"}), lambda _: None, path)
    run.log(LogFacts("bulk", "1000-row statements", 10, 2, 1))
    assert run.series("transport", "bulk", "relay", "wall", "s", [0.3, 0.1, 0.2]) == 0.2
    run.target("P1 bulk", "relay ÷ daemon, wall", 0.71, ">=", 0.7)
    run.target("P1 wide", "relay ÷ daemon, wall", None, ">=", 0.7)
    run.save()
    found = Report.read(path)
    assert found == run.report
    assert found.median("transport", "bulk", "relay", "wall") == 0.2
    assert [target.met for target in found.targets] == [True, False]
    assert pages.targets_table(found).splitlines()[-1] == (
        "| relay ÷ daemon, wall | bulk 0.71, wide not measured | >= 0.7 | not wide |"
    )


def test_a_value_replaces_an_earlier_one_of_the_same_promise() -> None:
    run = Run(Report("quick", {}), lambda _: None, None)
    run.target("P1 bulk", "relay ÷ daemon, wall", 0.5, ">=", 0.7)
    run.target("P1 bulk", "relay ÷ daemon, wall", 0.9, ">=", 0.7)
    assert run.report.targets == [
        Target("P1 bulk", "relay ÷ daemon, wall", ">= 0.7", 0.9, "", True)
    ]


def test_the_reason_of_a_failure_loses_paths_and_addresses() -> None:
    run = Run(Report("quick", {}), lambda _: None, None)
    said = "npm: GET https://registry.invalid/x failed\n see /some/where/log of 127.0.0.1:3306"
    run.not_run("a peer", said)
    assert run.report.not_run == [NotRun("a peer", "npm: GET … failed see … of …")]


def test_the_work_of_a_server_is_the_difference_of_two_counts() -> None:
    before, after = Work(100.0, 50, 20, 7, 4000), Work(102.5, 90, 24, 8, 5000)
    assert after.since(before) == Work(2.5, 40, 4, 1, 1000)
