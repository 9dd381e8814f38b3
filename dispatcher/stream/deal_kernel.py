"""The kernel that finds, for each of many consumers, the transactions of a batch that `copy_kernel` must process for
this consumer (its visits).

One pass over the batch finds the visits of all consumers. So the time depends mainly on the number of events and of
visits, and little on the number of consumers without visits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.kernel.intrinsics import integers_at
from dispatcher.binlog.kernel.jit import allocating, part
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import (
    ABORTED,
    CONTINUED,
    DDL,
    KIND_MASK,
    ROLLED_BACK,
    ROWS,
    ROWS_END,
    Events,
    Transactions,
)
from dispatcher.stream.routes import ALL


@part
def _visit(seen: I32, cursor: I32, visits: I32, lane: int, t: int) -> None:
    """Add transaction `t` to a lane's visits, unless the visits contain `t`. If `visits` is empty, only count the
    visit."""
    if seen[lane] != t:
        seen[lane] = t
        if len(visits):
            visits[cursor[lane]] = t
        cursor[lane] += 1


@part
def _walk(  # noqa: PLR0913 - one branch per reason of a visit, one array per parameter
    kinds: U8,
    route: I32,
    first: I32,
    last: I32,
    flags: U8,
    lanes: NDArray[np.int64],
    route_starts: I32,
    route_lanes: I32,
    seen: I32,
    cursor: I32,
    visits: I32,
) -> None:
    seen[:] = -1
    for t in range(len(first)):
        if flags[t] & (ABORTED | ROLLED_BACK):
            continue
        if t == 0 and flags[t] & CONTINUED:
            for lane in range(len(lanes)):
                cs = integers_at(lanes[lane, k.STATE_AT], k.STATE_SIZE)
                if cs[k.BEGUN] or cs[k.SAVEPOINTS]:
                    _visit(seen, cursor, visits, lane, t)
        before = ALL - 1  # the previous event's route, whose lanes already have a visit of `t`
        for i in range(first[t], last[t]):
            kind, r = kinds[i] & KIND_MASK, route[i]
            if r == before or kind not in (ROWS, ROWS_END, DDL):
                continue
            before = r
            if r == ALL:
                for lane in range(len(lanes)):
                    _visit(seen, cursor, visits, lane, t)
            elif 0 <= r < len(route_starts) - 1:
                for n in range(route_starts[r], route_starts[r + 1]):
                    _visit(seen, cursor, visits, route_lanes[n], t)


@allocating
def deal(
    ev: Events,
    tx: Transactions,
    lanes: NDArray[np.int64],
    route_starts: I32,
    route_lanes: I32,
) -> tuple[I32, I32, I32]:
    """Return `starts`, `visits` and the lanes (consumers) that have visits. Lane n must visit the transactions
    visits[starts[n] : starts[n + 1]], which are in the order of the log.

    A lane must visit each transaction that holds rows or a statement for the lane's consumer. The lane must also visit
    the batch's first transaction if, in an earlier batch, the lane began to copy that transaction or set a savepoint in
    it. The lanes of route r are route_lanes[route_starts[r] : route_starts[r + 1]].
    """
    kinds, route, first, last, flags = ev.kind, ev.route, tx.first, tx.last, tx.flags
    count = len(lanes)
    seen, cursor = np.empty(count, np.int32), np.zeros(count, np.int32)
    visits = np.empty(0, np.int32)
    _walk(
        kinds, route, first, last, flags, lanes, route_starts, route_lanes, seen, cursor, visits
    )  # fmt: skip
    starts, todo, busy = np.zeros(count + 1, np.int32), np.empty(count, np.int32), 0
    for lane in range(count):
        starts[lane + 1] = starts[lane] + cursor[lane]
        if cursor[lane]:
            todo[busy] = lane
            busy += 1
    visits = np.empty(starts[count], np.int32)
    if len(visits):
        cursor[:] = starts[:-1]
        _walk(
            kinds, route, first, last, flags, lanes, route_starts, route_lanes, seen, cursor, visits
        )  # fmt: skip
    return starts, visits, todo[:busy]
