"""The rules of the demo: which observations are violations, and which are not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.demo.processes import DemoFailed
from deploy.demo.watch import (
    GRACE_S,
    MEMORY_BASE_BYTES,
    DemoConsumer,
    Observation,
    Rules,
    consumers_of,
    mirror_progress,
)
from dispatcher.model.gtid import GtidSet
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.metrics import MirrorCollector
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.runtime.progress import ConsumerProgress

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CONSUMERS = (
    DemoConsumer("shop", "repl", ("shop",), 1000),
    DemoConsumer("billing", "repl", ("billing",), 1000),
    DemoConsumer("stock", "depot", ("stock",), 1000),
    DemoConsumer("alone", "repl", ("shop",), 1000, shared=False),
)
OPEN = {"repl": 2, "depot": 1}


def row(state: str, **more: Any) -> dict[str, Any]:
    given = {
        "state": state,
        "bytes": 0,
        "max_bytes": 1000,
        "last_error": None,
        "covered": {"gtid": f"{UUID}:1-7"},
    }
    return given | more


def observation(
    at: float = 0.0, dumps: dict[str, int] = OPEN, *, alone: str = "streaming", **more: Any
) -> Observation:
    rows = {consumer.name: row("streaming") for consumer in CONSUMERS} | {"alone": row(alone)}
    rows |= more.pop("rows", {})
    peak = more.pop("peak", 0)
    return Observation(at, rows, dumps, GtidSet.parse(f"{UUID}:1-10"), peak, peak, {})


def rules() -> Rules:
    return Rules(CONSUMERS)


def test_one_thread_per_connection_and_one_for_the_unshared_consumer() -> None:
    checked = rules()
    assert checked.expected_dumps(observation()) == OPEN
    assert all(checked.wrong(observation(float(at))) is None for at in range(20))


@pytest.mark.parametrize(
    "dumps", [{"repl": 3, "depot": 1}, {"repl": 1, "depot": 1}, {"repl": 2}, {}]
)
def test_a_lasting_wrong_number_of_threads_is_a_violation(dumps: dict[str, int]) -> None:
    checked = rules()
    assert checked.wrong(observation(0.0)) is None
    assert checked.wrong(observation(1.0, dumps)) is None
    assert "dump threads" in (checked.wrong(observation(GRACE_S + 1.0, dumps)) or "")


def test_a_thread_that_is_about_to_end_is_no_violation() -> None:
    checked = rules()
    assert checked.wrong(observation(0.0)) is None
    assert checked.wrong(observation(GRACE_S - 0.5, alone="closed")) is None
    assert (
        checked.wrong(observation(GRACE_S + 1.0, {"repl": 1, "depot": 1}, alone="closed")) is None
    )
    assert checked.closed_observations == 1


def test_no_thread_for_a_consumer_that_is_closed() -> None:
    checked = rules()
    assert checked.wrong(observation(0.0, alone="closed")) is None
    assert "repl 2" in (checked.wrong(observation(GRACE_S, alone="closed")) or "")
    assert checked.closed_observations == 0


def test_the_threads_of_a_killed_leader_may_end_after_the_takeover() -> None:
    checked = rules()
    left = {"repl": 4, "depot": 2}
    assert checked.wrong(observation(0.0)) is None
    assert checked.wrong(replace(observation(9.0, left), leader="daemon b")) is None
    assert checked.wrong(replace(observation(10.0), leader="daemon b")) is None
    lasting = replace(observation(10.0 + GRACE_S, left), leader="daemon b")
    assert "depot 2, repl 4" in (checked.wrong(lasting) or "")


def test_a_standby_has_no_list_of_consumers() -> None:
    rows = [row("streaming", name="shop")]
    assert consumers_of(200, json.dumps(rows).encode()) == {"shop": rows[0]}
    refusal = {"kind": "NOT_LEADER", "leader": "http://127.0.0.1:8085"}
    assert consumers_of(503, json.dumps(refusal).encode()) is None
    with pytest.raises(DemoFailed, match="returned 503"):
        consumers_of(503, json.dumps({"kind": "OVERLOADED"}).encode())
    with pytest.raises(DemoFailed, match="returned 500"):
        consumers_of(500, b"{}")


def test_memory_is_bounded_by_the_queues_and_a_base() -> None:
    limit = MEMORY_BASE_BYTES + 4000
    assert rules().memory_bytes_max == limit
    assert rules().wrong(observation(peak=limit - 1)) is None
    assert "resident memory" in (rules().wrong(observation(peak=limit)) or "")


@pytest.mark.parametrize("state", ["failed", "connecting"])
def test_a_consumer_with_an_error_ends_the_demo(state: str) -> None:
    failing = observation(rows={"billing": row(state, last_error="position purged: …")})
    assert "billing" in (rules().wrong(failing) or "")


def test_a_connection_pauses_only_for_its_own_consumers() -> None:
    paused = {name: row("paused") for name in ("shop", "billing")}
    alone = {"alone": row("paused", bytes=1000)}
    assert rules().wrong(observation(rows=alone)) is None
    assert "repl is paused" in (rules().wrong(observation(rows=paused | alone)) or "")
    assert rules().wrong(observation(rows=paused | {"shop": row("paused", bytes=1000)})) is None


def test_the_peak_of_each_queue_is_recorded() -> None:
    checked = rules()
    for count in (5, 900, 7):
        checked.wrong(observation(rows={"shop": row("streaming", bytes=count)}))
    assert checked.held_bytes_max["shop"] == 900


def test_the_peak_of_memory_is_that_of_all_leaders() -> None:
    checked = rules()
    for leader, peak in (("daemon a", 900), ("daemon b", 200)):
        assert checked.wrong(replace(observation(peak=peak), leader=leader)) is None
    assert checked.resident_bytes_max == 900


def test_how_far_a_consumer_is_behind() -> None:
    assert observation().behind("shop") == 3
    assert observation(rows={"shop": row("connecting", covered=None)}).behind("shop") == 10


def test_the_progress_of_the_mirror_is_read_from_its_metrics() -> None:
    copies = (CopyProgress("stock.parts", 30, 100, 9, 1, 3.0, None),)
    tables = {TableState.COMPLETE: 3, TableState.COPYING: 1}
    shop = ConsumerProgress("shop", applied_seq=8, rows=920, steps=5, tables=tables, copies=copies)
    registry = CollectorRegistry()
    registry.register(MirrorCollector(lambda: [shop, ConsumerProgress("billing")]))
    mirrored = mirror_progress(generate_latest(registry).decode())
    progress = mirrored["shop"]
    assert (progress.rows, progress.steps, progress.copied, progress.to_copy) == (920, 5, 30, 100)
    assert (progress.has("complete"), progress.has("copying"), progress.has("stopped")) == (3, 1, 0)
    assert mirrored["billing"].rows == 0
    behind = observation(rows={"shop": row("streaming", acknowledged={"seq": 10})})
    behind = replace(behind, mirrored=mirrored)
    assert behind.unapplied("shop") == 2
