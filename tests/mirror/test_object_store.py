"""A whole mirror in an object store: an S3 server, Spark's connector, and a job that is killed and continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.demo import delta
from tests.mirror.harness import MirrorJob
from tests.mirror.test_crash_matrix import DATABASE, play
from tests.support.object_store import Bucket, bucket

_KILLS = ("log_appended", "file_moved", "group_staged", "folder_in_place")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Bucket]:
    with bucket(tmp_path / "requests.log") as made:
        yield made


@pytest.fixture
def job_in_s3(job: MirrorJob, lake: Bucket) -> MirrorJob:
    job.location = f"s3a://{lake.name}/mirror"
    job.fetch = lambda: lake.fetch("mirror", job.target)
    job.conf = tuple(f"{key}={value}" for key, value in lake.spark_settings().items())
    job.settings = f'tables: {{"{DATABASE}.steady": {{history: true}}}}\n'
    return job


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_mirror_in_s3_goes_on_after_kills_with_its_copies_renames_and_histories(
    job_in_s3: MirrorJob,
) -> None:
    job = job_in_s3
    play(job, list(_KILLS), seed=7, tables=1)
    history = delta.read(job.target / DATABASE / "steady__history").to_pylist()
    with closing(job.server.connect(DATABASE)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, v FROM steady")
        expected = sorted(cursor.fetchall())
    current = sorted((row["id"], row["v"]) for row in history if row["is_current"])
    assert current == expected
    assert len(expected) > 0
