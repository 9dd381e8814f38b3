"""A job reads from two daemons through takeovers, under a load of rows and DDL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import MakePair, Source, make_pair, source_server, state_server
from tests.daemon.harness import tip_seq, until
from tests.daemon.pair import LONG_LEASE_S, Pair
from tests.faults.churn import churn, create
from tests.mirror.ddl_history import Change, History
from tests.mirror.harness import TIMEOUT_S, MirrorJob, mirror_job
from tests.servers import Instance
from tests.support.commit_seed import commit_seed
from tests.support.repeated import repeated

__all__ = ["make_pair", "source_server", "state_server"]

TAKEOVERS = 10
DATABASE = "shop"


@pytest.fixture
def pair(make_pair: MakePair, source: Source, source_server: Instance) -> Pair:
    create(source_server, [DATABASE])
    settings = source(source_server, DATABASE, start="earliest")
    pair: Pair = make_pair(LONG_LEASE_S, consumers={DATABASE: settings})
    return pair


@pytest.fixture
def job(pair: Pair, tmp_path: Path) -> Iterator[MirrorJob]:
    with mirror_job(pair.server, pair.a, tmp_path, pair.b) as job:
        yield job


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_a_job_continues_through_takeovers(job: MirrorJob, pair: Pair) -> None:
    seed = commit_seed()
    print(f"\nCOMMIT_SEED={seed}")
    server = pair.server
    history = History(seed, tables=3, recopies=False)
    changes = history.changes(1 << 30)

    def execute(change: Change) -> None:
        server.execute(*change.statements, database=DATABASE)

    for change in history.creation():
        execute(change)
    process = job.start(DATABASE, now=False)
    job.until_equal(DATABASE)
    with (
        churn(server, [DATABASE], pause_s=0.2),
        repeated(lambda: execute(next(changes)), "history", pause_s=1) as writer,
    ):
        for take_over in (pair.kill_the_leader, pair.end_the_leader) * (TAKEOVERS // 2):
            take_over()
            seq = tip_seq(server)

            def continued(seq: int = seq) -> bool:
                assert process.poll() is None, job.log
                writer.check()
                return bool(pair.stored(DATABASE)["seq"] >= seq)

            until(continued, "the job continues", timeout_s=TIMEOUT_S)
    job.until_equal(DATABASE)
    job.until_complete(DATABASE)
    assert pair.lease()[1] > TAKEOVERS
    printed = job.verify(DATABASE)
    assert printed.count(": equal") == len(printed.splitlines()) > len(history.tables), printed
    assert process.poll() is None, job.log
    assert job.stop() == 0, job.log
    assert "Traceback" not in job.log
