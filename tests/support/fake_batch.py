"""Makes batches for tests of rules that use few fields of a batch."""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.event.header import parse_format_description
from dispatcher.stream.batch import Batch, Events, Head, Transactions
from tests.support.event_encoder import format_description


def batch_of(file: str, offset: int, head: Head | None, *, transactions: int = 0) -> Batch:
    """Returns a batch of empty transactions without GTIDs. The last one ends at `offset`."""
    tx = Transactions.empty(transactions)
    for column in tx:
        column[:] = 0
    tx.source[:] = -1
    tx.end[:] = offset
    format_ = parse_format_description(format_description())
    buf = np.zeros(0, dtype=np.uint8)
    return Batch(buf, format_, file, offset, 0, Events.empty(0), tx, [], 0, 0, None, head)
