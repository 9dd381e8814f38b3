"""How long to wait before the next attempt to reach a broker or a receiver."""

from __future__ import annotations

import random

RETRY_MIN_S, RETRY_MAX_S, RETRY_JITTER = 0.5, 60.0, 0.3


class Backoff:
    """Times to wait: `RETRY_MIN_S`, then twice as long after each attempt, up to `RETRY_MAX_S`. Each time is up to 30 %
    longer or shorter at random."""

    def __init__(self) -> None:
        self._s = RETRY_MIN_S

    def reset(self) -> None:
        """Call this after a success, or after a reload that may have removed the cause of the fault."""
        self._s = RETRY_MIN_S

    def next_s(self) -> float:
        jitter = random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)  # noqa: S311
        seconds = self._s * jitter
        self._s = min(self._s * 2, RETRY_MAX_S)
        return seconds
