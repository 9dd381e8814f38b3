"""The whole path from a server with `lower_case_table_names=1`: statements, settings and commands in any case."""

from __future__ import annotations

import subprocess

import pytest

from deploy.demo import delta
from dispatcher.binlog.decode import delivered
from tests.daemon.harness import Reader
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.mirror.lake import table_states

FOLDING = ("mysql97", "--lower-case-table-names=1")
TABLES = ("Orders", "Keep1", "Ren", "One", "Two", "Gone")
STATEMENTS = (
    "TRUNCATE TABLE Orders",
    "INSERT INTO orders VALUES (10)",
    "ALTER TABLE ORDERS ADD k INT NOT NULL DEFAULT 7",
    "INSERT INTO Orders VALUES (11, 11)",
    "RENAME TABLE Ren TO Ren2",
    "INSERT INTO REN2 VALUES (12)",
    "RENAME TABLE One TO SWAP, Two TO ONE, Swap TO TWO",
    "INSERT INTO TWO VALUES (13)",
    "DROP TABLE GONE",
    "CREATE TABLE T2 LIKE ORDERS",
    "INSERT INTO t2 VALUES (14, 14)",
)


def asked(job: MirrorJob, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the mirror for both consumers."""
    return subprocess.run(
        job.command(name, *arguments, consumers=("shop", "other")),
        env=job.job_environment(),
        cwd=job.home,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def read_tables(reader: Reader) -> list[str]:
    """Returns the table of each change of rows, in order."""
    return [
        part.table_map.table
        for part in reader.changes()
        if isinstance(part, delivered.TableChanges)
    ]


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.parametrize("job", [FOLDING], indirect=True, ids=["mysql97"])
def test_names_in_any_case_mean_the_tables_of_the_server(job: MirrorJob) -> None:
    execute = job.server.execute
    job.of_consumers = "{exclude: [Other.Secrets]}"
    job.settings = 'tables: {"OTHER.Peo*": {omit_columns: [ssn]}}\n'
    execute(
        *(f"CREATE TABLE {table} (id INT PRIMARY KEY)" for table in TABLES),
        *(f"INSERT INTO {table.upper()} VALUES (1), (2)" for table in TABLES),
        database="shop",
    )
    execute(
        "CREATE TABLE Secrets (id INT PRIMARY KEY)",
        "CREATE TABLE People (id INT PRIMARY KEY, ssn INT)",
        "INSERT INTO SECRETS VALUES (1)",
        "INSERT INTO PEOPLE VALUES (1, 1)",
        database="other",
    )
    assert job.run("shop", "other") == 0, job.log
    execute(*STATEMENTS, database="SHOP")
    execute("TRUNCATE TABLE Shop.Keep1", database="other")
    reader = Reader(job.daemon, "shop").open()
    changed = read_tables(reader.read_to(job.server))
    assert changed[-5:] == ["orders", "orders", "ren2", "two", "t2"]
    assert job.run("shop", "other") == 0, job.log
    assert job.standing("shop") == []
    assert job.differences("shop") == []
    assert job.leftovers("shop") == []
    assert not (job.target / "other" / "secrets").exists()
    assert delta.read(job.target / "other" / "people").to_pylist() == [{"id": 1}]

    told = asked(job, "resolve", "Shop.Orders", "--as", "recopy")
    assert "'Shop.Orders', but without case shop.orders" in told.stderr, told.stderr
    assert asked(job, "copy", "Other.PEOPLE").stdout.split("\n")[-2] == "other.people: copy"
    execute("DROP DATABASE SHOP")
    assert job.run("shop", "other") == 0, job.log
    assert table_states(job.target, "shop") == {}
    assert list(table_states(job.target, "other")) == ["other.people"]
