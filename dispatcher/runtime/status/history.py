"""The samples of each consumer for the plots of the status page. A ring buffer keeps the samples of ten minutes, one
for every two seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

SAMPLE_EVERY_S = 2.0
SAMPLES_MAX = 300  # ten minutes


class Sample(NamedTuple):
    """`bytes`: the size of the queue. Rates are per second."""

    bytes: float
    lag_seconds: float
    delivered_bytes_per_sec: float
    dispatcher_bytes_read_per_sec: float


class StatusHistory:
    """The ring buffers of all consumers: about 5 KB for each consumer."""

    def __init__(self) -> None:
        self._times = np.full(SAMPLES_MAX, np.nan)  # s since 1970
        self._rings: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
        self._at = 0  # the index of the next sample in the rings

    def fill(self, now_s: float, samples: Iterable[tuple[str, Sample]]) -> Iterator[None]:
        """Add one sample of each consumer, and yield after each consumer. Consumers without a sample are forgotten."""
        at = self._at
        self._at = (at + 1) % SAMPLES_MAX
        self._times[at] = now_s
        for values in self._rings.values():
            values[:, at] = np.nan
        seen = set()
        for name, sample in samples:
            ring = self._rings.get(name)
            if ring is None:
                ring = np.full((len(Sample._fields), SAMPLES_MAX), np.nan, np.float32)
                self._rings[name] = ring
            ring[:, at] = sample
            seen.add(name)
            yield
        for name in self._rings.keys() - seen:
            del self._rings[name]

    def of(self, name: str) -> dict[str, list[float]]:
        """The samples of a consumer, oldest first: `time` and the fields of `Sample`. Empty lists if the consumer is
        unknown."""
        ring = self._rings.get(name)
        if ring is None:
            return {field: [] for field in ("time", *Sample._fields)}
        order = np.roll(np.arange(SAMPLES_MAX), -self._at)
        order = order[~np.isnan(ring[0, order])]
        lists = [self._times[order].round(3).tolist()]
        lists += [values[order].astype(float).round(3).tolist() for values in ring]
        return dict(zip(("time", *Sample._fields), lists, strict=True))
