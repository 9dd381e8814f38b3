"""While one table waits for its next step, the others go on, and no change of the waiting table is lost. With real
tables."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_sink.mirror.rules.queues import WaitingTable, WaitReason
from spark_sink.mirror.runtime import consumer
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.runtime.progress import TableSteps
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.facts import both_lines
from tests.spark.mirror.conftest import Mirror

APPENDS = 40
HOUR_S = 3600.0


class _When(threading.Event):
    """Is set when a condition is true. The loop of the applier asks again and again."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    def is_set(self) -> bool:
        return self._condition()


def test_a_table_that_waits_does_not_stop_others(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory holds 16 rows, and 40 rows of the waiting table arrive while it waits."""
    monkeypatch.setattr(consumer, "WAITING_S", 0.0)

    def interval_s(name: TableName) -> float:
        return HOUR_S if name[1] == "slow" else 0.0

    source.execute(
        "CREATE TABLE slow (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE fast (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO slow VALUES (0, 'first')",
    )
    mirror.feed()
    options = mirror.options(
        policy=lambda name: TablePolicy(interval_s=interval_s(name)), held_bytes_max=32 << 10
    )
    applier = Applier(mirror.spark, options)
    waiting: list[WaitingTable] = []

    def rows(table: str) -> int:
        (progress,) = applier.progress()
        waiting[:] = progress.waiting_tables
        return progress.stepped.get(f"{source.database}.{table}", TableSteps()).rows

    def has_all() -> bool:
        if rows("slow") and mirror.append < APPENDS:
            for n in range(1, APPENDS + 1):
                source.execute(f"INSERT INTO slow VALUES ({n}, REPEAT('s', 1000))")
                source.execute(f"INSERT INTO fast VALUES ({n}, REPEAT('f', 1000))")
            mirror.feed(appends=APPENDS)
        return rows("fast") == APPENDS and waiting == [
            WaitingTable((source.database, "slow"), APPENDS, WaitReason.INTERVAL)
        ]

    assert applier.run(_When(has_all), drain=False) == 0
    assert_equal(source, target, "fast")
    assert rows("slow") == 1
    lines = both_lines(mirror.spark, str(target.path), interval_s)
    shown = {line.table.partition(".")[2]: (line.waiting_rows, line.reason) for line in lines}
    assert shown["fast"] == (0, "")
    assert shown["slow"] == (APPENDS, "its steps wait for seconds_between_steps: 3600")
    assert mirror.apply() == 0
    assert_equal(source, target, "slow")
