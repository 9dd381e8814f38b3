"""Decides which job logs and applies a consumer: the job that was started last. Rows of the control table record the
claims.

A job claims all its consumers for all its stages in one commit when it starts, and not again later. So of two jobs with
both stages, one loses both. This job sees the loss in the control table within a second, even while nothing changes on
the server. A job that runs one stage claims only that stage, so a job with the log stage and a job with the apply stage
can run for the same consumer.

The claims in the log (`log.append`) refuse the appends of a job that has lost its consumers, but has not seen the loss
yet.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ClaimedStage, ControlRows

log = logging.getLogger("spark_sink.mirror")


def stages_of(stages: str) -> list[ClaimedStage]:
    """Returns the stages that the setting `stages` (log, apply or both) names."""
    return list(ClaimedStage) if stages == "both" else [ClaimedStage(stages)]


class Claims:
    """The claims of one job. Threads may share them. `control`: the control table. All stages of the job share it: each
    `ControlTable` reads the table again after a write by another one."""

    def __init__(
        self, control: ControlTable, consumers: Sequence[str], stages: Iterable[ClaimedStage]
    ) -> None:
        self.control, self._consumers, self._stages = control, consumers, list(stages)
        self._run = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._taken = False
        self._lost: dict[str, BinlogError] = {}

    def take(self) -> None:
        """Claim the consumers, so that any other job loses them. Does nothing after the first call."""
        if not self._taken:
            self.control.claim(self._run, self._consumers, self._stages)
            self._taken = True

    def lost(self, consumer: str, rows: ControlRows | None = None) -> BinlogError | None:
        """Returns why the job no longer has the claim of a consumer; None while it has the claim. The first call that
        finds the loss logs it.

        `rows`: the rows of the control table, if the caller has just read them; without them, this method reads them.
        """
        claims = (rows or self.control.rows()).claims
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
        """True if `lost` has found that the job no longer has the claim of some consumer."""
        return bool(self._lost)


def _taken_over(consumer: str) -> BinlogError:
    return BinlogError(
        ErrorKind.SESSION_FENCED,
        "a job that was started later, or adopt, has taken over this consumer, so this job neither logs nor applies it"
        " any more",
        where=f"consumer {consumer}",
        remedy="run one mirror job per consumer and target: if another job runs, end it, then start this job again; if"
        " you ran adopt, start this job again",
    )
