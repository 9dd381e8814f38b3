"""The states of `Leadership`. Each state holds the values that the rules need in it. All times are of the local
monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Release, Request


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another daemon may lead. `seen`: the row as it was read last, at `seen_s`; `next`: the request that is sent at
    `due_s`; before `patient_until_s` this daemon does not campaign."""

    seen: LeaseRow | None
    seen_s: float
    next: Request
    due_s: float
    patient_until_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Leading:
    """This daemon leads. `proven_s`: when this daemon sent the newest request whose answer confirmed the lease;
    `due_s`: when it sends the next renewal."""

    term: int
    proven_s: float
    due_s: float


@dataclass(frozen=True, slots=True)
class Resigning:
    """The daemon is ending everything that runs under the term. `exits`: True if the process ends after that, False if
    the daemon is a standby again."""

    term: int
    exits: bool


@dataclass(frozen=True, slots=True)
class Leaving:
    """The process ends as soon as the lease is given back. `release`: the request to do so, None if this daemon has no
    lease, as far as it knows; `asked`: True if the daemon has sent it."""

    release: Release | None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The process may end."""


State = StandingBy | Leading | Resigning | Leaving | Gone
