"""Reads the state in a database, even while a daemon uses the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from dispatcher.settings.model import StateSettings
from dispatcher.state.copies import contents_of
from dispatcher.state.lease import lease_row
from dispatcher.state.server.schema import readable
from dispatcher.state.server.session import DatabaseSession
from dispatcher.state.statements import Statements

_PREPARED = """
SELECT client, count(DISTINCT xid), coalesce(sum(length(data)), 0)
FROM prepared LEFT JOIN prepared_part ON prepared_part.id = "rows" GROUP BY client ORDER BY client
"""


def dump_database(settings: StateSettings) -> dict[str, Any]:
    """Return the result of `dump_state` with one more key, "leader". Its value is {"address", "term"}; None if the
    lease is free.

    Raises BinlogError (STATE_STORE).
    """
    with reading_database(settings) as db:
        row = lease_row(db)
        leader = None if row.free else {"address": row.address, "term": row.term}
        return {**contents_of(db, _PREPARED), "leader": leader}


@contextmanager
def reading_database(settings: StateSettings) -> Iterator[Statements]:
    """Open the database for reading: all statements see it as it was at one moment."""
    with closing(DatabaseSession(settings, isolation="REPEATABLE READ")) as session:
        readable(session)
        with session.transaction() as db:
            yield db
