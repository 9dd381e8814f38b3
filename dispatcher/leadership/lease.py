"""The lease, and the rules by which it changes. The lease is one row of the state store's database, and names the
daemon that leads.

Each transaction that changes this row, or writes anything else into the store, first locks the row. To change the row,
the functions of this module compute the new row from the locked row. Any other write is accepted only if the locked row
contains the leader and term of the write. The database computes `remaining_s` with its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """`holder`: the id of the daemon that has the lease, "" before the first term; `address`: the address of the
    holder's API; `term`: grows by 1 with each new holder; `remaining_s`: seconds until the lease expires. If
    `remaining_s` is 0 or less, the lease is free."""

    holder: str
    address: str
    term: int
    remaining_s: float

    @property
    def free(self) -> bool:
        return self.remaining_s <= 0

    def is_of(self, holder: str, term: int) -> bool:
        """True if the row contains this leader and term, whether or not the lease has expired."""
        return self.holder == holder and self.term == term


def campaigned(row: LeaseRow, holder: str, address: str, duration_s: float) -> LeaseRow:
    """Return the row after a campaign. If the lease was free, the row has the next term and the new holder, otherwise
    it is unchanged."""
    return LeaseRow(holder, address, row.term + 1, duration_s) if row.free else row


def renewed(row: LeaseRow, holder: str, term: int, duration_s: float) -> LeaseRow:
    """Return the row after a renewal. If the row contains this leader and term, the lease is extended, otherwise the
    row is unchanged.

    A lease may be extended after it has expired: if no other daemon has taken it, no other daemon has written anything.
    """
    return replace(row, remaining_s=duration_s) if row.is_of(holder, term) else row


def released(row: LeaseRow, holder: str, term: int) -> LeaseRow:
    """Return the row after a release. If the row contains this leader and term, the lease is free, otherwise the row is
    unchanged."""
    return replace(row, remaining_s=0.0) if row.is_of(holder, term) else row
