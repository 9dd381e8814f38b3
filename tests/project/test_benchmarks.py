"""The committed report of the benchmarks, and what documents show of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import limits, two_daemons
from benchmarks import report as pages
from benchmarks.figures import LogFacts, NotRun, Report, Run, Target
from benchmarks.state_server import Work

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
    """Each row but the facts has a cell for us and for each peer."""
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    empty = pages.peers_table(run.report).splitlines()[2:]
    assert [re.findall(r"\d", row) for row in empty] == [[]] * len(empty)
    run.series("decoding", "bulk", "to Arrow", "rows per CPU second", "rows/s", [900.0])
    run.series("decoding", "bulk", "Canal's parser", "rows per CPU second", "rows/s", [200.0])
    run.series("decoding", "bulk", "asyncmy", "rows per CPU second", "rows/s", [1.0])
    (row,) = (row for row in pages.peers_table(run.report).splitlines() if "bulk" in row)
    assert row == (
        "| rows decoded per CPU second, bulk | 900 | not measured | not measured"
        " | 200 by Canal's parser (ratio 4.5) | not measured |"
    )


def test_a_comparison_has_the_time_of_a_takeover_if_it_was_measured() -> None:
    run = Run(Report("quick", {"cores": "2"}), lambda _: None, None)
    run.series(
        two_daemons.PART, "", two_daemons.KILLED, two_daemons.UNTIL_ROWS, "s", [3.5, 4.0, 5.5]
    )
    last = pages.peers_table(run.report).splitlines()[-1]
    assert "the standby takes over; readers have rows after 4 s (p50) |" in last


def test_the_page_is_that_of_the_report() -> None:
    page = pages.PAGE.read_text(encoding="utf-8")
    assert page == pages.page(COMMITTED), "run `python -m benchmarks.report`"
    for plot in re.findall(r"\]\((plots/[^)]+)\)", page):
        assert (pages.PAGE.parent / plot).stat().st_size > 1000


def test_each_promise_that_was_not_kept_says_what_limits_it() -> None:
    told = {found.target.id for found in limits.missed(COMMITTED)}
    assert told == {t.id for t in COMMITTED.targets if not t.met and t.value is not None}


def test_the_reason_of_a_missed_promise_names_figures_of_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floor = limits.Evidence("transport", "{log}", "relay", "CPU")
    limit = limits.Limit("two copies", "one copy", (floor,))
    monkeypatch.setattr(limits, "LIMITS", {"P1": limit})
    run = Run(Report("quick", {}), lambda _: None, None)
    run.log(LogFacts("bulk", "1000-row statements", 10, 2, 1))
    run.series("transport", "bulk", "relay", "CPU", "s", [0.25])
    run.series("transport", "wide", "relay", "CPU", "s", [0.5])
    run.target("P1 bulk CPU", "daemon ÷ relay, CPU", 3.0, "<=", 2)
    run.target("P1 wide CPU", "daemon ÷ relay, CPU", None, "<=", 2)
    run.target("P9 idle", "resident memory, idle", 200, "<=", 150, "MB")
    assert list(limits.missed(run.report)) == [
        limits.Missed(run.report.targets[0], limit, [("relay, CPU", 0.25, "s")])
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
