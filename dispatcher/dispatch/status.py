"""What a consumer looks like from outside: one row of `GET /v1/binlogs`, and what the metrics are made of.

The first 19 columns are those of ClickHouse's `system.mysql_binlogs`, under their own names, so that people who know
them are at home; the rest is what they lacked.
"""

from __future__ import annotations

from typing import Any

from dispatcher.dispatch.client import Client, Consumer, Phase
from dispatcher.dispatch.history import Place


def state(client: Client, consumer: Consumer) -> str:
    """`failed`, `connecting`, `streaming`, `paused` (waits for somebody's room), `closed` (the same, disconnected),
    `ended` (all of the files was read, and they are not followed)."""
    if consumer.failed:
        return "failed"
    if (
        consumer.error is not None
        and consumer.error.action == "operator"
        and client.phase is Phase.CONNECTING
    ):
        return "failed"
    return {
        Phase.IDLE: "idle",
        Phase.CONNECTING: "connecting",
        Phase.STREAMING: "streaming",
        Phase.PAUSED: "paused",
        Phase.ROOMLESS: "closed",
        Phase.ENDED: "ended",
    }[client.phase]


def lag_s(consumer: Consumer, now_s: float) -> float:
    """How old the oldest transaction is that the reader has not acknowledged; 0 when it has all of them."""
    oldest_us = consumer.queue.oldest_commit_us
    return 0.0 if oldest_us is None else max(0.0, now_s - oldest_us / 1e6)


def row(
    client: Client, consumer: Consumer, rates: tuple[float, float], now_s: float
) -> dict[str, Any]:
    """`rates`: events and bytes that the dispatcher read, per second; `now_s`: wall clock, s since 1970."""
    queue = consumer.queue
    read = client.read
    delivered = max(queue.delivered_seq, queue.acknowledged.seq)
    at = queue.queued if delivered >= queue.queued.seq else queue.acknowledged
    started = consumer.started
    return {
        "binlog_client_name": client.label,
        "name": consumer.name,
        **_place("mysql_binlog", at if started else None, _commit_s(consumer, now_s)),
        "dispatcher_name": f"{next(iter(client.consumers))}:1",
        **_place("dispatcher_mysql_binlog", read, client.last_timestamp),
        "size": queue.events,
        "bytes": queue.held_bytes,
        "max_bytes": queue.bytes_max,
        "max_waiting_ms": 0,
        "dispatcher_events_read_per_sec": round(rates[0], 1),
        "dispatcher_bytes_read_per_sec": round(rates[1], 1),
        "dispatcher_events_flush_per_sec": round(rates[0], 1),
        "dispatcher_bytes_flush_per_sec": round(rates[1], 1),
        "state": state(client, consumer),
        "lag_seconds": round(lag_s(consumer, now_s), 3),
        "unacknowledged_bytes": queue.unacknowledged_bytes,
        "acknowledged": queue.position(queue.acknowledged).as_dict() if started else None,
        "covered": queue.position(queue.covered).as_dict() if started else None,
        "runway_seconds": None,
        "last_error": str(consumer.error) if consumer.error else None,
    }


def _commit_s(consumer: Consumer, now_s: float) -> int:
    oldest_us = consumer.queue.oldest_commit_us
    return int(now_s) if oldest_us is None else oldest_us // 1_000_000


def _place(prefix: str, place: Place | None, timestamp: int) -> dict[str, Any]:
    return {
        f"{prefix}_name": place.file if place else "",
        f"{prefix}_pos": place.offset if place else 0,
        f"{prefix}_timestamp": timestamp if place else 0,
        f"{prefix}_executed_gtid_set": str(place.gtids) if place else "",
    }
