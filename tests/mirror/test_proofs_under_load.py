"""Tables are compared with the server under a load of rows and statements while processes are killed: no difference is
reported that does not exist. Then differences are planted: each is found and repaired. And a large table is compared to
its end, although one of its ranges changes all the time.

`PROOF_MINUTES` is the length of the load, `PROOF_SEED` its seed, `PROOF_ROWS` the size of the large table.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pymysql
import pytest

from tests.daemon.harness import PASSWORD, until
from tests.mirror.ddl_history import Change, History
from tests.mirror.harness import MirrorJob, end_group
from tests.mirror.lake import control_rows
from tests.mirror.planting import empty, overwrite, plant
from tests.mirror.test_proofs import (
    DATABASE,
    INSERT,
    ROW,
    TYPES,
    are_proved,
    is_proved_since,
    proofs,
)
from tests.servers.server import Instance

MINUTES = float(os.environ.get("PROOF_MINUTES", "2"))
SEED = int(os.environ.get("PROOF_SEED") or random.SystemRandom().randrange(1 << 31))
ROWS = int(os.environ.get("PROOF_ROWS", "300000"))
WAIT_S = 3600.0
TABLES = 10  # tables that get rows; as many tables get statements
ROWS_PER_S = 10_000
ROWS_IN_STATEMENT = 250
ROWS_OF_TABLE = 3_000
DDL_EVERY_S = 10.0
KILL_EVERY_S = 45.0
SETTINGS = (
    "prove: {rows_per_second: 30000, share_of_time: 0.5, every_seconds: 1}\n"
    'tables: {"*.*": {on_difference: repair}}\n'
)
_LENIENT = ("SET NAMES utf8mb4", "SET SESSION sql_mode = ''")


def _row(number: int) -> str:
    return ROW.format(id=number).replace(f"'text', {number}", f"'text', {number % 9}")


@dataclass
class Load:
    """Changes rows of the tables `l0` ... at a rate, in one session that connects again when the server was killed."""

    server: Instance
    written: int = 0
    failures: list[BaseException] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not self.failures

    def _run(self, stop: threading.Event) -> None:
        chance = random.Random(SEED)
        try:
            while not stop.is_set():
                # A killed server ends the session.
                with suppress(pymysql.OperationalError, pymysql.InterfaceError):
                    self._session(stop, chance)
                stop.wait(0.5)
        except BaseException as error:
            self.failures.append(error)
            raise

    def _session(self, stop: threading.Event, chance: random.Random) -> None:
        # pymysql does not close the Unix socket of a server that is down, so the session is one over TCP.
        account = self.server.connect(DATABASE, "writer", PASSWORD)
        with closing(account) as connection, connection.cursor() as cursor:
            for statement in _LENIENT:
                cursor.execute(statement)
            began, done = time.monotonic(), 0
            while not stop.is_set():
                table = f"l{chance.randrange(TABLES)}"
                first = chance.randrange(1, ROWS_OF_TABLE)
                where = f"WHERE id BETWEEN {first} AND {first + ROWS_IN_STATEMENT - 1}"
                kind = chance.random()
                if kind < 0.8:
                    rows = cursor.execute(
                        f"UPDATE {table} SET tiny = tiny + 1, f = tiny / 4, c = CONCAT(id, '{done}') {where}"
                    )
                elif kind < 0.9:
                    rows = cursor.execute(f"DELETE FROM {table} {where}")
                else:
                    values = ", ".join(
                        f"({_row(i)})" for i in range(first, first + ROWS_IN_STATEMENT)
                    )
                    rows = cursor.execute(
                        f"REPLACE {INSERT.removeprefix('INSERT').replace('wide', table)} {values}"
                    )
                done += rows
                self.written += rows
                stop.wait(max(0.0, began + done / ROWS_PER_S - time.monotonic()))


def _fill(job: MirrorJob) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    for n in range(TABLES):
        rows = ", ".join(f"({_row(i)})" for i in range(1, ROWS_OF_TABLE + 1))
        job.server.execute(
            *_LENIENT,
            f"CREATE TABLE l{n} ({columns})",
            f"{INSERT.replace('wide', f'l{n}')} {rows}",
            database=DATABASE,
        )


def _differences(job: MirrorJob) -> list[Any]:
    """Returns each difference that a job has ever recorded."""
    rows = control_rows(job.target)
    return [
        r["detail"]["difference"]
        for r in rows
        if r["kind"] == "proof" and "difference" in r["detail"]
    ]


def _kill(job: MirrorJob, name: str, statements: threading.Lock) -> None:
    server = job.server
    assert isinstance(server, Instance)
    match name:
        case "job":
            assert job.process is not None
            end_group(job.process)
            job.start(DATABASE, now=False)
        case "daemon":
            job.daemon.restart(kill=True)
        case _:
            with statements:  # a history has to know which of its statements were executed
                server.restart(kill=True)


def _disturb(job: MirrorJob, changes: Iterator[Change]) -> Counter[str]:
    """Execute statements and kill processes until the time is over. Returns how often each was done."""
    statements, over, done = threading.Lock(), threading.Event(), Counter[str]()
    failures: list[BaseException] = []

    def alter() -> None:
        try:
            for number in itertools.count():
                some = list(itertools.islice(changes, 8))
                texts = [statement for change in some for statement in change.statements]
                texts.append(
                    f"ALTER TABLE l{number % TABLES} ADD COLUMN x{number} INT NOT NULL DEFAULT {number}"
                )
                if number >= TABLES:  # so that rows do not become wider and wider
                    texts.append(f"ALTER TABLE l{number % TABLES} DROP COLUMN x{number - TABLES}")
                with statements:
                    job.server.execute(
                        "SET SESSION foreign_key_checks = 0", *texts, database=DATABASE
                    )
                done["statements"] += len(texts)
                if over.wait(DDL_EVERY_S):
                    return
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=alter)
    thread.start()
    try:
        end = time.monotonic() + 60 * MINUTES
        for name in itertools.cycle(("job", "daemon", "server")):
            assert job.process is not None
            with suppress(subprocess.TimeoutExpired):
                seconds = min(KILL_EVERY_S, max(0.0, end - time.monotonic()))
                assert job.process.wait(seconds) is None, job.log
            if time.monotonic() >= end or failures:
                return done
            _kill(job, name, statements)
            done[name] += 1
    finally:
        over.set()
        thread.join()
        assert not failures
    raise AssertionError


@pytest.mark.deep
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("job", [("mysql97",), ("mysql56",), ("mariadb118",)], indirect=True)
def test_no_difference_is_reported_that_does_not_exist_and_each_other_is_repaired(
    job: MirrorJob,
) -> None:
    print(f"\nPROOF_SEED={SEED}")
    job.settings = SETTINGS
    assert isinstance(job.server, Instance)
    history = History(SEED, TABLES, old=job.server.kind == "mysql56")
    _fill(job)
    job.server.add_user("writer", PASSWORD, "ALL ON *.*")
    for change in history.creation():
        job.server.execute(*change.statements, database=DATABASE)
    load = Load(job.server)
    job.start(DATABASE, now=False)
    with load.running():
        done = _disturb(job, history.changes(1 << 30))
    job.until_equal(DATABASE, timeout_s=WAIT_S)
    until(partial(are_proved, job), "all tables are proved", timeout_s=WAIT_S)
    assert _differences(job) == []
    print(f"{MINUTES:g} minutes, {load.written} rows, {dict(done)}, no difference")

    before = {label: proof["repaired"] for label, proof in proofs(job).items()}
    folders = {f"{DATABASE}.l{n}": job.target / DATABASE / f"l{n}" for n in range(TABLES)}
    keys = {label: plant(folder, "id") for label, folder in folders.items()}
    ((defaulted, _), (emptied, _)) = list(folders.items())[:2]
    counts: dict[str, int] = dict(
        job.server.execute(
            " UNION ALL ".join(f"SELECT '{label}', COUNT(*) FROM {label}" for label in folders)
        )
    )
    overwrite(folders[defaulted], "y", 2001)
    empty(folders[emptied])
    keys |= {defaulted: counts[defaulted], emptied: counts[emptied]}
    assert len(job.differences(DATABASE)) == TABLES
    job.until_equal(DATABASE, timeout_s=WAIT_S)
    since = time.time()
    for label in folders:
        proved = partial(is_proved_since, job, label, since)
        until(proved, f"{label} is proved again", timeout_s=WAIT_S)
    repaired = {label: proofs(job)[label]["repaired"] - before[label] for label in folders}
    for label, planted in keys.items():
        assert repaired[label] >= planted, (label, repaired, keys)
    assert job.stop() == 0, job.log
    verified = job.verify(DATABASE, timeout_s=WAIT_S)
    print(f"{sum(keys.values())} planted differences in {TABLES} tables, repaired: {repaired}")
    assert all(f"{label}: equal" in verified for label in folders)


@pytest.mark.deep
@pytest.mark.timeout(2 * 3600)
def test_a_large_table_is_compared_to_its_end_although_one_range_changes_all_the_time(
    job: MirrorJob,
) -> None:
    job.quick = False  # the limits and the compilation of a job in production
    job.settings = "prove: {rows_per_second: 20000, share_of_time: 1, every_seconds: 1}\n"
    digits = f"({' UNION '.join(f'SELECT {n} d' for n in range(10))})"
    block = 100_000
    places = ", ".join(f"{digits} d{n}" for n in range(5))
    number = " + ".join(f"d{n}.d * {10**n}" for n in range(5))
    job.server.execute(
        "SET sql_log_bin = 0",
        "CREATE TABLE large (id INT PRIMARY KEY, v INT, t VARCHAR(60))",
        *(
            f"INSERT INTO large SELECT {first} + {number}, {first}, REPEAT('x', 40) FROM {places}"
            for first in range(0, ROWS, block)
        ),
        database=DATABASE,
    )
    stop, writes = threading.Event(), Counter[str]()

    def write() -> None:
        with closing(job.server.connect(DATABASE)) as connection, connection.cursor() as cursor:
            connection.autocommit(True)
            middle = ROWS // 2
            while not stop.wait(0.02):
                cursor.execute(
                    f"UPDATE large SET v = v + 1 WHERE id BETWEEN {middle} AND {middle + 99}"
                )
                writes["statements"] += 1

    thread = threading.Thread(target=write)
    thread.start()
    label = f"{DATABASE}.large"
    try:
        began = time.time()
        job.start(DATABASE, now=False)
        job.until_copied(DATABASE, "large")
        copied = time.time()

        def is_proved() -> bool:
            assert job.process is not None
            with suppress(subprocess.TimeoutExpired):
                assert job.process.wait(1) is None, job.log
            return bool(proofs(job).get(label, {}).get("proved"))

        until(is_proved, "the table is proved", timeout_s=2 * WAIT_S)
    finally:
        stop.set()
        thread.join()
    proof = proofs(job)[label]
    print(
        f"\n{ROWS} rows: copied in {copied - began:.0f} s, proved {time.time() - copied:.0f} s later,"
        f" in {proof['ranges']} ranges with {proof['proved_rows']} rows, beside {writes['statements']} statements"
    )
    assert proof["proved_rows"] >= ROWS
    assert _differences(job) == []
    assert job.stop() == 0, job.log
