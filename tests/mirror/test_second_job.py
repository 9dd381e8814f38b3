"""A person starts a second job for a consumer by mistake, or before the first job has ended. The first job ends, and
the second job continues."""

from __future__ import annotations

import pytest

from spark_sink.mirror.job import EXIT_TAKEN_OVER
from tests.mirror.harness import TIMEOUT_S, MirrorJob


@pytest.mark.rotate(2, of="jobs of Spark")
def test_the_job_that_was_started_first_ends_with_its_exit_code_and_one_message(
    job: MirrorJob,
) -> None:
    job.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop"
    )
    first = job.start("shop", now=False)
    job.until_equal("shop")
    job.start("shop", now=False)
    # The server writes nothing, so the first job can learn of the second job only from the target.
    assert first.wait(TIMEOUT_S) == EXIT_TAKEN_OVER
    text = job.logs[0].read_text(encoding="utf-8")
    assert text.count("has taken over this consumer") == 1, text
    assert "Traceback" not in text, text
    job.server.execute("INSERT INTO t VALUES (2)", database="shop")
    job.until_equal("shop")
    assert job.stop() == 0, job.log
