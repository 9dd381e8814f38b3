"""Which job logs and applies a consumer: the newest one that was started. Rows of the control table say so.

A job claims all its consumers for all its stages in one commit, when it starts, and never again. So of two jobs one
has lost, for both stages, and knows it by the control table: within a second, also while nothing changes on the server.
A job that runs one stage claims that one: a log job and an apply job of the same consumer do not disturb each other.

The claims of the log (`log.append`) refuse the appends of a job that does not know yet that it has lost.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ClaimedStage

log = logging.getLogger("spark_sink.mirror")


def stages_of(stages: str) -> list[ClaimedStage]:
    """Returns what the setting `stages` (log, apply or both) names."""
    return list(ClaimedStage) if stages == "both" else [ClaimedStage(stages)]


class Claims:
    """The claims of one job. Threads may share them."""

    def __init__(
        self, control: ControlTable, consumers: Sequence[str], stages: Iterable[ClaimedStage]
    ) -> None:
        self._control, self._consumers, self._stages = control, consumers, list(stages)
        self._run = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._taken = False
        self._lost: dict[str, BinlogError] = {}

    def take(self) -> None:
        """Take the consumers over from any other job. Does nothing if that was done."""
        if not self._taken:
            self._control.claim(self._run, self._consumers, self._stages)
            self._taken = True

    def lost(self, consumer: str) -> BinlogError | None:
        """Returns why the job no longer has a consumer; None while it has. That it was lost is logged once."""
        claims = self._control.rows().claims
        with self._lock:
            if consumer in self._lost or all(
                claims.get((consumer, stage)) == self._run for stage in self._stages
            ):
                return self._lost.get(consumer)
            error = self._lost[consumer] = _taken_over(consumer)
        log.error("%s: %s", consumer, error)
        return error

    @property
    def any_lost(self) -> bool:
        """True if `lost` has found a consumer that the job no longer has."""
        return bool(self._lost)


def _taken_over(consumer: str) -> BinlogError:
    return BinlogError(
        ErrorKind.SESSION_FENCED,
        "a job that was started later, or adopt, has taken over this consumer, so this job neither logs nor applies it"
        " any more",
        where=f"consumer {consumer}",
        remedy="run one mirror job per consumer and target: end the other one before this one is started again; after"
        " adopt start this one again",
    )
