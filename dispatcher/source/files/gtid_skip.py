"""Leaves executed transactions out of the batches of files, as a server does in a dump by GTIDs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.dispatch.values.executed_position import BatchGtids, ExecutedPosition, Mode
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from dispatcher.stream.batch import ABORTED, OPEN, Batch


class ExecutedFilter:
    """`executed`: the transactions that the stream leaves out. `left`: how many of these transactions the stream has
    not reached yet."""

    def __init__(self, executed: ExecutedPosition, left: int) -> None:
        self._executed = executed
        self._left = left

    def leave_out(self, batch: Batch, label: str) -> None:
        """Remove the executed transactions from a batch. `label`: the label of the folder. Raises BinlogError
        (UNSUPPORTED_EVENT) if a transaction has no GTID."""
        ended = (batch.tx.flags & (OPEN | ABORTED)) == 0
        if (batch.tx.source[ended] < 0).any():
            raise BinlogError(
                ErrorKind.UNSUPPORTED_EVENT,
                "a transaction has no GTID, but others in the folder have one",
                where=f"{label}, before {batch.file}:{batch.offset}",
                remedy="remove the files up to this one from the folder, and move the consumer to the GTID set"
                f" of the next file: {SEEK}",
            )
        if not self._left:
            return
        skip = BatchGtids.of(batch).already_executed(Mode.GTID, self._executed)
        if skip is None:
            return
        new = skip == 0
        self._left -= int(np.count_nonzero(~new & ended))
        if batch.fault and not ended[-1] and not new[-1]:
            batch.fault = None  # the fault is in a transaction that is removed
        _remove(batch, new)


def _remove(batch: Batch, keep: NDArray[np.bool_]) -> None:
    """Remove transactions with their events from a batch. `keep`: for each transaction, True if it stays."""
    edges = np.zeros(len(batch.ev.off) + 1, dtype=np.int32)
    np.add.at(edges, batch.tx.first[~keep], 1)
    np.add.at(edges, batch.tx.last[~keep], -1)
    kept_events = np.cumsum(edges)[:-1] == 0
    # The new index of each event, by its old index.
    index = np.concatenate(([0], np.cumsum(kept_events))).astype(np.int32)
    batch.ev = batch.ev.select(kept_events)
    kept = batch.tx.select(keep)
    batch.tx = kept._replace(first=index[kept.first], last=index[kept.last])
