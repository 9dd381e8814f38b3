"""The GTIDs that a client has: its own set at the beginning of a dump, and the GTIDs that were sent since.

The kernel records sent GTIDs as *runs* of consecutive numbers of one source. If a consumer gets every tenth
transaction, a range may contain tens of thousands of runs. So the runs are not merged into the client's set. At a
range's end the client has all transactions up to that end, because `fill` sends empty transactions for those that were
left out. So the executed set of that end is added to the client's set, and the runs are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.bytes import I64
from dispatcher.front.dump import relay_kernel as k
from dispatcher.model.gtid import GtidSet, Interval, MariadbGtids

Gtids = GtidSet | MariadbGtids


class Missing(NamedTuple):
    """Transactions of one source that a client lacks: the half-open intervals [starts[i], ends[i]). `source`: `uuid`,
    `uuid:tag`, or MariaDB's `domain-server`."""

    source: str
    starts: I64
    ends: I64


def address(array: NDArray[Any]) -> int:
    """The address of an array. The caller must keep the array alive while a kernel uses the address."""
    return int(array.__array_interface__["data"][0])


class SentGtids:
    def __init__(self, held: Gtids) -> None:
        self._held = held  # the client's set at the beginning of the dump
        self._whole = held  # `_held` and all transactions up to the end of the last completed range
        self._names: list[str] = []
        self._noted: list[NDArray[np.int64]] = []
        # For the kernel; see `relay_kernel`.
        self._runs = np.empty((k.RUNS_MAX, k.RUN_SIZE), dtype=np.int64)
        self._key = np.zeros(k.KEY_WORDS, dtype=np.int64)
        self._keys = np.zeros(0, dtype=np.int64)
        self._spans = np.zeros(1, dtype=np.int64)
        self._starts = np.zeros(0, dtype=np.int64)
        self._ends = np.zeros(0, dtype=np.int64)

    def use(self, st: I64) -> None:
        """Write the addresses and sizes of the arrays to the kernel's state."""
        st[k.SOURCES], st[k.INTERVALS] = len(self._names), len(self._starts)
        st[k.RUNS_AT], st[k.KEY_AT] = address(self._runs), address(self._key)
        st[k.KEYS_AT], st[k.SPANS_AT] = address(self._keys), address(self._spans)
        st[k.STARTS_AT], st[k.ENDS_AT] = address(self._starts), address(self._ends)

    def learn(self, st: I64) -> None:
        """Add the new source of the GTID at which the kernel returned."""
        name = self._name(self._key.tobytes())
        starts, ends = np.array(self._held_of(name), dtype=np.int64).reshape(-1, 2).T
        self._keys = np.concatenate((self._keys, self._key))
        self._starts = np.concatenate((self._starts, starts))
        self._ends = np.concatenate((self._ends, ends))
        self._spans = np.append(self._spans, len(self._starts))
        self._names.append(name)
        self.use(st)

    def _name(self, key: bytes) -> str:
        if isinstance(self._held, MariadbGtids):
            domain, server = (int.from_bytes(key[at : at + 4], "little") for at in (0, 4))
            return f"{domain}-{server}"
        tag = key[17 : 17 + key[16]].decode("latin-1")
        uuid = str(UUID(bytes=key[:16]))
        return f"{uuid}:{tag}" if tag else uuid

    def _held_of(self, name: str) -> tuple[Interval, ...]:
        """Return the GTID numbers of the source `name` that the client's set had at the beginning. A MariaDB client has
        all numbers of a domain up to the newest number in its set."""
        if isinstance(self._held, GtidSet):
            return self._held.sources().get(name, ())
        return ((0, self._held.number(int(name.partition("-")[0])) + 1),)

    def note(self, st: I64) -> None:
        """Copy the kernel's runs and empty its list."""
        if count := int(st[k.N_RUNS]):
            self._noted.append(self._runs[:count].copy())
            st[k.N_RUNS] = 0

    def _all_runs(self) -> NDArray[np.int64]:
        if len(self._noted) > 1:
            self._noted = [np.concatenate(self._noted)]
        return self._noted[0] if self._noted else np.empty((0, k.RUN_SIZE), dtype=np.int64)

    @property
    def all(self) -> Gtids:
        """The client's set."""
        runs = self._all_runs().tolist()
        if not runs:
            return self._whole
        if isinstance(self._whole, MariadbGtids):
            newest = self._whole.domains()
            for source, _, end in runs:
                domain, _, server = self._names[source].partition("-")
                newest[int(domain)] = int(server), end - 1
            return MariadbGtids(newest)
        intervals: dict[str, list[Interval]] = {}
        for source, start, end in runs:
            intervals.setdefault(self._names[source], []).append((start, end))
        return self._whole.union(GtidSet(intervals))

    def missing(self, end: Gtids) -> list[Missing]:
        """Return the transactions of `end` that the client lacks. For a domain of MariaDB, only the newest transaction
        is returned, because the client's set contains only the newest number of the domain."""
        if isinstance(end, MariadbGtids):
            has = self.all
            assert isinstance(has, MariadbGtids)
            return [
                Missing(f"{domain}-{server}", *(np.array([n], dtype=np.int64) for n in (number, number + 1)))
                for domain, (server, number) in end.domains().items()
                if number > has.number(domain)
            ]  # fmt: skip
        assert isinstance(self._whole, GtidSet)
        runs, out = self._all_runs(), []
        for name, intervals in end.subtract(self._whole).sources().items():
            own = runs[:0]
            if name in self._names:
                own = runs[runs[:, k.RUN_SOURCE] == self._names.index(name)]
            starts, ends = _holes(intervals, own[np.argsort(own[:, k.RUN_START])])
            if len(starts):
                out.append(Missing(name, starts, ends))
        return out

    def complete(self, end: Gtids) -> None:
        """Add all of `end` to the client's set. Call this method after empty transactions were sent for the GTIDs that
        a range, with the executed set `end`, has left out."""
        if isinstance(end, MariadbGtids):
            has = self.all
            assert isinstance(has, MariadbGtids)
            ahead = {d: n for d, n in end.domains().items() if n[1] > has.number(d)}
            self._whole = MariadbGtids(has.domains() | ahead)
        else:
            assert isinstance(self._whole, GtidSet)
            self._whole = self._whole.union(end)
        self._noted = []


def _holes(intervals: tuple[Interval, ...], runs: NDArray[np.int64]) -> tuple[I64, I64]:
    """Return the numbers of `intervals` that are in none of the `runs`, as intervals. `runs` must be sorted and
    disjoint."""
    starts, ends = [], []
    for first, stop in intervals:
        low = np.searchsorted(runs[:, k.RUN_END], first, side="right")
        high = np.searchsorted(runs[:, k.RUN_START], stop, side="left")
        begins = np.concatenate(((first,), runs[low:high, k.RUN_END]))
        stops = np.concatenate((runs[low:high, k.RUN_START], (stop,)))
        empty = begins >= stops
        starts.append(begins[~empty])
        ends.append(stops[~empty])
    none = np.empty(0, dtype=np.int64)
    return np.concatenate((none, *starts)), np.concatenate((none, *ends))
