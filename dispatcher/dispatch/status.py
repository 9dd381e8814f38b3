"""The rows of `GET /v1/binlogs`, one for each consumer. The metrics are computed from the same rows.

The first 19 columns have the names and meanings of ClickHouse's `system.mysql_binlogs`; the other columns exist only in
this daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.history import runway
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.model.errors import Action, with_name
from dispatcher.model.position import Position

PHASE_STATES = {
    Phase.CONNECTING: "connecting",
    Phase.STREAMING: "streaming",
    Phase.PAUSED: "paused",
    Phase.BACKPRESSURE_CLOSED: "closed",
    Phase.ENDED: "ended",
}
STATES = (*PHASE_STATES.values(), "detached", "failed")


def dispatcher_of(client: Client, consumer: Consumer) -> Dispatcher | None:
    """Returns the dispatcher that a consumer is attached to."""
    return None if consumer.dispatcher is None else client.dispatchers[consumer.dispatcher]


def consumer_state(client: Client, consumer: Consumer) -> str:
    """Returns `failed`, `connecting`, `streaming`, `paused` (the dispatcher does not read, because a queue is full or
    the server must answer a question first), `closed` (the connection is closed until all queues have room), `ended`
    (all files were read, and the daemon does not wait for new ones) or `detached` (the consumer has no dispatcher, and
    waits to attach to one)."""
    if consumer.failed:
        return "failed"
    dispatcher = dispatcher_of(client, consumer)
    if dispatcher is None:
        return "detached"
    error, connecting = consumer.error, dispatcher.phase is Phase.CONNECTING
    if error is not None and error.action is Action.OPERATOR and connecting:
        return "failed"
    return PHASE_STATES[dispatcher.phase]


def lag_s(client: Client, consumer: Consumer, now_s: float, now: float) -> float:
    """The age of the oldest transaction that the reader has not acknowledged; 0 if the reader has acknowledged all.

    While the consumer gets nothing, because it has failed, waits or is not connected, the server may commit
    transactions that the daemon does not see. During this time, the lag is at least the time since the consumer was
    last known to have the whole log.

    `now_s`: wall clock, s since 1970; `now`: by the clock of `Client.step`.
    """
    return _age_s(client, consumer, consumer.queue.oldest_commit_us, now_s, now)


def _age_s(
    client: Client, consumer: Consumer, oldest_us: int | None, now_s: float, now: float
) -> float:
    """Returns the age, in seconds, of the oldest transaction that a reader lacks. `oldest_us`: commit time of the
    oldest transaction that the reader lacks and the queue holds, microseconds since 1970 UTC."""
    oldest = [oldest_us]
    dispatcher = dispatcher_of(client, consumer)
    missing_s = 0.0
    if dispatcher is None or not dispatcher.current:
        current_at = consumer.current_at
        if dispatcher is not None:
            current_at = max(current_at, dispatcher.current_at)
        missing_s = now - current_at
        oldest.append(consumer.evicted_commit_us)
    ages = [now_s - oldest_us / 1e6 for oldest_us in oldest if oldest_us is not None]
    return max(0.0, missing_s, *ages)


def lag_bytes(client: Client, consumer: Consumer) -> int | None:
    """Returns how many bytes the server's log contains after the consumer's covered position, as of the last poll of
    the server; None if not known."""
    if not consumer.started or client.last_poll is None:
        return None
    queue, covered = consumer.queue, consumer.queue.covered
    return runway.bytes_behind(client.last_poll, queue.server, covered.file, covered.offset)


def lag_behind(
    client: Client, consumer: Consumer, end: Position, head: Position, now_s: float, now: float
) -> dict[str, Any]:
    """Returns how far `end`, a position that was returned to a reader, is from `head`, the end of the server's log.

    The result contains `lag_transactions`: the number of transactions in the server's log, not only those of the
    consumer; None without MySQL's GTIDs, because then `seq` does not count transactions; `lag_bytes`: None if not
    known; `lag_seconds`: the age of the consumer's first transaction after `end`. For the other arguments see `lag_s`.
    """
    queue = consumer.queue
    counted = queue.mode is Mode.GTID and end.epoch == head.epoch
    size = None
    if client.last_poll is not None:
        size = runway.bytes_behind(client.last_poll, queue.server, end.file, end.offset)
    if end.file and (end.server, end.file) == (head.server, head.file):
        size = max(size or 0, head.offset - end.offset)  # the poll may be older than `head`
    age_s = _age_s(client, consumer, queue.commit_us_behind(end), now_s, now)
    return {
        "lag_transactions": max(0, head.seq - end.seq) if counted else None,
        "lag_bytes": size,
        "lag_seconds": round(age_s, 3),
    }


def dispatcher_name(client: Client, dispatcher: Dispatcher) -> str:
    """`<first consumer>:<number>`, as metrics and the status page name a dispatcher."""
    return f"{next(iter(client.consumers))}:{dispatcher.number}"


def status_row(
    client: Client,
    consumer: Consumer,
    rate: Callable[[Dispatcher], tuple[float, float]],
    now_s: float,
    now: float,
) -> dict[str, Any]:
    """Returns the row of a consumer. `rate`: events and bytes that a dispatcher read, per second; `now_s`: wall clock,
    s since 1970; `now`: by the clock of `Client.step`."""
    queue = consumer.queue
    dispatcher = dispatcher_of(client, consumer)
    delivered = max(queue.delivered_seq, queue.acknowledged.seq)
    executed = queue.queued if delivered >= queue.queued.seq else queue.acknowledged
    started = consumer.started
    runway_s = client.runway_s(consumer.name, now_s)
    error = consumer.error or client.duplicate
    return {
        "binlog_client_name": client.label,
        "name": consumer.name,
        **_columns("mysql_binlog", executed if started else None, _commit_s(consumer, now_s)),
        **_dispatcher_columns(client, dispatcher),
        "size": queue.events,
        "bytes": queue.held_bytes,
        "max_bytes": queue.bytes_max,
        "max_waiting_ms": round(consumer.spec.wait_max_s * 1000),
        **_rates(rate(dispatcher) if dispatcher else (0.0, 0.0)),
        "state": consumer_state(client, consumer),
        "lag_seconds": round(lag_s(client, consumer, now_s, now), 3),
        "lag_bytes": lag_bytes(client, consumer),
        "unacknowledged_bytes": queue.unacknowledged_bytes,
        "acknowledged": queue.position(queue.acknowledged).as_dict() if started else None,
        "covered": queue.position(queue.covered).as_dict() if started else None,
        "runway_seconds": None if runway_s is None else round(runway_s, 1),
        "detaches": consumer.detaches,
        "gaps": consumer.gaps,
        "spilled_bytes": queue.spilled_bytes,
        "last_error": with_name(str(error), consumer.name) if error else None,
        "last_error_kind": error.kind.name if error else None,
        "last_error_remedy": with_name(error.remedy, consumer.name) if error else None,
        "declared_by": consumer.spec.declared_by,
        "warnings": list(consumer.warnings),
    }


def _dispatcher_columns(client: Client, dispatcher: Dispatcher | None) -> dict[str, Any]:
    name = dispatcher_name(client, dispatcher) if dispatcher else ""
    read, timestamp = (dispatcher.read, dispatcher.last_timestamp) if dispatcher else (None, 0)
    return {"dispatcher_name": name, **_columns("dispatcher_mysql_binlog", read, timestamp)}


def _rates(rate: tuple[float, float]) -> dict[str, Any]:
    """Returns the columns of the rates. The flush rates equal the read rates, because a dispatcher puts all of a buffer
    into the queues before it reads the next buffer."""
    return {
        f"dispatcher_{unit}_{verb}_per_sec": round(value, 1)
        for verb in ("read", "flush")
        for unit, value in zip(("events", "bytes"), rate, strict=True)
    }


def _commit_s(consumer: Consumer, now_s: float) -> int:
    oldest_us = consumer.queue.oldest_commit_us
    return int(now_s) if oldest_us is None else oldest_us // 1_000_000


def _columns(prefix: str, executed: ExecutedPosition | None, timestamp: int) -> dict[str, Any]:
    return {
        f"{prefix}_name": executed.file if executed else "",
        f"{prefix}_pos": executed.offset if executed else 0,
        f"{prefix}_timestamp": timestamp if executed else 0,
        f"{prefix}_executed_gtid_set": str(executed.gtids) if executed else "",
    }
