"""Makes progress reports like Spark's, for a query that reads the source "binlog", and the events that contain these
reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from dispatcher.model.position import Position
from spark_sink.source.listener import BinlogListener
from spark_sink.source.stream_progress import SourceLag, latest_offset

STREAM_END = Position("server", "", "binlog.000001", 900, 900, 1)
STREAM_LAG = SourceLag(transactions=7, bytes=100, seconds=1.5)
TOLD = latest_offset(STREAM_END, "shop", (3, 896), STREAM_LAG)


def progress_report(
    batch: int = 0, *, run: str = "run-1", name: str = "orders", **source: Any
) -> dict[str, Any]:
    """Returns the report of a query with two sources: the source "binlog" and another one. `source`: values of
    "binlog"."""
    ours = {"endOffset": STREAM_END.as_dict(), "latestOffset": TOLD, "numInputRows": 5} | source
    durations = {"latestOffset": 10, "addBatch": 200, "walCommit": 30, "triggerExecution": 250}
    return {
        "id": "id-1",
        "runId": run,
        "name": name,
        "batchId": batch,
        "durationMs": durations,
        "sources": [{"endOffset": {"topic": {"0": 12}}, "numInputRows": 9}, ours],
    }


def query_reported(listener: BinlogListener, report: dict[str, Any]) -> None:
    event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))
    listener.onQueryProgress(event)


def query_started(listener: BinlogListener, run: str = "run-1") -> None:
    event: Any = SimpleNamespace(id="id-1", runId=run, name="orders")
    listener.onQueryStarted(event)


def query_terminated(
    listener: BinlogListener, run: str = "run-1", exception: str | None = None
) -> None:
    event: Any = SimpleNamespace(id="id-1", runId=run, exception=exception)
    listener.onQueryTerminated(event)
