"""The transactions of the daemons: each is a sequence of statements, with a round trip for each statement.

They replace those of `LeaseTable` and `DatabaseStore`. The connection may be lost at each statement, and the process
may be stopped between any two of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from dispatcher.leadership.lease import LeaseRow, campaigned, released, renewed
from dispatcher.leadership.messages import Campaign, ReadLease, Release, Renew, Request
from tests.leadership_simulation.database import (
    Answer,
    Commit,
    Contents,
    NextSession,
    Rollback,
    SelectContents,
    SelectLease,
    Statement,
    UpdateLease,
    UpdateProgress,
)

Transaction = Generator[Statement, Answer, Answer]


class NotLeader(Exception):
    """The row of the lease names another holder than the writer."""


def ask(request: Request, address: str, lease_s: float) -> Transaction:
    match request:
        case ReadLease():
            return read()
        case Campaign(holder):
            return campaign(holder, address, lease_s)
        case Renew(holder, term):
            return renew(holder, term, lease_s)
        case Release(holder, term):
            return release(holder, term)


def read() -> Transaction:
    return (yield SelectLease(locks=False))


def campaign(holder: str, address: str, lease_s: float) -> Transaction:
    row = yield SelectLease(locks=True)
    assert isinstance(row, LeaseRow)
    changed = campaigned(row, holder, address, lease_s)
    if changed is not row:
        yield UpdateLease(changed)
    yield Commit()
    return changed


def renew(holder: str, term: int, lease_s: float) -> Transaction:
    row = yield SelectLease(locks=True)
    assert isinstance(row, LeaseRow)
    changed = renewed(row, holder, term, lease_s)
    if changed is not row:
        yield UpdateLease(changed)
    yield Commit()
    return changed


def release(holder: str, term: int) -> Transaction:
    row = yield SelectLease(locks=True)
    assert isinstance(row, LeaseRow)
    changed = released(row, holder, term)
    if changed is not row:
        yield UpdateLease(changed)
    yield Commit()
    return None


def load() -> Transaction:
    contents = yield SelectContents()
    assert isinstance(contents, Contents)
    return contents


def save(holder: str, term: int, acknowledged: Mapping[str, int]) -> Transaction:
    """Raises NotLeader."""
    row = yield SelectLease(locks=True)
    assert isinstance(row, LeaseRow)
    if not row.is_of(holder, term):
        yield Rollback()
        raise NotLeader
    yield UpdateProgress(acknowledged)
    yield Commit()
    return None


def next_session(holder: str, term: int, consumer: str) -> Transaction:
    """Raises NotLeader."""
    row = yield SelectLease(locks=True)
    assert isinstance(row, LeaseRow)
    if not row.is_of(holder, term):
        yield Rollback()
        raise NotLeader
    number = yield NextSession(consumer)
    yield Commit()
    return number
