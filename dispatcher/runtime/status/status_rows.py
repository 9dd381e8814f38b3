"""The rows of `GET /v1/binlogs`: one for each consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dispatcher.dispatch import status
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.queue.reader import ReaderState
from dispatcher.runtime.client.consumer_session import ConsumerSession
from dispatcher.runtime.status.history import Sample
from dispatcher.runtime.status.rates import Counted, Rate, Rates

_STREAMING = status.PHASE_STATES[Phase.STREAMING]
_CONNECTING = status.PHASE_STATES[Phase.CONNECTING]
_SESSION_MIN = 10**12  # in ms, the year 2001: a smaller number is not a time


def status_rows(
    sessions: Iterable[ConsumerSession], rates: Rates
) -> Iterator[tuple[dict[str, Any], Consumer]]:
    """Yield a row and its consumer for each session. Consumers may be added and removed between two rows."""
    sessions = list(sessions)
    now = time.monotonic()
    rate = rates.sample(_counted(sessions), now)
    for session in sessions:
        row = row_of(session, rate, now)
        if row is not None:
            yield row, session.consumer


def row_of(
    session: ConsumerSession, rate: Callable[[Counted], Rate], now: float
) -> dict[str, Any] | None:
    """Returns the row of one consumer; None if the consumer is being replaced and no longer belongs to its client.

    `now`: s of the monotonic clock.
    """
    client, consumer = session.runner.client, session.consumer
    if client.consumers.get(consumer.name) is not consumer:
        return None
    row = status.status_row(client, consumer, rate, time.time(), now)
    return row | {"state": shown_state(session)} | _reader_columns(session, rate, now)


def shown_state(session: ConsumerSession) -> str:
    """Returns what `status.consumer_state` returns, except that a consumer is `streaming` only after its dump is
    requested.

    Before the request the daemon stores the consumer's first position. So once a person sees `streaming`, the consumer
    will get everything that the server commits afterwards, even if the daemon is killed.
    """
    client, consumer = session.runner.client, session.consumer
    state = status.consumer_state(client, consumer)
    has_begun = state != _STREAMING or session.runner.dumps(consumer.dispatcher)
    return state if has_begun else _CONNECTING


def status_samples(
    sessions: Iterable[ConsumerSession], rates: Rates
) -> Iterator[tuple[str, Sample]]:
    """Yield for each consumer the values that the history keeps, without the cost of whole rows."""
    sessions = list(sessions)
    now = time.monotonic()
    rate = rates.sample(_counted(sessions), now)
    for session in sessions:
        client, consumer = session.runner.client, session.consumer
        if client.consumers.get(consumer.name) is consumer:
            dispatcher = status.dispatcher_of(client, consumer)
            read = rate(dispatcher)[1] if dispatcher else 0.0
            lag_s = status.lag_s(client, consumer, time.time(), now)
            yield (
                consumer.name,
                Sample(session.queue.held_bytes, lag_s, rate(session.reader)[1], read),
            )


def _counted(sessions: Iterable[ConsumerSession]) -> Iterator[Counted]:
    for client in dict.fromkeys(session.runner.client for session in sessions):
        yield from client.dispatchers.values()
    for session in sessions:
        yield session.reader


def _reader_columns(
    session: ConsumerSession, rate: Callable[[Counted], Rate], now: float
) -> dict[str, Any]:
    reader = session.reader
    unacknowledged = session.queue.unacknowledged_bytes > 0
    state = reader.state(now, unacknowledged=unacknowledged, full=session.lacks_room)
    if session.consumer.delivery_paused:
        state = ReaderState.PAUSED
    transactions, bytes_ = rate(reader)
    return {
        "reader": state.value,
        "reader_address": reader.caller.address or None,
        "reader_user_agent": reader.caller.user_agent or None,
        "session": session.number,
        "session_age_seconds": _session_age_s(session.number, time.time()),
        "poll_age_seconds": _age_s(reader.polled_at, now),
        "acknowledgement_age_seconds": _age_s(reader.acknowledged_at, now),
        "delivered_transactions": reader.events,
        "delivered_bytes": reader.bytes,
        "delivered_transactions_per_sec": round(transactions, 1),
        "delivered_bytes_per_sec": round(bytes_, 1),
    }


def _age_s(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def _session_age_s(number: int, now_s: float) -> float | None:
    """Return how long ago a session was opened: the session's number is the time of the opening, in ms since 1970."""
    return round(max(0.0, now_s - number / 1000), 3) if number >= _SESSION_MIN else None
