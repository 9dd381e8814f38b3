"""The listener converts Spark's reports to metrics and to lines of the log. The tests need no Spark."""

from __future__ import annotations

import json
import logging
import urllib.request
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pyspark.sql.streaming.listener import QueryProgressEvent

from spark_sink.log_lines import JsonLines, formatter, log_event
from spark_sink.metrics_server import serve_metrics
from spark_sink.source.listener import STREAM_PREFIX, BinlogListener, StreamCollector
from spark_sink.source.stream_progress import batch_reports, latest_offset
from tests.support.hostile_text import HOSTILE, SHOWN, acts
from tests.support.stream_reports import (
    STREAM_END,
    STREAM_LAG,
    TOLD,
    progress_report,
    query_reported,
    query_started,
    query_terminated,
)


def _labels(sample: Sample) -> list[str]:
    return [name for name in ("query", "consumer", "phase") if name in sample.labels]


def scraped(listener: BinlogListener) -> dict[tuple[str | None, ...], float]:
    server = serve_metrics("127.0.0.1", 0, StreamCollector(listener))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    return {
        (
            sample.name.removeprefix(STREAM_PREFIX),
            *map(sample.labels.get, _labels(sample)),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("as_text", [False, True])
def test_a_report_of_each_source_of_ours(as_text: bool) -> None:
    offsets = {"endOffset": STREAM_END.as_dict(), "latestOffset": TOLD}
    given = {key: json.dumps(value) for key, value in offsets.items()} if as_text else {}
    (report,) = batch_reports(progress_report(4, **given))
    assert (report.query, report.consumer, report.batch) == ("orders", "shop", 4)
    assert (report.transactions, report.bytes, report.rows) == (3, 896, 5)
    assert report.lag == STREAM_LAG and report.end == STREAM_END
    assert report.seconds == 0.25
    assert report.phases == {"latestOffset": 0.01, "addBatch": 0.2, "walCommit": 0.03}


def test_reports_without_a_batch_are_left_out() -> None:
    waiting = progress_report() | {"durationMs": {"latestOffset": 3, "triggerExecution": 3}}
    assert not list(batch_reports(waiting))


def test_the_metrics_of_a_query() -> None:
    listener = BinlogListener()
    query_started(listener)
    assert not [name for name, *_ in scraped(listener) if name == "up"]  # unknown: other sources
    for batch in range(2):
        query_reported(listener, progress_report(batch))
    seen = scraped(listener)
    assert seen["up", "orders"] == 1
    assert seen["lag_transactions", "orders", "shop"] == 7
    assert seen["lag_bytes", "orders", "shop"] == 100
    assert seen["lag_seconds", "orders", "shop"] == 1.5
    assert seen["batches_total", "orders", "shop"] == 2
    assert seen["transactions_total", "orders", "shop"] == 6
    assert seen["rows_total", "orders", "shop"] == 10
    assert seen["bytes_total", "orders", "shop"] == 2 * 896
    assert seen["phase_seconds_total", "orders", "shop", "addBatch"] == pytest.approx(0.4)


def test_the_events_of_spark_connect() -> None:
    """The client of Spark Connect makes the events from JSON."""
    nothing = {"timestamp": "2026-11-22T17:28:30.695Z", "batchDuration": 250, "stateOperators": []}
    sink = {"description": "none", "numOutputRows": -1}
    sources = [
        {"description": "binlog", "startOffset": None, "inputRowsPerSecond": 0.0} | source
        | {"latestOffset": TOLD, "processedRowsPerSecond": 0.0}
        for source in progress_report()["sources"][1:]
    ]  # fmt: skip
    ids = {"id": str(UUID(int=1)), "runId": str(UUID(int=2))}
    report = progress_report() | nothing | ids | {"sink": sink, "sources": sources}
    listener = BinlogListener()
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": report}))
    assert scraped(listener)["lag_transactions", "orders", "shop"] == 7


def test_rows_that_spark_does_not_see() -> None:
    listener = BinlogListener(
        lambda query, batch: 1000 if (query, batch) == ("orders", 0) else None
    )
    query_reported(listener, progress_report(0))
    query_reported(listener, progress_report(1))
    assert scraped(listener)["rows_total", "orders", "shop"] == 1005


def test_a_batch_that_was_planned_before_a_restart() -> None:
    listener = BinlogListener()
    query_reported(listener, progress_report(0, latestOffset=None))
    seen = scraped(listener)
    assert seen["batches_total", "orders", ""] == 1 and ("lag_bytes", "orders", "") not in seen
    query_reported(listener, progress_report(1))
    query_reported(listener, progress_report(2, latestOffset=None))
    seen = scraped(listener)
    assert (
        seen["batches_total", "orders", "shop"] == 3 and ("batches_total", "orders", "") not in seen
    )


def test_a_query_ends() -> None:
    listener = BinlogListener()
    query_reported(listener, progress_report())  # whose start the listener has not seen
    query_terminated(listener, exception="broken")
    assert scraped(listener)["up", "orders"] == 0
    query_started(listener, "run-2")
    query_terminated(listener, "run-1", "broken")  # this event is late
    query_reported(listener, progress_report(run="run-2"))
    seen = scraped(listener)
    assert seen["up", "orders"] == 1 and seen["batches_total", "orders", "shop"] == 2
    query_terminated(listener, "run-2")
    assert not [key for key in scraped(listener) if key[-1] in ("orders", "shop")]


def test_a_batch_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark_sink.streams")
    listener = BinlogListener()
    query_reported(listener, progress_report(3))
    (line,) = caplog.records
    assert line.getMessage() == (
        "batch consumer=shop query=orders batch=3 transactions=3 rows=5 bytes=896 seconds=0.25"
        " lag_transactions=7 lag_bytes=100 lag_seconds=1.5 latestOffset_s=0.01 addBatch_s=0.2 walCommit_s=0.03"
    )
    fields = json.loads(JsonLines().format(line))
    assert fields["event"] == "batch" and fields["lag_bytes"] == 100 and fields["level"] == "info"
    told = latest_offset(STREAM_END, "shop", (0, 0), STREAM_LAG)
    query_reported(listener, progress_report(4, latestOffset=told))
    assert caplog.records[-1].levelno == logging.DEBUG  # the batch is empty


def test_a_line_of_text_shows_foreign_text_in_escapes(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("spark_sink.lines")
    caplog.set_level(logging.INFO, logger.name)
    log_event(logger, "step", {"table": HOSTILE})
    logger.info("%s: plain", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("defect")
    lines = [formatter("console").format(record) for record in caplog.records]
    assert [len(acts(line)) for line in lines] == [0, 0, 0]
    assert [len(line.splitlines()) for line in lines[:2]] == [1, 1] and SHOWN in lines[1]
    assert all(line.startswith("  ") for line in lines[2].splitlines()[1:])


def test_a_line_of_json_holds_foreign_text_exactly(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("spark_sink.lines")
    caplog.set_level(logging.INFO, logger.name)
    log_event(logger, "step", {"table": HOSTILE})
    (record,) = caplog.records
    line = formatter("json").format(record)
    assert json.loads(line)["table"] == HOSTILE and acts(line) == []


def test_lines_are_text_or_json(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("spark_sink.lines")
    caplog.set_level(logging.INFO, logger.name)
    log_event(logger, "step", {"table": "shop.orders", "reason": 'it says "no"', "seconds": 2.0})
    logger.info("%s: plain", "shop")
    event, plain = caplog.records
    assert (
        formatter("console")
        .format(event)
        .endswith('INFO step table=shop.orders reason="it says \\"no\\"" seconds=2')
    )
    assert json.loads(formatter("json").format(plain))["event"] == "shop: plain"
    assert json.loads(formatter("json").format(event))["reason"] == 'it says "no"'
