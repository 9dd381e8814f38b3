"""The test runs each remedy of the mirror as it is printed. Afterwards the tables equal the server's tables.

`remedy_cases` says which test follows which function of `spark_sink.mirror.rules.remedies`, and
`tests/spark/test_remedies.py` checks that no function is missing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD
from tests.daemon.test_history import purge
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.mirror.printed import commands, run_in_shell, run_mirror_commands
from tests.mirror.remedy_cases import TABLES
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.java import QUICK_SPARK

pytestmark = [pytest.mark.deep, pytest.mark.spark, pytest.mark.timeout(3600)]

SETTINGS = f"""spark: {{conf: {json.dumps(dict(s.split("=", 1) for s in QUICK_SPARK))}}}
invalid_dates: error
tables:
  shop.alter*: {{on_alter: stop}}
  shop.older*: {{unknown_tables: stop}}
  shop.setting*: {{metadata_columns: [_seq]}}
  shop.history*: {{history: true}}
"""


@pytest.fixture
def job(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> Iterator[MirrorJob]:
    """A job of the consumers `shop` and `twin`. Both read one database; `twin` has only the tables `owner_*`."""
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE shop")
    server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    server.execute(
        "CREATE TABLE older_copy (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE older_partial (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE owner_adopt (id INT PRIMARY KEY, n INT)",
        "INSERT INTO older_copy VALUES (1, 1)",
        "INSERT INTO older_partial VALUES (1, 1)",
        "FLUSH BINARY LOGS",
        database="shop",
    )
    assert isinstance(server, Instance)
    purge(server)
    daemon = make_daemon(
        {
            "twin": source(server, "shop", start="earliest", tables=["shop.owner_*"]),
            "shop": source(server, "shop", start="earliest"),
        }
    )
    daemon.start()
    for consumer in ("shop", "twin"):
        daemon.api.until_state(consumer, "streaming")
    (tmp_path / "kills").mkdir()
    with ExitStack() as stack:
        yield MirrorJob(
            server, daemon, tmp_path, tmp_path / "kills", stack, settings=SETTINGS, quick=False
        )


def lines_of(job: MirrorJob) -> dict[str, dict[str, Any]]:
    """Returns the output of `python -m spark_sink tables`, by table."""
    done = subprocess.run(
        job.command("tables", "--json", consumers=("shop",)),
        capture_output=True,
        text=True,
        check=True,
        cwd=job.home,
    )
    shown = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {
        line["table"].removeprefix("shop."): line for line in shown if line["consumer"] == "shop"
    }


def stop_all(job: MirrorJob) -> None:
    """For each command that a reason names, bring a table into the state that has this reason."""
    execute, shop = job.server.execute, job.target / "shop"
    plain = [name for name in TABLES if name.startswith(("alter", "entry", "image", "lost"))]
    execute("INSERT INTO owner_adopt VALUES (1, 1)", database="shop")
    assert job.run("twin") == 0, job.log
    execute(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, d DATE)" for name in plain),
        *(f"INSERT INTO {name} VALUES (1, 1, '2026-01-02'), (2, 2, NULL)" for name in plain),
        "CREATE TABLE foreign_folder (id INT PRIMARY KEY, n INT)",
        "INSERT INTO foreign_folder VALUES (1, 1)",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        database="shop",
    )
    job.run("shop")
    for name in ("folder_adopt", "folder_retry"):
        shutil.copytree(shop / "foreign_folder", shop / name)
    for name in ("lost_recopy", "lost_retry"):
        shutil.move(shop / name, job.home / name)
    execute(
        "UPDATE owner_adopt SET n = 2",
        "CREATE TABLE folder_adopt (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE folder_retry (id INT PRIMARY KEY, n INT)",
        "INSERT INTO folder_adopt VALUES (1, 1), (2, 2)",
        "INSERT INTO folder_retry VALUES (1, 5)",
        "INSERT INTO older_copy VALUES (2, 2)",
        "DELETE FROM older_partial WHERE id = 1",
        "INSERT INTO older_partial VALUES (2, 2)",
        "CREATE TABLE setting_retry (id INT PRIMARY KEY, _seq INT)",
        "INSERT INTO setting_retry VALUES (1, 1)",
        "CREATE TABLE history_recopy (id INT, n INT)",
        "INSERT INTO history_recopy VALUES (1, 1)",
        "ALTER TABLE alter_recopy MODIFY n CHAR(3)",
        "INSERT INTO alter_recopy VALUES (3, 'a', NULL)",
        "CREATE TABLE cascades_verify (id INT PRIMARY KEY, p INT,"
        " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO cascades_verify VALUES (1, NULL)",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE image_recopy SET n = 7 WHERE id = 1",
        "SET SESSION binlog_row_image = FULL",
        "SET SESSION sql_mode = ''",
        *(
            f"INSERT INTO {name} VALUES (3, 3, '0000-00-00')"
            for name in ("entry_recopy", "entry_applied", "entry_skip")
        ),
        *(f"INSERT INTO {name} VALUES (4, 4, NULL)" for name in ("lost_recopy", "lost_retry")),
        database="shop",
    )


def mend(job: MirrorJob) -> None:
    """Do what the remedies tell people to do before they run the commands."""
    execute, shop = job.server.execute, job.target / "shop"
    shutil.move(job.home / "lost_retry", shop / "lost_retry")
    shutil.rmtree(shop / "folder_retry")
    job.settings = job.settings.replace("  shop.setting*: {metadata_columns: [_seq]}\n", "")
    execute("ALTER TABLE history_recopy ADD PRIMARY KEY (id)", database="shop")
    # The mirror has stopped these tables at an entry with a date that it cannot store. A person corrects the date on
    # the server, applies the entry, or skips it. The TRUNCATE removes the row of this entry, so the tables are equal
    # again.
    for name in ("entry_recopy", "entry_applied", "entry_skip"):
        execute(
            f"TRUNCATE TABLE {name}", f"INSERT INTO {name} VALUES (9, 9, NULL)", database="shop"
        )


def test_every_remedy_of_a_stopped_table_ends_with_an_equal_table(job: MirrorJob) -> None:
    stop_all(job)
    assert job.run("shop") == 1, job.log
    lines = lines_of(job)
    logged = "\n".join(path.read_text(encoding="utf-8") for path in job.logs)
    printed = {}
    for name, case in TABLES.items():
        line = lines[case.shown or name]
        assert line["state"] == case.state, line
        (printed[name],) = [c for c in commands(line["reason"]) if case.command in c]
        assert f"--config {job.home / 'mirror.yaml'}" in printed[name]
        if case.state == "stopped":
            assert printed[name] in logged
    mend(job)
    job.command("run", consumers=("shop",))  # writes the settings
    verified = [line for name, line in printed.items() if name.endswith("_verify")]
    run_mirror_commands([line for line in printed.values() if line not in verified], job.home)
    assert job.run("shop") == 0, job.log + str(lines_of(job))
    run_mirror_commands([*verified, *_verify(job, lines)], job.home)
    assert job.differences("shop") == []


def _verify(job: MirrorJob, names: dict[str, Any]) -> list[str]:
    # A table that a person has accepted as partial stays partial, although no row is missing in this test; `verify`
    # does not compare it.
    others = (name for name in names if not name.endswith("__history") and name != "older_partial")
    labels = " ".join(f"shop.{name}" for name in others)
    return [f"python -m spark_sink verify {labels} --config {job.home / 'mirror.yaml'}"]


# -- a consumer ----------------------------------------------------------------------------------------------------


def lose_nothing_else(job: MirrorJob) -> None:
    """Bring the job into the state before each loss: the mirror has two tables, which equal the server's tables."""
    job.settings = SETTINGS.replace("invalid_dates: error\n", "")
    job.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE quiet (id INT PRIMARY KEY, n INT)",
        "DROP TABLE older_copy, older_partial, owner_adopt",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO quiet VALUES (1, 1)",
        database="shop",
    )
    assert job.run("shop") == 0, job.log


