"""Copies the shares of many consumers at the same position. A consumer's share is the bytes that it gets of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.copying import CopiedShares, Dealt, append_shares, roll_back_aborted
from dispatcher.stream.deal_kernel import deal
from dispatcher.stream.routes import Filter, Routes


class Lanes:
    """The consumers' logs in the form that the kernels use, with a *lane* for each consumer, and the lanes of each
    route.

    `mask`: one byte per route, 1 if at least one consumer reads a table of the route.
    """

    def __init__(
        self, logs: Sequence[ConsumerLog], filters: Sequence[Filter], epochs: Sequence[int]
    ) -> None:
        self.logs = logs
        self.mask: U8 = np.zeros(0, dtype=np.uint8)
        self._filters = filters
        # References to the masks, which keep the masks alive: `_table` contains their addresses.
        self._masks: list[U8] = [np.zeros(1, dtype=np.uint8)] * len(logs)
        self._table: NDArray[np.int64] = np.zeros((len(logs), k.LANE_SIZE), dtype=np.int64)
        self._table[:, k.STATE_AT] = [log.state_at for log in logs]
        self._table[:, k.EPOCH] = epochs
        self._route_starts: I32 = np.zeros(1, dtype=np.int32)
        self._route_lanes: I32 = np.zeros(0, dtype=np.int32)

    def learn(self, routes: Routes) -> None:
        """Add the routes that are new in `routes`."""
        known = len(self.mask)
        if known == len(routes):
            return
        self._masks = [filter_.route_mask(routes) for filter_ in self._filters]
        self._table[:, k.MASK_AT] = [mask.ctypes.data for mask in self._masks]
        self._table[:, k.MASK_SIZE] = len(routes)
        # One row per new route, one column per lane.
        wanted = np.array([mask[known:] for mask in self._masks], dtype=np.uint8)
        wanted = wanted.reshape(len(self.logs), len(routes) - known).T
        ends = len(self._route_lanes) + np.cumsum(np.count_nonzero(wanted, axis=1))
        self._route_starts = np.concatenate((self._route_starts, ends.astype(np.int32)))
        lanes = np.nonzero(wanted)[1].astype(np.int32)
        self._route_lanes = np.concatenate((self._route_lanes, lanes))
        self.mask = np.concatenate((self.mask, wanted.any(axis=1).astype(np.uint8)))

    def copy(self, batch: Batch, seqs: I64) -> tuple[list[int], CopiedShares]:
        """Copy to each lane its share of a batch. Return the lanes that had visits, and what was copied.

        `seqs`: the seq of each transaction of the batch.
        """
        roll_back_aborted(batch, self.logs)
        dealt = Dealt(*deal(batch.ev, batch.tx, self._table, self._route_starts, self._route_lanes))
        cut_bytes = ConsumerLog.CUT_BYTES
        copying = append_shares(batch, seqs, self.logs, self._table, dealt, cut_bytes)
        return dealt.todo.tolist(), copying
