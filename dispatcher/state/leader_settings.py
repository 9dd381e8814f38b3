"""The digests of the leader's settings in the state's database, which each standby compares with its own."""

from __future__ import annotations

import contextlib

from dispatcher.settings.model import StateSettings
from dispatcher.state.server.session import DatabaseSession
from dispatcher.state.statements import Statements

_WRITE = """
INSERT INTO leader_settings (place, term, digests) VALUES (1, ?, ?)
ON DUPLICATE KEY UPDATE term = VALUES(term), digests = VALUES(digests)
"""
_READ = "SELECT term, digests FROM leader_settings WHERE place = 1"


def write_leader_settings(db: Statements, term: int, digests: str) -> None:
    """`digests`: JSON."""
    db.execute(_WRITE, (term, digests))


def read_leader_settings(settings: StateSettings) -> tuple[int, str]:
    """Return (term, digests as JSON) of the daemon that was the last to store its digests; (0, "{}") if no daemon has
    stored digests.

    Raises BinlogError (STATE_STORE).
    """
    with contextlib.closing(DatabaseSession(settings, autocommit=True)) as session:
        row = session.run(lambda db: db.execute(_READ).fetchone())
    term, digests = row or (0, "{}")
    return int(term), str(digests)