def purge_while_down(job: MirrorJob) -> None:
    job.daemon.stop()
    job.server.execute("UPDATE t SET n = n + 1", "FLUSH BINARY LOGS", database="shop")
    assert isinstance(job.server, Instance)
    purge(job.server)
    job.daemon.start()
    job.daemon.api.until_state("shop", "failed")


def reset(job: MirrorJob) -> None:
    job.daemon.stop()
    job.server.execute("RESET BINARY LOGS AND GTIDS")
    job.server.execute("UPDATE t SET n = n + 1", database="shop")
    job.daemon.start()
    job.daemon.api.until_state("shop", "failed")


def seek(job: MirrorJob) -> None:
    job.server.execute("UPDATE t SET n = n + 1", database="shop")
    url = f"http://127.0.0.1:{job.daemon.port}"
    run_in_shell(f"binlog-dispatcher consumers seek shop --to latest --url {url}", job.home)


def delete_the_log(job: MirrorJob) -> None:
    job.server.execute("UPDATE t SET n = n + 1", database="shop")
    shutil.rmtree(job.target / "_binlog" / "log")


def damage_the_log(job: MirrorJob) -> None:
    """Delete a commit of the log."""
    commits = sorted((job.target / "_binlog" / "log" / "_delta_log").glob("*.json"))
    commits[-2].unlink()


def damage_the_end(job: MirrorJob) -> None:
    files = (job.target / "_binlog" / "log" / "consumer=shop").rglob("part-*.parquet")
    for file in files:
        file.write_bytes(b"no Parquet")


def log_a_statement(job: MirrorJob) -> None:
    job.server.execute(
        "SET SESSION binlog_format = STATEMENT", "UPDATE t SET n = n + 1", database="shop"
    )
    job.daemon.api.until_state("shop", "failed")


LOSSES: dict[str, Callable[[MirrorJob], None]] = {
    "purge": purge_while_down,
    "reset": reset,
    "seek": seek,
    "deleted log": delete_the_log,
    "damaged log": damage_the_log,
    "damaged end": damage_the_end,
    "statement": log_a_statement,
}


def test_every_remedy_of_a_consumer_ends_with_equal_tables(job: MirrorJob) -> None:
    lose_nothing_else(job)
    for name, lose in LOSSES.items():
        lose(job)
        assert job.run("shop") == 1, (name, job.log)
        message = next(line for line in job.log.splitlines() if " ERROR " in line)
        assert "Traceback" not in job.log, (name, job.log)
        printed = commands(message)
        assert printed, (name, message)
        if name == "damaged log":
            shutil.move(job.target / "_binlog" / "log", job.home / "damaged")
        for command in printed:
            if "consumers forget" not in command:
                run_in_shell(command.replace("POSITION", "latest"), job.home)
        job.server.execute("INSERT INTO quiet SELECT MAX(id) + 1, 1 FROM quiet", database="shop")
        assert job.run("shop") == 0, (name, message, job.log)
        assert job.differences("shop") == [], (name, message)
        assert {line["state"] for line in lines_of(job).values()} == {"complete"}, name
