"""Runs `python -m spark_sink run` as a user does: as a process, with a real daemon and a real server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.servers.ports import free_port
from tests.support.browser import chromium
from tests.support.terminal import INTERRUPT, Terminal, on_terminal


@pytest.mark.rotate(2, of="jobs of Spark")
def test_consumers_are_mirrored_and_one_bad_table_stops_alone(job: MirrorJob) -> None:
    execute = job.server.execute
    execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM t",
        database="shop",
    )
    execute(
        "CREATE TABLE whole (id INT PRIMARY KEY, a INT)",
        "CREATE TABLE incomplete (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO incomplete VALUES (1, 1, 1)",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE incomplete SET a = 2",
        "SET SESSION binlog_row_image = FULL",
        "INSERT INTO whole VALUES (1, 1)",
        database="other",
    )
    assert job.run("shop", "other") == 1, job.log
    assert job.differences("shop") == []
    assert [text.partition(":")[0] for text in job.differences("other")] == ["other.incomplete"]
    assert job.log.count("row image incomplete") == 1, job.log
    assert "Traceback" not in job.log
    assert "Exception" not in job.log

    port = free_port()
    job.settings = f"metrics: 127.0.0.1:{port}\n"
    job.start("shop", "other", now=False)
    with on_terminal(
        job.command("top", "--every=0.5", consumers=("shop", "other")),
        job.job_environment(),
        job.home,
    ) as top:
        execute("INSERT INTO t VALUES (3, 3)", "DELETE FROM t WHERE id = 1", database="shop")
        job.until_equal("shop")
        watch_top(job, top)
    watch_page(job, f"http://127.0.0.1:{port}/")
    assert job.stop() == 0, job.log
    assert "Traceback" not in job.log
    assert "Exception" not in job.log


def watch_top(job: MirrorJob, top: Terminal) -> None:
    """Assert that the screen shows the consumer with its rates, and all tables of the target with their states."""
    screen: list[str] = []  # as one look has seen it: `top` may draw the next view meanwhile

    def row(*words: str) -> list[str]:
        """Returns the words of the line that begins with `names`."""
        rows = (line.split() for line in screen)
        return next((row for row in rows if row[: len(words)] == list(words)), [])

    def is_shown() -> bool:
        screen[:] = top.lines()
        assert top.process.poll() is None, screen
        last = any("other.incomplete: row image incomplete" in line for line in screen)
        whole = last and row("q", "ends") and row("consumer", "log", "apply", "behind")
        return bool(whole and row("shop", "up", "up") and row("shop", "shop.t", "complete"))

    until(is_shown, "top shows the consumer and its table", timeout_s=TIMEOUT_S)
    heading = row(str(job.target))
    assert heading == [str(job.target), "4", "tables", "3", "complete", "1", "stopped"]
    assert row("q", "ends") and row("consumer", "log", "apply", "behind")
    assert row("shop", "shop.copied", "complete") and row("other", "other.whole", "complete")
    assert row("other", "other.incomplete", "stopped")[3:5] == ["2", "rows"]
    assert top.colour("stopped") == "red" and top.colour("complete") == "green"
    assert any("other.incomplete: row image incomplete" in line for line in screen)

    number = itertools.count(100)

    def shows_rates() -> bool:
        job.server.execute(f"INSERT INTO t VALUES ({next(number)}, 1)", database="shop")
        screen[:] = top.lines()
        # The last three words of a table's line are its rows per second, and the time of a step with its unit.
        rate = next(iter(row("shop", "shop.t", "complete")[-3:]), "")
        return rate.isdigit() and int(rate) > 0 and "commit" in row("shop", "up", "up")

    until(shows_rates, "top shows the rates of the table's steps", timeout_s=TIMEOUT_S)
    top.type(INTERRUPT)
    assert top.process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in "\n".join(top.lines())


def watch_page(job: MirrorJob, address: str) -> None:
    """Assert that the page shows what `tables` prints, and that it and the daemon's page link to each other."""
    command = job.command("tables", "--json", consumers=("shop", "other"))
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=job.home, env=job.job_environment()
    ).stdout
    lines = {line["table"]: line for line in map(json.loads, printed.splitlines())}
    complaints: list[str] = []
    requests: list[str] = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(1000 * TIMEOUT_S)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda one: complaints.append(one.text) if one.type == "error" else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("[data-live=true]")
        states = page.locator("[data-table]").evaluate_all(
            "all => all.map(one => [one.dataset.table, one.dataset.state])"
        )
        assert dict(states) == {label: line["state"] for label, line in lines.items()}
        assert states[0] == ["other.incomplete", "stopped"]
        problem = page.locator("[data-problem='other.incomplete']").inner_text()
        what, _, remedy = lines["other.incomplete"]["reason"].partition("; ")
        assert what in problem and remedy in problem and f"--config {job.home}" in remedy
        job.server.execute("INSERT INTO t VALUES (50, 1)", database="shop")
        page.wait_for_function(
            "document.querySelector(\"[data-table='shop.t'] [data-label='rows applied']\").textContent"
        )
        page.click("[data-show=stopped]")
        page.wait_for_selector("[data-tables='1']")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click(f"footer a[href='{job.daemon.url}']")
        page.wait_for_selector("[data-consumer=shop] summary")
        page.click("[data-consumer=shop] summary")
        page.wait_for_selector(f"[data-consumer=shop] a[href='{address}']")
    assert complaints == []
    assert {url.split("/")[2] for url in requests} == {
        address.split("/")[2],
        job.daemon.url.split("/")[2],
    }


@pytest.mark.rotate(2, of="jobs of Spark")
def test_a_signal_to_all_processes_ends_the_job_as_one_to_the_job(job: MirrorJob) -> None:
    job.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database="shop")
    process = job.start("shop", now=False)
    job.server.execute("INSERT INTO t VALUES (1)", database="shop")
    job.until_equal("shop")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0, job.log
    assert job.log.splitlines()[-1].endswith("the job has ended with exit code 0")


@pytest.mark.rotate(2, of="jobs of Spark")
def test_a_job_that_waits_for_its_daemon_ends_at_a_signal(job: MirrorJob) -> None:
    job.daemon.stop()
    process = job.start("shop", now=False)
    until(lambda: "cannot connect" in job.log, "the job waits")
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0, job.log
    assert job.log.splitlines()[-1].endswith("the job has ended with exit code 0")
    assert "gave up" not in job.log and "ERROR" not in job.log


@pytest.mark.rotate(2, of="jobs of Spark")
def test_consumers_that_the_daemon_does_not_know_end_the_job_at_once(job: MirrorJob) -> None:
    process = job.start("shopp", now=False)
    assert process.wait(TIMEOUT_S) == 2, job.log
    assert "unknown consumer: 'shopp'" in job.log and "starting Spark" not in job.log


def test_bad_input_ends_with_2_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spark_sink", "run", "--url=nowhere", "--consumer=a"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--url: url: not the address" in done.stderr
    assert "target: is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 2
