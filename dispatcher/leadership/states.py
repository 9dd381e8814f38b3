"""The states of `Leadership`. Each holds what its rules need. All times are of the local monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Request


@dataclass(frozen=True, slots=True)
class StandingBy:
    """Another daemon may lead. `seen`: the row when it was read last, at `seen_s`; `next`: what is asked at `due_s`;
    before `patient_until_s` this daemon does not campaign."""

    seen: LeaseRow | None
    seen_s: float
    next: Request
    due_s: float
    patient_until_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Leading:
    """This daemon leads. `proven_s`: when the newest request was sent whose answer says so; the renewal is asked at
    `due_s`."""

    term: int
    proven_s: float
    due_s: float


@dataclass(frozen=True, slots=True)
class Resigning:
    """What runs under the term is being ended. `exits`: True if the process ends then, else it is a standby again."""

    term: int
    exits: bool


@dataclass(frozen=True, slots=True)
class Leaving:
    """The process ends as soon as the lease is given back. `term`: of the lease, None if this daemon has none, as far
    as it knows; `asked`: True if giving back has been asked."""

    term: int | None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The process may end."""


State = StandingBy | Leading | Resigning | Leaving | Gone
