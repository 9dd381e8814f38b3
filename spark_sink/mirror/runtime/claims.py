"""Decides which job runs the stages of a consumer. It is always the job that was started last. The log stage appends
the consumer's changes to the mirror's log, and the apply stage applies this log to the tables. Rows of the control
table record the claims.

When a job starts, it claims all its consumers for all its stages, in one commit. It does not claim them again. So if
two jobs run both stages of a consumer, the job that was started first loses both. The losing job sees this in the
control table within a second, even while nothing changes on the server. A job that runs one stage claims only that
stage, so a job with the log stage and a job with the apply stage can run for the same consumer.

The newer job also appends a claim to the log (`log.append`). From then on, the losing job cannot append to the log,
even if it has not seen the loss in the control table yet.
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
    """The claims of one job. Threads may share this object. `control`: the control table. All stages of the job share
    this `ControlTable` object, because the object has to read the whole table again after another object has written to
    the table."""

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
        """Returns why the job no longer has the claim of a consumer; None while it has the claim. Logs the loss once,
        in the first call that finds it.

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
