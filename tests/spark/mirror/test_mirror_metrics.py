"""The mirror's metrics agree with its progress; no Spark is needed."""

from __future__ import annotations

import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from spark_sink.mirror.control import TableState
from spark_sink.mirror.metrics import PREFIX, serve_metrics
from spark_sink.mirror.progress import ConsumerProgress, CopyState


def test_a_scrape() -> None:
    now = time.time()
    copy = CopyState("shop.orders", rows=5, rows_estimated=10, bytes=500, chunks=1, rest_s=None)
    rows = [
        ConsumerProgress(
            "shop", logged_seq=7, applied_seq=5, logged_at=now, applied_at=now - 60, rows=3,
            tables={TableState.STOPPED: 2}, copies=(copy,),
        ),
        ConsumerProgress("billing", logged_seq=5, applied_seq=5, applied_at=now - 600),
    ]  # fmt: skip
    server = serve_metrics("127.0.0.1", 0, lambda: rows)
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
    assert seen["lag_seconds", "billing"] == 0  # nothing has come since
    assert seen["applied_rows_total", "shop"] == 3
    assert seen["tables", "shop", "stopped"] == 2 and seen["tables", "billing", "stopped"] == 0
    assert seen["copy_rows", "shop", "shop.orders"] == 5
    assert ("copy_remaining_seconds", "shop", "shop.orders") not in seen
