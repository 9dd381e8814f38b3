"""The states of `Leadership`, with the values that the rules need in each state. All times are times of the local
monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Release, Request


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another daemon may lead. `seen`: the row that was read last, at time `seen_s`; `next`: the next request, which is
    sent at time `due_s`; `patient_until_s`: the time before which this daemon does not campaign."""

    seen: LeaseRow | None
    seen_s: float
    next: Request
    due_s: float
    patient_until_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Leading:
    """This daemon leads. `proven_s`: when this daemon sent the newest request whose answer confirmed the lease;
    `due_s`: when this daemon sends the next renewal."""

    term: int
    proven_s: float
    due_s: float


@dataclass(frozen=True, slots=True)
class Resigning:
    """The daemon is ending everything that runs in its term. `exits`: True if the process ends afterwards, False if the
    daemon becomes a standby again."""

    term: int
    exits: bool


@dataclass(frozen=True, slots=True)
class Leaving:
    """The process ends after it has released its lease. `release`: the request that releases the lease, None if the
    daemon knows of no lease of its own; `sent`: True if the daemon has sent this request."""

    release: Release | None
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The process may end."""


State = StandingBy | Leading | Resigning | Leaving | Gone
