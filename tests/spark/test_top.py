"""`top` of the mirror, and the display of long work; no Spark is needed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console
from typer.testing import CliRunner

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.terminal.live import show
from spark_sink.long_work import long_work
from spark_sink.metrics_server import serve_metrics
from spark_sink.mirror import top
from spark_sink.mirror.cli import app
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.job_numbers import JobNumbers, consumer_lines, numbers_of, read_numbers
from spark_sink.mirror.metrics import MirrorCollector
from spark_sink.mirror.runtime.progress import ConsumerProgress, TableSteps
from spark_sink.mirror.table_lines import TableLine
from spark_sink.mirror.values.step_clock import StepPhase
from spark_sink.source.listener import BinlogListener, StreamCollector
from tests.daemon.harness import until
from tests.support.hostile_text import HOSTILE, SHOWN, acts
from tests.support.stream_reports import progress_report, query_reported

SINCE = datetime(2026, 11, 22, tzinfo=UTC)
COPYING = CopyProgress("shop.items", 500, 1000, 1 << 20, 4, 10.0, 10.0)
LINES = (
    TableLine("shop", "shop.orders", "complete", 9, 12, 3.0, SINCE, ""),
    TableLine("shop", "shop.bad", "stopped", 9, 5, 90.0, SINCE, "row image incomplete"),
    TableLine("shop", "shop.items", "copying", 9, 0, None, SINCE, "", COPYING),
)


def collectors(rows: int) -> tuple[MirrorCollector, StreamCollector]:
    """Returns the collectors of a job that has applied this many rows, in steps of one second."""
    steps = TableSteps(2, rows, dict.fromkeys(StepPhase, 0.0) | {StepPhase.WRITE: rows / 100})
    progress = ConsumerProgress("shop", rows=rows, waiting=3, stepped={"shop.orders": steps})
    listener = BinlogListener()
    query_reported(listener, progress_report(name="shop"))
    return MirrorCollector(lambda: [progress], lambda: [("shop", False)]), StreamCollector(listener)


def numbers(rows: int, at: float) -> JobNumbers:
    registry = CollectorRegistry()
    for collector in collectors(rows):
        registry.register(collector)
    return numbers_of(generate_latest(registry).decode(), at)


def readings(*job: JobNumbers | BinlogError) -> top.MirrorReadings:
    """Returns the readings after the job's metrics were read once for each of `job`."""
    coming = iter(job)

    def read() -> JobNumbers:
        found = next(coming)
        if isinstance(found, BinlogError):
            raise found
        return found

    made = top.MirrorReadings("/data/mirror", lambda: LINES, read if job else None)
    for _ in job or (None,):
        made.read()
    return made


def shown(made: top.MirrorReadings, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(made.view())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str, start: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(start))
    return line.split()


def test_consumers_of_two_readings() -> None:
    before, now = numbers(100, 10.0), numbers(300, 12.0)
    (line,) = consumer_lines(now, before)
    assert (line.consumer, line.log_up, line.apply_up) == ("shop", False, True)
    assert (line.lag_transactions, line.lag_bytes, line.lag_s) == (7, 100, 1.5)
    assert line.applied_rows_per_s == 100 and line.waiting_entries == 3
    assert line.step_s["write"] == 1 and line.step_s["read"] == 0
    (first,) = consumer_lines(before, None)
    assert first.applied_rows_per_s is None
    (again,) = consumer_lines(numbers(50, 14.0), now)  # the job was started again
    assert again.applied_rows_per_s == 25


def test_the_view() -> None:
    text = shown(readings(numbers(100, 10.0), numbers(300, 12.0)))
    assert text.startswith("/data/mirror  3 tables  1 complete  1 copying  1 stopped")
    assert words(text, "shop      down") == [
        "shop", "down", "up", "7", "tx", "100", "B", "1.5", "s", "0", "100", "0.0", "s", "3",
        "write", "100%",
    ]  # fmt: skip
    assert words(text, "shop      shop.orders") == [
        "shop", "shop.orders", "complete", "12", "rows", "3.0", "s", "100", "1.5", "s",
    ]  # fmt: skip
    assert "  shop.bad: row image incomplete" in text
    assert "██████████░░░░░░░░░░ 50% of about 1000 rows, 10 s left" in text
    assert max(map(len, map(str.rstrip, shown(readings(numbers(1, 1.0)), 100).splitlines()))) <= 100


