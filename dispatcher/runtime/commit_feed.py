"""Reports the transactions that come into a consumer's queue. It waits for transactions as a reader's poll does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dispatcher.runtime.consumer_sessions import ConsumerSessions

WAIT_S = 60.0
GATHER_S = 0.05  # transactions that come within this time are reported together


@dataclass(frozen=True, slots=True)
class QueuedCommits:
    """Transactions that came into a queue. `position`: the queue's end; `committed_s`: when the newest transaction was
    committed, s since 1970 UTC."""

    consumer: str
    position: dict[str, Any]
    transactions: int
    bytes: int
    committed_s: float


async def follow_commits(
    sessions: ConsumerSessions, name: str, listener: Callable[[QueuedCommits], None]
) -> None:
    """Call `listener` whenever transactions have come into the consumer's queue, until the consumer is removed.

    While this function runs, a reload may replace the consumer. The new consumer begins at the acknowledged position,
    so the transactions after that position are reported again.
    """
    followed, transactions, bytes_ = None, 0, 0
    while name in sessions.names():
        session = sessions.get(name)
        queue = session.queue
        if session.consumer is not followed:
            followed, transactions, bytes_ = session.consumer, 0, 0
        if queue.pushed_transactions > transactions:
            count, size = queue.pushed_transactions - transactions, queue.pushed_bytes - bytes_
            transactions, bytes_ = queue.pushed_transactions, queue.pushed_bytes
            position = queue.position(queue.queued).as_dict()
            listener(QueuedCommits(name, position, count, size, queue.newest_commit_us / 1e6))
            await asyncio.sleep(GATHER_S)
        else:
            await session.wait(WAIT_S)
