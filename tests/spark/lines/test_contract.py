"""What the source and the mirror guarantee on each line of Spark, with a real server and a real daemon.

`make test` runs this file for some commits, with the Spark of `requirements.lock`. `test_lines` runs it with each other
line.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from spark_sink.source.listener import BinlogListener
from spark_sink.source.spark_abilities import ADMISSION_CONTROL
from tests.daemon.harness import PASSWORD, until
from tests.mirror.harness import COPY_GRANTS, COPY_USER
from tests.spark.lines.conftest import QUEUE_BYTES, TIMEOUT_S, Shop, has_delta

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LARGE = QUEUE_BYTES // 10


def test_a_batch_holds_the_queue(shop: Shop) -> None:
    shop.insert(1, 2, 3)
    rows = shop.spark.read.format("binlog").options(**shop.options()).load().collect()
    assert sorted((row["op"], row["after"]["id"]) for row in rows) == [
        ("insert", 1),
        ("insert", 2),
        ("insert", 3),
    ]


def test_a_stream_goes_on_at_its_checkpoint(shop: Shop) -> None:
    listener = BinlogListener()
    shop.spark.streams.addListener(listener)
    try:
        for first in (1, 3):
            query = shop.stream().trigger(processingTime="0 seconds").start()
            for number in (first, first + 1):
                shop.insert(number)
                until(partial(shop.has_read, number), "the row", timeout_s=TIMEOUT_S)
            until(partial(has_rows, listener), "the listener sees a batch", timeout_s=TIMEOUT_S)
            query.stop()
            until(lambda: not listener.totals(), "the query has ended", timeout_s=TIMEOUT_S)
    finally:
        shop.spark.streams.removeListener(listener)
    assert shop.once() == [1, 2, 3, 4]


def has_rows(listener: BinlogListener) -> bool:
    return any(total.rows for total in listener.totals().values())


@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_that_was_not_committed_is_read_again_with_the_same_rows(
    shop: Shop, *, committed: bool
) -> None:
    """`committed`: True if the query has committed an earlier batch."""
    if committed:
        shop.insert(0)
        assert shop.run() == [0]
    shop.insert(1, 2)
    failed: list[tuple[int, list[int]]] = []

    def fail(number: int, ids: list[int]) -> None:
        failed.append((number, ids))
        raise RuntimeError("killed before the commit")

    with pytest.raises(StreamingQueryException, match="killed before the commit"):
        shop.run(fail)
    shop.insert(3)
    while not shop.has_read(3):  # a Spark without admission control may need two runs
        assert shop.run()
    shop.batches[:0] = failed
    assert shop.once() == ([0, 1, 2, 3] if committed else [1, 2, 3])


def test_a_run_ends_at_the_head_of_its_start(shop: Shop) -> None:
    shop.insert(1)
    assert shop.run(lambda _number, _ids: shop.insert(2)) == [1]
    assert shop.run() == [2]
    assert shop.run() == []


def test_runs_read_more_than_the_queue_holds(shop: Shop) -> None:
    ids = list(range(25))
    shop.insert(*ids, size=LARGE)
    runs = 0
    while not shop.has_read(ids[-1]):
        assert shop.run()
        runs += 1
    assert shop.once() == ids
    assert (runs == 1) == ADMISSION_CONTROL


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.skipif(not has_delta(), reason="there is no Delta Lake for this Spark")
def test_a_mirror_copies_a_table_and_follows_it(shop: Shop, tmp_path: Path) -> None:
    from spark_sink.mirror.assembly import apply_options, make_applier  # noqa: PLC0415
    from spark_sink.mirror.job import Job  # noqa: PLC0415 - these import delta
    from spark_sink.mirror.lake.delta_log import newest_commit  # noqa: PLC0415
    from spark_sink.mirror.runtime.catalog import published_difference  # noqa: PLC0415
    from spark_sink.mirror.values.settings import MirrorSettings  # noqa: PLC0415
    from spark_sink.mirror.verify.verify import VerifyWatch  # noqa: PLC0415
    from spark_sink.mirror.verify_command import run_verify  # noqa: PLC0415

    shop.server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    settings = MirrorSettings.model_validate(
        {
            "url": shop.daemon.url,
            "consumers": ["shop"],
            "target": str(tmp_path / "target"),
            "available_now": True,
            "catalog": "{database}.{table}",
            "iceberg": {"catalog": {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}},
            "copy": {
                "mysql": f"{COPY_USER}@{shop.server.host}:{shop.server.port}",
                "password": PASSWORD,
            },
        }
    )

    def mirror() -> None:
        """Run the job to its end, in this process. Each table must then equal the server's."""
        assert Job(settings, make_applier)._run(shop.spark) == 0
        watch = VerifyWatch(published=published_difference(shop.spark, apply_options(settings)))
        found = run_verify(shop.spark, settings, [], wait_s=60, watch=watch)
        assert [str(table.verdict) for table in found] == ["equal"] * 2, list(map(str, found))
        assert {table.server_rows for table in found} == {counted("t"), counted("old")}

    def counted(table: str) -> int:
        with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            ((count,),) = cursor.fetchall()
            return int(count)

    shop.execute(
        "SET sql_log_bin = 0",
        "CREATE TABLE old (id INT PRIMARY KEY, a INT, at DATETIME(6), d DECIMAL(20, 5), s VARCHAR(20))",
        "INSERT INTO old VALUES (1, 1, '1000-01-01 00:00:00.000001', 1.5, 'é'), (2, 2, NULL, NULL, NULL)",
    )
    shop.execute("INSERT INTO old (id) VALUES (3)")
    shop.insert(*range(25), size=LARGE)  # more than fits into the queue
    mirror()
    shop.execute(
        "UPDATE old SET a = 9 WHERE id = 1",
        "DELETE FROM old WHERE id = 2",
        "ALTER TABLE old ADD more BIGINT, MODIFY a BIGINT",
        "INSERT INTO old VALUES (4, 1 << 40, NOW(6), 2, 'x', 4)",
        "UPDATE t SET b = 'y' WHERE id < 5",
        "DELETE FROM t WHERE id > 20",
    )
    mirror()
    folder = f"{settings.target}/{shop.database}/t"
    assert newest_commit(shop.spark, folder)["operationParameters"]["mode"] == "Overwrite"
