"""Tables without a key are copied under load from every kind of server: the mirror has the effect of each transaction
exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from deploy.demo import delta
from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.servers import Server

SERVERS = [
    ("mysql97",),
    ("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"),
    ("mysql56",),
    ("mariadb1011",),
    ("mariadb118",),
]
TABLES = ("a", "b", "c")


@contextmanager
def load(server: Server) -> Iterator[None]:
    """Run two sessions. Their transactions change equal rows of all tables, and stay open for a while."""
    stop, failures = threading.Event(), []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        try:
            with closing(server.connect("shop")) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                connection.autocommit(False)
                while not stop.wait(0.05):
                    for _ in range(chance.randrange(1, 4)):
                        n, table = chance.randrange(5), chance.choice(TABLES)
                        statement = chance.choice(
                            (
                                f"INSERT INTO {table} VALUES ({seed}, {n}), ({seed}, {n})",
                                f"DELETE FROM {table} WHERE s = {seed} AND n = {n} LIMIT 1",
                                f"UPDATE {table} SET n = {4 - n} WHERE s = {seed} AND n = {n} LIMIT 2",
                            )
                        )
                        cursor.execute(statement)
                        stop.wait(0.01)
                    connection.commit()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def differing(job: MirrorJob) -> list[str]:
    """Returns the tables in which the number of copies of some row differs between mirror and server."""
    found = []
    for table in TABLES:
        rows = Counter(job.server.execute(f"SELECT s, n FROM {table}", database="shop"))
        mirrored = delta.read(job.target / "shop" / table)
        columns = (mirrored.column(name).to_pylist() for name in ("s", "n"))
        if Counter(zip(*columns, strict=True)) != rows:
            found.append(table)
    return found


@pytest.mark.deep
@pytest.mark.parametrize("job", SERVERS, indirect=True, ids=lambda server: "-".join(server[:2]))
def test_tables_without_a_key_are_equal_after_a_copy_under_load(job: MirrorJob) -> None:
    job.copy_settings = ", lock_keyless_tables: true"
    job.server.execute("GRANT RELOAD ON *.* TO 'copier'@'%'")
    # With an index, each session locks only its own rows, and does not wait for the other session.
    job.server.execute(
        "SET sql_log_bin = 0",
        *(f"CREATE TABLE {table} (s INT, n INT, KEY (s))" for table in TABLES),
        *(
            f"INSERT INTO {table} VALUES (1, {n}), (1, {n}), (2, {n}), (2, {n})"
            for table in TABLES
            for n in range(5)
        ),
        database="shop",
    )
    with load(job.server):
        job.start("shop", now=False)
        job.until_copied("shop", *TABLES)
    job.until_complete("shop")
    until(lambda: not differing(job), "the rows are equal", timeout_s=TIMEOUT_S)
    assert job.stop() == 0, job.log
    assert differing(job) == []
