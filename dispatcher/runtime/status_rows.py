"""The rows of `GET /v1/binlogs`: one for each consumer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from dispatcher.dispatch import status
from dispatcher.dispatch.consumer import Consumer
from dispatcher.runtime.consumer_session import ConsumerSession
from dispatcher.runtime.rates import Rates


def status_rows(
    sessions: Iterable[ConsumerSession], rates: Rates
) -> Iterator[tuple[dict[str, Any], Consumer]]:
    """Yield a row and its consumer for each session. Consumers may come and go between two rows."""
    sessions = list(sessions)
    rate = rates.sample(
        dict.fromkeys(session.runner.client for session in sessions), time.monotonic()
    )
    for session in sessions:
        client, consumer = session.runner.client, session.consumer
        # A consumer that is just being replaced does not belong to its client any more.
        if client.consumers.get(consumer.name) is consumer:
            yield status.status_row(client, consumer, rate, time.time()), consumer
