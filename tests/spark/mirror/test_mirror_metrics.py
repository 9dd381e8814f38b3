"""The mirror's metrics agree with its progress; no Spark is needed."""

from __future__ import annotations

import time
import urllib.request
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from spark_sink.metrics_server import serve_metrics
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.metrics import PREFIX, MirrorCollector
from spark_sink.mirror.rules.proofs import Difference, Proof
from spark_sink.mirror.rules.queues import WaitingTable, WaitReason
from spark_sink.mirror.rules.states import Creating, Live, Stopped, TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.progress import (
    OTHER_TABLES,
    TABLES_MAX,
    ConsumerProgress,
    ProgressCounter,
    ProvedTables,
    TableSteps,
    proved_tables,
)
from spark_sink.mirror.values.step_clock import StepClock, StepPhase


def test_a_scrape() -> None:
    now = time.time()
    copy = CopyProgress(
        "shop.orders", rows=5, rows_estimated=10, bytes=500, chunks=1, seconds=3.0, rest_s=None
    )
    rows = [
        ConsumerProgress(
            "shop", logged_seq=7, applied_seq=5, logged_at=now, applied_at=now - 60, rows=3,
            tables={TableState.STOPPED: 2}, copies=(copy,), failed=True, failing=1,
            stopped={"shop.a": 12.0}, stepped={"shop.b": TableSteps().after(3, {StepPhase.WRITE: 0.5})},
            histories={TableState.COMPLETE: 2}, histories_lsn=9,
            waiting_tables=(WaitingTable(("shop", "a"), 4, WaitReason.INTERVAL),),
            proof_rows=8, proved=ProvedTables({"shop.b": now - 600}, 1, 2),
        ),
        ConsumerProgress("billing", logged_seq=5, applied_seq=5, applied_at=now - 600),
    ]  # fmt: skip
    server = serve_metrics("127.0.0.1", 0, MirrorCollector(lambda: rows, lambda: [("shop", True)]))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    seen = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert 60 <= seen["lag_seconds", "shop"] < 120
    assert seen["table_waiting_entries", "shop", "interval", "shop.a"] == 4
    assert seen["lag_seconds", "billing"] == 0  # no entry was added since
    assert seen["applied_rows_total", "shop"] == 3
    assert seen["tables", "shop", "stopped"] == 2 and seen["tables", "billing", "stopped"] == 0
    assert seen["stage_up", "shop", "log"] == 1 and seen["stage_up", "shop", "apply"] == 0
    assert seen["stage_up", "billing", "apply"] == 1
    assert seen["failing_tables", "shop"] == 1
    assert seen["stopped_timestamp_seconds", "shop", "shop.a"] == 12
    assert seen["table_rows_total", "shop", "shop.b"] == 3
    assert seen["table_phase_seconds_total", "shop", "write", "shop.b"] == 0.5
    assert seen["histories", "shop", "complete"] == 2 and seen["histories", "shop", "stopped"] == 0
    assert seen["histories_lsn", "shop"] == 9 and ("histories_lsn", "billing") not in seen
    assert seen["copy_rows", "shop", "shop.orders"] == 5
    assert 600 <= seen["proof_age_seconds", "shop", "shop.b"] < 660
    assert seen["differing_tables", "shop"] == 1 and seen["unproved_tables", "shop"] == 2
    assert ("differing_tables", "billing") not in seen  # that job compares nothing
    assert seen["proof_rows_total", "shop"] == 8
    assert ("copy_remaining_seconds", "shop", "shop.orders") not in seen


def test_the_time_of_a_step_is_divided_without_rest() -> None:
    times = iter([0.0, 10.0, 11.0, 13.0, 16.0, 20.0, 25.0])
    clock = StepClock(lambda: next(times))
    clock.begin()  # 10
    with clock.phase(StepPhase.WRITE), clock.phase(StepPhase.COMMIT):  # from 11, from 13 to 16
        pass
    # the writing ends at 20
    seconds = clock.seconds()  # 25
    assert seconds == {
        StepPhase.READ: 0,
        StepPhase.PLAN: 1 + 5,
        StepPhase.WRITE: 2 + 4,
        StepPhase.COMMIT: 3,
    }


def test_a_bounded_number_of_tables_is_counted_by_itself() -> None:
    counter = ProgressCounter("shop")
    for number in range(TABLES_MAX + 5):
        counter.stepped(f"shop.t{number}", 2, {StepPhase.READ: 1.0})
    counter.stepped("shop.t0", 2, {})
    at = datetime(2026, 11, 22, tzinfo=UTC)
    stopped = TableRecord("id", "shop", "shop", "bad", state=Stopped(7, Live()), at=at)
    good = TableRecord("other", "shop", "shop", "good")
    history = TableRecord("h", "shop", "shop", "good", state=Creating(), history=True)
    now = counter.progress(0, 0, [stopped, good, history])
    assert len(now.stepped) == TABLES_MAX + 1
    assert now.stepped[OTHER_TABLES].rows == 10
    assert now.stepped["shop.t0"].steps == 2 and now.stepped["shop.t0"].seconds[StepPhase.READ] == 1
    assert now.stopped == {"shop.bad": at.timestamp()}
    assert now.tables == {TableState.STOPPED: 1, TableState.COMPLETE: 1}
    assert now.histories == {TableState.CREATING: 1}


def test_the_oldest_proofs_are_counted_by_table() -> None:
    tables = [TableRecord(f"t{i}", "shop", "shop", f"t{i}") for i in range(TABLES_MAX + 3)]
    new, differs = TableRecord("new", "shop", "shop", "new"), tables[0]
    stopped = TableRecord("s", "shop", "shop", "stopped", state=Stopped(7, Live()))
    proofs = {t.table_id: Proof(t.table_id, "shop", proved=float(i)) for i, t in enumerate(tables)}
    proofs[differs.table_id] = Proof("t0", "shop", proved=0.5, difference=Difference(9.0, 2))
    proofs["s"] = Proof("s", "shop", difference=Difference(9.0, 2))
    found = proved_tables([*tables, new, stopped], proofs)
    assert (found.differing, found.unproved) == (1, 1)
    assert list(found.since) == [f"shop.t{i}" for i in range(TABLES_MAX)]
