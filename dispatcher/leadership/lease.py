"""The lease: one row of the state store's database, which says which daemon leads, and the rules by which it changes.

The daemon that changes the row, or writes anything else into the store, first locks the row in the same transaction.
Then these functions decide by the locked row: a write is admitted if the row contains its leader and term. The database
computes `remaining_s` by its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """`holder`: the id that a daemon has for one term, "" before the first term; `address`: how readers reach the API
    of the holder; `term`: +1 with each new holder; `remaining_s`: seconds until the lease expires, <= 0: the lease is
    free."""

    holder: str
    address: str
    term: int
    remaining_s: float

    @property
    def free(self) -> bool:
        return self.remaining_s <= 0

    def is_of(self, holder: str, term: int) -> bool:
        """True if this is the row of that leader, whether its lease has expired or not."""
        return self.holder == holder and self.term == term


def campaigned(row: LeaseRow, holder: str, address: str, duration_s: float) -> LeaseRow:
    """Return the row after a campaign: the next term if the lease was free, else the same row."""
    return LeaseRow(holder, address, row.term + 1, duration_s) if row.free else row


def renewed(row: LeaseRow, holder: str, term: int, duration_s: float) -> LeaseRow:
    """Return the row after a renewal: extended if it is the leader's own, else the same row.

    A lease that has expired may be extended: no other holder has taken it, so none has written anything.
    """
    return replace(row, remaining_s=duration_s) if row.is_of(holder, term) else row


def released(row: LeaseRow, holder: str, term: int) -> LeaseRow:
    """Return the row after a leader has given its lease back: free if it was the leader's own, else the same row."""
    return replace(row, remaining_s=0.0) if row.is_of(holder, term) else row
