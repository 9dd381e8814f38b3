"""A mirror that publishes its tables in an Iceberg catalog: after kills of every process, and after histories of DDL,
readers of the catalog get the server's rows.

`ICEBERG_KILLS`, `ICEBERG_STATEMENTS`: how many; `ICEBERG_SEED` repeats a run, whose seed the test prints.
"""

from __future__ import annotations

import os
import random
from contextlib import closing
from functools import partial

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.demo import compare
from deploy.demo.delta import UnreadableDelta
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from tests.daemon.harness import until
from tests.mirror import test_crash_matrix, test_ddl_torture
from tests.mirror.ddl_history import History
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.mirror.printed import commands, run_in_shell
from tests.mirror.test_crash_matrix import DATABASE, EVERYTHING, PUBLISHING

TEMPLATE = CatalogTemplate.parse("{database}.{table}")


def _publishing(job: MirrorJob) -> MirrorJob:
    """Make the job publish its tables each second."""
    job.settings += (
        'catalog: "{database}.{table}"\niceberg:\n  interval_seconds: 1\n  snapshot_hours: 1\n'
        "  catalog: {type: sql, "
        f"uri: 'sqlite:///{job.home}/catalog.db'}}\n"
    )
    return job


def _rows(catalog: Catalog, table: compare.Table) -> list[compare.Row]:
    """Returns the rows that a reader of the catalog gets; none if the catalog does not have the table, because it has
    never had rows."""
    try:
        published = catalog.load_table(TEMPLATE.name((table.database, table.name)))
    except NoSuchTableError:
        return []
    return compare.rows_of_arrow(published.scan().to_arrow(), table)


def _differences(job: MirrorJob) -> list[str]:
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{job.home}/catalog.db")
    found = []
    with closing(job.server.connect()) as connection:
        tables = compare.tables_of(connection, [DATABASE])
        for table in tables:
            try:
                rows = _rows(catalog, table)
            # The job has moved the files or changed the columns of the table, and has not published this yet.
            except (OSError, UnreadableDelta) as error:
                found.append(f"{table.label}: {error}")
                continue
            result = compare.compare(table, compare.rows_of_mysql(connection, table), rows)
            if not result.fine:
                found.append(f"{table.label}: {result.examples}")
    names = {TEMPLATE.name((table.database, table.name)) for table in tables}
    published = {".".join(name) for name in catalog.list_tables(DATABASE)}
    return found + [f"{name} is no table of the server" for name in sorted(published - names)]


def _until_published(job: MirrorJob) -> None:
    last: list[str] = []

    def equal() -> bool:
        assert job.process is not None
        assert job.process.poll() is None, job.log
        last[:] = _differences(job)
        return not last

    try:
        until(equal, "the Iceberg tables are equal", timeout_s=TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError("\n".join([*last, job.log])) from error


def _seed() -> int:
    seed = int(os.environ.get("ICEBERG_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"\nICEBERG_SEED={seed}")
    return seed


@pytest.mark.rotate(2, of="jobs of Spark")
def test_a_job_is_killed_while_it_publishes(job: MirrorJob) -> None:
    _publishing(job)
    test_crash_matrix.play(
        job, [*PUBLISHING, "inside_rename"], seed=6, tables=2, also=partial(_until_published, job)
    )


@pytest.mark.rotate(2, of="jobs of Spark")
def test_the_remedy_of_a_table_from_before_works(job: MirrorJob) -> None:
    job.server.execute(
        "CREATE TABLE old (id INT PRIMARY KEY, v SMALLINT)",
        "INSERT INTO old VALUES (1, 1)",
        "ALTER TABLE old MODIFY v DOUBLE",
        database=DATABASE,
    )
    assert job.run(DATABASE) == 0, job.log
    assert _publishing(job).run(DATABASE) == 1, job.log
    line = next(line for line in job.log.splitlines() if "not registered as shop.old" in line)
    assert "its type was changed from short to double" in line
    (command,) = commands(line)
    run_in_shell(command, job.home)
    assert job.run(DATABASE) == 0, job.log
    assert _differences(job) == []


@pytest.mark.deep
@pytest.mark.timeout(5400)
def test_processes_are_killed_at_every_point(job: MirrorJob) -> None:
    _publishing(job)
    seed, kills = _seed(), int(os.environ.get("ICEBERG_KILLS", "20"))
    chance, points = random.Random(seed), (*EVERYTHING, *PUBLISHING)
    names: list[str] = []
    while len(names) < kills:
        names += chance.sample(points, len(points))
    test_crash_matrix.play(job, names[:kills], seed, also=partial(_until_published, job))
    print(job.verify(DATABASE))


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_history_of_ddl(job: MirrorJob) -> None:
    _publishing(job)
    statements = int(os.environ.get("ICEBERG_STATEMENTS", "100"))
    history = History(_seed(), tables=6)
    test_ddl_torture.play(
        job, history, statements, positions=4, also=partial(_until_published, job)
    )
    print(job.verify(DATABASE))
