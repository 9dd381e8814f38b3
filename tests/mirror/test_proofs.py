"""The running job compares its tables with the server: statements that it follows cause no difference, a change that is
not in the server's log is found, and what another program has changed in a Delta table is repaired."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob, end_group
from tests.mirror.lake import control_rows, table_states
from tests.mirror.planting import plant

DATABASE = "shop"
OFTEN = "prove: {rows_per_second: 1000000, share_of_time: 1, every_seconds: 1}\n"


def proofs(job: MirrorJob) -> dict[str, dict[str, Any]]:
    """Returns the newest proof of each table that exists, by table."""
    rows = {row["table_id"]: row for row in control_rows(job.target) if row["kind"] == "proof"}
    tables = table_states(job.target, DATABASE)
    return {
        label: rows[table["table_id"]]["detail"] | {"from_lsn": table["from_lsn"]}
        for label, table in tables.items()
        if table["table_id"] in rows
    }


def are_proved(job: MirrorJob) -> bool:
    """True if each table was compared since its last statement. Fails if a table differs."""
    found = proofs(job)
    differing = [f"{label}: {proof}" for label, proof in found.items() if "difference" in proof]
    assert not differing, "\n".join([*differing, job.log])
    tables = table_states(job.target, DATABASE)
    compared = [p["checked"] == p["from_lsn"] and p["proved"] for p in found.values()]
    return len(found) == len(tables) and all(compared)


def differs(job: MirrorJob, label: str) -> bool:
    return "difference" in proofs(job).get(label, {})


def is_proved_since(job: MirrorJob, label: str, since: float) -> bool:
    """True if a comparison that began at `since` or later has found no difference."""
    proof = proofs(job)[label]
    return "difference" not in proof and (proof["proved"] or 0.0) >= since


TYPES = {
    "id": "INT UNSIGNED PRIMARY KEY",
    "tiny": "TINYINT",
    "big": "BIGINT UNSIGNED",
    "number": "DECIMAL(20, 6) NOT NULL DEFAULT 1.5",
    "f": "FLOAT",
    "g": "DOUBLE",
    "bits": "BIT(9)",
    "day": "DATE",
    "stamp": "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "moment": "DATETIME",
    "y": "YEAR",
    "a": "CHAR(4) NOT NULL",
    "b": "VARCHAR(40) CHARACTER SET latin1",
    "c": "TEXT",
    "d": "VARBINARY(20)",
    "e": "BLOB",
    "kind": "ENUM('x', 'y') NOT NULL",
    "labels": "SET('p', 'q', 'r')",
}
ROW = (
    "{id}, -{id}, 18446744073709551610, {id}.25, 0.5, -0.0, b'101', '2020-02-29', '2021-01-02 03:04:05',"
    " '9999-12-31 23:59:59', 1999, 'é ', 'latin é', REPEAT('text', {id}), X'00FF00', X'', 'y', 'p,r'"
)
INSERT = f"INSERT INTO wide ({', '.join(TYPES)}) VALUES"
# Statements of all servers, each of which the mirror follows; `{n}` is the number of the round.
STATEMENTS = (
    f"{INSERT} ({{row}})",
    "UPDATE wide SET b = 'changed', f = f + 1 WHERE id % 3 = 0",
    "ALTER TABLE wide ADD COLUMN n{n} INT NOT NULL DEFAULT {n}, ADD COLUMN m{n} VARCHAR(9) AFTER a",
    "UPDATE wide SET m{n} = 'some' WHERE id = 2",
    "ALTER TABLE texts MODIFY n BIGINT NULL",
    "ALTER TABLE texts MODIFY n INT NOT NULL",
    "INSERT INTO texts VALUES ('k{n}', {n}), ('K {n}', NULL + 1)",
    "RENAME TABLE texts TO spare, pairs TO texts, spare TO pairs",
    "INSERT INTO texts VALUES ({n}, '2020-02-0{n}', 'row')",
    "RENAME TABLE texts TO spare, pairs TO texts, spare TO pairs",
    "ALTER TABLE pairs DROP COLUMN c, ADD COLUMN c VARCHAR(9) DEFAULT 'new'",
    "DELETE FROM wide WHERE id = 1",
    "TRUNCATE TABLE short",
    "INSERT INTO short VALUES (1), (2)",
)


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize("job", [("mysql97",), ("mysql56",), ("mariadb118",)], indirect=True)
def test_only_a_change_that_the_log_does_not_show_is_a_difference(job: MirrorJob) -> None:
    job.settings = OFTEN

    def wait() -> None:
        job.until_equal(DATABASE)
        job.until_complete(DATABASE)
        until(partial(are_proved, job), "all tables are proved", timeout_s=TIMEOUT_S)

    def execute(*statements: str) -> None:
        lenient = "SET SESSION sql_mode = ''"
        job.server.execute("SET NAMES utf8mb4", lenient, *statements, database=DATABASE)

    execute(
        f"CREATE TABLE wide ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})",
        *(f"{INSERT} ({ROW.format(id=i)})" for i in range(1, 9)),
        "CREATE TABLE texts (k VARCHAR(20) PRIMARY KEY, n INT)",
        "INSERT INTO texts VALUES ('a', 1), ('B', 2), ('ö', 3)",
        "CREATE TABLE pairs (n INT, day DATE, c VARCHAR(9), PRIMARY KEY (day, n))",
        "INSERT INTO pairs VALUES (1, '2020-01-01', 'one'), (2, '2020-01-01', 'two')",
        "CREATE TABLE short (id INT PRIMARY KEY)",
    )
    job.start(DATABASE, now=False)
    for number in (1, 2):
        for statement in STATEMENTS:
            execute(statement.format(n=number, row=ROW.format(id=100 + number)))
        wait()
    job.server.execute(
        "CREATE TABLE silent (id INT PRIMARY KEY, a VARCHAR(20))",
        "INSERT INTO silent VALUES (1, 'one'), (2, 'two')",
        database=DATABASE,
    )
    wait()
    change = f"UPDATE {DATABASE}.silent SET a = 'changed' WHERE id = 2"
    job.server.execute("SET SESSION sql_log_bin = 0", change)
    label = f"{DATABASE}.silent"
    until(partial(differs, job, label), "the difference is found", timeout_s=TIMEOUT_S)
    found = proofs(job)[label]["difference"]
    evidence = json.loads(Path(found["evidence"]).read_text(encoding="utf-8"))
    assert evidence["server"] == [{"id": 2, "a": "changed"}]
    assert evidence["mirror"] == [{"id": 2, "a": "two"}]
    assert "difference" in job.log
    assert job.stop() == 0, job.log


KILLS_AFTER_S = (2.0, 9.0)  # after the start of the job's process
REPAIR = 'tables: {"*.*": {on_difference: repair, change_data_feed: true}}\n'


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize("job", [("mysql97",), ("mysql56",), ("mariadb118",)], indirect=True)
def test_planted_differences_of_every_type_are_repaired_although_the_job_is_killed(
    job: MirrorJob,
) -> None:
    job.settings = OFTEN + REPAIR
    rows = (f"{INSERT} ({ROW.format(id=i)})" for i in range(1, len(TYPES) + 9))
    job.server.execute(
        "SET NAMES utf8mb4",
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE wide ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})",
        *rows,
        database=DATABASE,
    )
    job.start(DATABASE, now=False)
    label = f"{DATABASE}.wide"
    job.until_equal(DATABASE)
    until(partial(are_proved, job), "the table is proved", timeout_s=TIMEOUT_S)
    keys = plant(job.target / DATABASE / "wide", "id")
    assert job.differences(DATABASE)
    until(lambda: differs(job, label), "the difference is found", timeout_s=TIMEOUT_S)
    for seconds in KILLS_AFTER_S:
        assert job.process is not None
        end_group(job.process)
        job.server.execute(f"UPDATE {DATABASE}.wide SET tiny = tiny + 1 WHERE id % 7 = 0")
        process = job.start(DATABASE, now=False)
        with suppress(subprocess.TimeoutExpired):
            assert process.wait(seconds) == 0, job.log
    job.until_equal(DATABASE)
    since = time.time()
    proved = partial(is_proved_since, job, label, since)
    until(proved, "the table is proved again", timeout_s=TIMEOUT_S)
    assert keys == len(TYPES) + 2
    assert job.stop() == 0, job.log
    assert "wide: equal" in job.verify(DATABASE)
