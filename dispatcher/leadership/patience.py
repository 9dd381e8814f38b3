"""How long a daemon waits for an answer of the state's database, and which lease a slow database requires."""

from __future__ import annotations

import math

ATTEMPTS = 4
"""A leader waits for an answer at most for the duration of its lease divided by this number. Then it sends the request
again on another connection."""
STANDBY_S = 5.0
"""A standby waits at least this long for an answer, or for the duration of the lease if that is shorter."""
_MARGIN = 1.25


def leader_patience_s(lease_s: float) -> float:
    return lease_s / ATTEMPTS


def standby_patience_s(lease_s: float) -> float:
    """Return how long a standby waits: at least as long as a leader, so that a database that is fast enough for a
    leader is also fast enough for a campaign."""
    return max(min(lease_s, STANDBY_S), leader_patience_s(lease_s))


def sufficient_lease_s(answer_s: float) -> int:
    """Return a lease with which a daemon can lead if the database answers after `answer_s` seconds: a leader that has
    lost its connection opens another one within its patience. The result has a margin of a quarter."""
    return max(1, math.ceil(answer_s * ATTEMPTS * _MARGIN))
