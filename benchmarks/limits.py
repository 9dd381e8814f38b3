"""What limits a promise that a run has not kept: why, which figures of the same run show it, and what would be next.

`make bench` prints it for each promise that was measured and not kept, and so does the report's page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.figures import Report, Target

_LOG = "{log}"  # in evidence: the log that the promise is about


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series of the same run: its part, log, subject and quantity."""

    part: str
    log: str
    subject: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Limit:
    """`reason`: why the promise is not kept; `evidence`: what shows it; `next`: what would come nearer to it."""

    reason: str
    next: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """A promise that was not kept. `evidence`: (what, value, unit) of this run."""

    target: Target
    limit: Limit
    evidence: list[tuple[str, float, str]]


LIMITS: Mapping[str, Limit] = {}
"""By the promise's name, or by its first word for all that begin with it."""


def limit_of(name: str) -> Limit | None:
    """Returns the limit of a promise: the one of "P1 bulk CPU", else that of "P1"."""
    return LIMITS.get(name) or LIMITS.get(name.split(maxsplit=1)[0])


def missed(report: Report) -> Iterator[Missed]:
    """Yields the promises that were measured and not kept, with what limits them."""
    for target in report.targets:
        limit = limit_of(target.id)
        if not target.met and target.value is not None and limit is not None:
            yield Missed(target, limit, list(_values(report, target, limit)))


def _values(report: Report, target: Target, limit: Limit) -> Iterator[tuple[str, float, str]]:
    logs = {log.name for log in report.logs}
    log = next((word for word in target.id.split() if word in logs), "")
    for evidence in limit.evidence:
        wanted = (
            evidence.part,
            evidence.log.replace(_LOG, log),
            evidence.subject,
            evidence.quantity,
        )
        for series in report.series:
            if (series.part, series.log, series.subject, series.quantity) == wanted:
                yield f"{series.subject}, {series.quantity}", series.median, series.unit
