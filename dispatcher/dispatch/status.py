"""What a consumer looks like from outside: one row of `GET /v1/binlogs`, and what the metrics are made of.

The first 19 columns are those of ClickHouse's `system.mysql_binlogs`, under their own names, so that people who know
them are at home; the rest is what they lacked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dispatcher.dispatch.client import Client
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.executed_position import ExecutedPosition
from dispatcher.model.errors import Action

_STATES = {
    Phase.CONNECTING: "connecting",
    Phase.STREAMING: "streaming",
    Phase.PAUSED: "paused",
    Phase.BACKPRESSURE_CLOSED: "closed",
    Phase.ENDED: "ended",
}
STATES = (*_STATES.values(), "detached", "failed")


def dispatcher_of(client: Client, consumer: Consumer) -> Dispatcher | None:
    """The one that it rides on."""
    return None if consumer.dispatcher is None else client.dispatchers[consumer.dispatcher]


def state(client: Client, consumer: Consumer) -> str:
    """`failed`, `connecting`, `streaming`, `paused` (waits for somebody's room), `closed` (the same, disconnected),
    `ended` (all of the files was read, and they are not followed), `detached` (has no dispatcher until it has room)."""
    if consumer.failed:
        return "failed"
    dispatcher = dispatcher_of(client, consumer)
    if dispatcher is None:
        return "detached"
    error = consumer.error
    if (
        error is not None
        and error.action is Action.OPERATOR
        and dispatcher.phase is Phase.CONNECTING
    ):
        return "failed"
    return _STATES[dispatcher.phase]


def lag_s(consumer: Consumer, now_s: float) -> float:
    """How old the oldest transaction is that the reader has not acknowledged; 0 when it has all of them."""
    oldest_us = consumer.queue.oldest_commit_us
    return 0.0 if oldest_us is None else max(0.0, now_s - oldest_us / 1e6)


def name_of(client: Client, dispatcher: Dispatcher) -> str:
    """`<first consumer>:<number>`: what people and metrics call a dispatcher."""
    return f"{next(iter(client.consumers))}:{dispatcher.number}"


def row(
    client: Client,
    consumer: Consumer,
    rate: Callable[[Dispatcher], tuple[float, float]],
    now_s: float,
) -> dict[str, Any]:
    """`rate`: events and bytes that a dispatcher read, per second; `now_s`: wall clock, s since 1970."""
    queue = consumer.queue
    dispatcher = dispatcher_of(client, consumer)
    delivered = max(queue.delivered_seq, queue.acknowledged.seq)
    at = queue.queued if delivered >= queue.queued.seq else queue.acknowledged
    started = consumer.started
    runway_s = client.runway_s(consumer.name, now_s)
    return {
        "binlog_client_name": client.label,
        "name": consumer.name,
        **_place("mysql_binlog", at if started else None, _commit_s(consumer, now_s)),
        **_of_dispatcher(client, dispatcher),
        "size": queue.events,
        "bytes": queue.held_bytes,
        "max_bytes": queue.bytes_max,
        "max_waiting_ms": round(consumer.spec.wait_max_s * 1000),
        **_rates(rate(dispatcher) if dispatcher else (0.0, 0.0)),
        "state": state(client, consumer),
        "lag_seconds": round(lag_s(consumer, now_s), 3),
        "unacknowledged_bytes": queue.unacknowledged_bytes,
        "acknowledged": queue.position(queue.acknowledged).as_dict() if started else None,
        "covered": queue.position(queue.covered).as_dict() if started else None,
        "runway_seconds": None if runway_s is None else round(runway_s, 1),
        "detaches": consumer.detaches,
        "gaps": consumer.gaps,
        "spilled_bytes": queue.spilled_bytes,
        "last_error": str(consumer.error) if consumer.error else None,
    }


def _of_dispatcher(client: Client, dispatcher: Dispatcher | None) -> dict[str, Any]:
    """A consumer that rides on none has none to tell of."""
    name = name_of(client, dispatcher) if dispatcher else ""
    read, timestamp = (dispatcher.read, dispatcher.last_timestamp) if dispatcher else (None, 0)
    return {"dispatcher_name": name, **_place("dispatcher_mysql_binlog", read, timestamp)}


def _rates(rate: tuple[float, float]) -> dict[str, Any]:
    """What is read is flushed: a dispatcher hands on all of a buffer before it reads the next one."""
    return {
        f"dispatcher_{what}_{how}_per_sec": round(value, 1)
        for how in ("read", "flush")
        for what, value in zip(("events", "bytes"), rate, strict=True)
    }


def _commit_s(consumer: Consumer, now_s: float) -> int:
    oldest_us = consumer.queue.oldest_commit_us
    return int(now_s) if oldest_us is None else oldest_us // 1_000_000


def _place(prefix: str, place: ExecutedPosition | None, timestamp: int) -> dict[str, Any]:
    return {
        f"{prefix}_name": place.file if place else "",
        f"{prefix}_pos": place.offset if place else 0,
        f"{prefix}_timestamp": timestamp if place else 0,
        f"{prefix}_executed_gtid_set": str(place.gtids) if place else "",
    }