def test_without_a_job_the_tables_are_shown() -> None:
    gone = BinlogError(ErrorKind.CONNECT_FAILED, "nothing listens there")
    text = shown(readings(numbers(100, 10.0), gone))
    assert "nothing listens there" in text and "shop.orders" in text and "down" not in text
    assert "the settings name no address" in shown(readings())


def test_a_job_is_asked_over_http() -> None:
    server = serve_metrics("127.0.0.1", 0, *collectors(100))
    try:
        found = read_numbers("0.0.0.0", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
    assert found.value("binlog_mirror_applied_rows_total", consumer="shop") == 100
    with pytest.raises(BinlogError, match="metrics cannot be read"):
        read_numbers("127.0.0.1", server.server_port)


def test_once_in_a_pipe_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    given = [numbers(100, 10.0), numbers(300, 12.0)] * 2
    made = top.MirrorReadings("/data/mirror", lambda: LINES, iter(given).__next__)
    show(made, 0.0, once=True, as_json=False)
    assert "\x1b" not in (text := capsys.readouterr().out)
    assert len([line for line in text.splitlines() if line.startswith("shop ")]) == 4
    show(made, 0.0, once=True, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert [table["table"] for table in answer["tables"]] == [line.table for line in LINES]
    assert answer["tables"][0]["rows_per_s"] == 100 and answer["tables"][0]["step_s"] == 1.5
    assert answer["tables"][2]["copied"]["rows"] == 500
    assert answer["consumers"][0]["lag_bytes"] == 100


def test_json_lines_go_on_after_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    coming: list[Sequence[TableLine] | BaseException] = [
        LINES,
        BinlogError(ErrorKind.INTERNAL, "storage does not answer"),
        LINES,
        KeyboardInterrupt(),
    ]

    def read() -> Sequence[TableLine]:
        found = coming.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    with pytest.raises(KeyboardInterrupt):
        show(top.MirrorReadings("/data/mirror", read, None), 0.0, once=False, as_json=True)
    errors = [json.loads(line)["error"] for line in capsys.readouterr().out.splitlines()]
    assert errors[0] == errors[2] == "" and "storage does not answer" in errors[1]


def test_without_a_terminal_top_says_what_to_pass() -> None:
    done = CliRunner().invoke(app, ["top", "--target", "/none"])
    assert done.exit_code == 2 and "--once" in done.output


def test_long_work_in_a_pipe_says_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with long_work("verify shop.t", 50, "rows", every_s=0.001) as count:
        count(10)
        count(10)
        lines = _until_printed(capsys, "verify shop.t: 20 of about 50 rows, 0 s so far")
    assert lines[0] == "verify shop.t ..."


def test_long_work_that_waits_in_one_call_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with long_work("starting Spark", every_s=0.001):
        lines = _until_printed(capsys, "starting Spark: 0 s so far")
    assert lines[0] == "starting Spark ..."
    with long_work("verify shop.t", announced=False):
        pass
    assert "verify" not in capsys.readouterr().err


def _until_printed(capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """Wait until this line was printed to stderr. Returns all lines."""
    printed = ""

    def is_printed() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return line in printed.splitlines()

    until(is_printed, line)
    return printed.splitlines()


def test_long_work_on_a_terminal_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with long_work("verify shop.t", 50, "rows") as count:
        count(25)
    text = terminal.getvalue()
    assert "verify shop.t" in text and "25 of about 50 rows" in text
    assert text.endswith("\x1b[2K")  # the line is erased


_HOSTILE_LINE = TableLine(HOSTILE, HOSTILE, "stopped", 9, 5, 90.0, SINCE, HOSTILE, COPYING)


def test_names_and_reasons_of_tables_are_shown_in_escapes() -> None:
    made = top.MirrorReadings(HOSTILE, lambda: [_HOSTILE_LINE], None)
    made.read()
    made.error = HOSTILE
    text = shown(made, width=2000)
    assert acts(text) == [] and text.count(SHOWN) == 6
    assert not any(line.lstrip().startswith("2026-01-01") for line in text.splitlines())


def test_json_of_hostile_names_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    made = top.MirrorReadings(HOSTILE, lambda: [_HOSTILE_LINE], None)
    show(made, 0, once=True, as_json=True)
    out = capsys.readouterr().out
    assert json.loads(out)["tables"][0]["reason"] == HOSTILE and acts(out) == []


def test_long_work_shows_a_hostile_name_in_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    with long_work(HOSTILE):
        pass
    assert capsys.readouterr().err == f"{SHOWN} ...\n"
