"""Of hundreds of tables, the mirror cannot continue three. It continues the other tables, and the command `tables`
shows a reason for each of the three."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress

import pytest

from deploy.demo import delta
from tests.daemon.harness import until
from tests.mirror.harness import MirrorJob

_MARKED = {
    "shop.keyless": "has no primary key",
    "shop.incomplete": "row image incomplete",
    "shop.narrowed": "existing rows are not known",
}


def _play(job: MirrorJob, tables: int, timeout_s: float) -> None:
    job.settings += "tables: {shop.narrowed: {on_alter: stop}}\n"
    names = [f"t{n}" for n in range(tables - len(_MARKED))]
    execute = job.server.execute
    # The mirror must copy a table that is older than the log, but this table cannot be copied.
    execute("SET sql_log_bin = 0", "CREATE TABLE keyless (a INT, b INT)", database="shop")
    execute(
        "CREATE TABLE incomplete (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE narrowed (id INT PRIMARY KEY, at DATETIME)",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in names),
        "INSERT INTO keyless VALUES (1, 1)",
        "INSERT INTO incomplete VALUES (1, 1, 1)",
        "INSERT INTO narrowed VALUES (1, '2026-01-02 03:04:05')",
        *(f"INSERT INTO {name} VALUES (1, 1), (2, 2)" for name in names),
        database="shop",
    )
    job.start("shop", now=False)
    execute(
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE incomplete SET a = 2",
        "SET SESSION binlog_row_image = FULL",
        "ALTER TABLE narrowed MODIFY at DATE",
        "INSERT INTO narrowed VALUES (2, '2026-01-03')",
        *(f"UPDATE {name} SET v = v + 1 WHERE id = 1" for name in names),
        database="shop",
    )
    seen: list[str] = []

    def only_the_three() -> bool:
        assert job.process is not None
        with suppress(subprocess.TimeoutExpired):
            assert job.process.wait(1) is None, job.log
        with suppress(OSError, delta.UnreadableDelta):
            seen[:] = [text.partition(":")[0] for text in job.differences("shop")]
            return sorted(seen) == sorted(_MARKED)
        return False

    until(only_the_three, "all tables but three are equal", timeout_s=timeout_s)
    assert job.stop() == 0, job.log
    shown = subprocess.run(
        job.command("tables", "--json", consumers=("shop",)),
        capture_output=True,
        text=True,
        check=True,
        cwd=job.home,
    ).stdout
    lines = {line["table"]: line for line in map(json.loads, shown.splitlines())}
    assert len(lines) == tables
    assert {label for label, line in lines.items() if line["state"] != "complete"} == set(_MARKED)
    for label, reason in _MARKED.items():
        assert reason in lines[label]["reason"]
    assert lines["shop.incomplete"]["state"] == lines["shop.narrowed"]["state"] == "stopped"
    assert lines["shop.narrowed"]["waiting_rows"] == 1


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_three_of_300_tables_say_why(job: MirrorJob) -> None:
    _play(job, 300, 3000)
