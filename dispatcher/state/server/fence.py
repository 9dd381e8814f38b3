"""Admits the writes of one term: only the daemon that holds the lease writes, and each write is made exactly once.

The row of the lease also counts the writes to the store. The first statement of each write increments this count, if
the row still contains the holder and the term of this daemon. So the row is locked until the write is committed:

* While the row is locked, no other daemon can take the lease. If another daemon has already taken the lease, the write
  changes nothing and raises NOT_LEADER. So a daemon that continues after a pause, or after it has lost the network
  within a transaction, cannot write. In a cluster with several writable servers the increment is necessary: the cluster
  compares only changed rows, so a locked row would not suffice.
* A commit without an answer does not count as a success. The next attempt reads the count. If the count is one higher,
  the write was committed; otherwise the attempt makes the write again.
* A lower count shows that the server has lost committed writes: it was restored, or replaced by a replica that lagged.
  Data that this daemon believes to be stored, such as rows of prepared transactions, may be missing. So the daemon has
  to begin again from what is stored; NOT_LEADER makes it do so.

A fence cannot notice a loss that happened before the fence was made. After such a loss, if a reader opens a session
with a position of its own that is newer than the stored position, the daemon continues at the reader's position. A
reader without a position of its own gets again what it had acknowledged after the stored position. A consumer whose
first position was lost begins at its `start`, in an epoch never used before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.server.session import DatabaseSession, may_pass
from dispatcher.state.statements import Statements

ATTEMPTS = 3
_COUNT = """
UPDATE lease SET writes = ? WHERE place = 1 AND holder = ? AND term = ? AND writes = ?
"""
_LOOK = "SELECT holder, address, term, writes FROM lease WHERE place = 1"

T = TypeVar("T")


class Fence:
    """Raises BinlogError: NOT_LEADER if the row of the lease does not contain the holder and this term, for example
    because the lease has expired and another daemon has taken it; STATE_STORE for other errors."""

    def __init__(self, session: DatabaseSession, holder: str, term: int) -> None:
        self._session = session
        self._holder = holder
        self._term = term
        self._count = session.run(self._look)
        self._uncertain = False  # True if it is unknown whether the newest write is committed

    def write(self, change: Callable[[Statements], T]) -> T:
        """Make a write, and return the result of `change` once it is committed. After a conflict or a lost session,
        repeat the write."""
        made: list[T] = []
        for _ in range(ATTEMPTS - 1):
            try:
                return self._attempt(change, made)
            except BinlogError as error:
                if not may_pass(error):
                    raise
        return self._attempt(change, made)

    def check(self) -> None:
        """Raises BinlogError (NOT_LEADER) as `write` would."""
        count = self._session.run(self._look)
        if count != self._count and not (self._uncertain and count == self._count + 1):
            raise self._lost(count)

    def _attempt(self, change: Callable[[Statements], T], made: list[T]) -> T:
        """Make the write once. `made`: a list into which the result of `change` is put before the commit."""
        with self._session.transaction() as statements:
            if not self._counted(statements):
                if made:
                    return made[0]
                self._counted(statements)
            made[:] = [change(statements)]
            self._uncertain = True
        self._count += 1
        self._uncertain = False
        return made[0]

    def _counted(self, statements: Statements) -> bool:
        """Count a write. Returns False if the previous write turns out to be committed; then the next call counts this
        write."""
        values = (self._count + 1, self._holder, self._term, self._count)
        if statements.execute(_COUNT, values).rowcount:
            self._uncertain = False
            return True
        count = self._look(statements, " FOR UPDATE")
        if not self._uncertain or count != self._count + 1:
            raise self._lost(count)
        self._count, self._uncertain = count, False
        return False

    def _look(self, statements: Statements, lock: str = "") -> int:
        """Return the count of writes. Raises BinlogError (NOT_LEADER)."""
        row = statements.execute(_LOOK + lock).fetchone()
        holder, address, term, count = row or ("", "", 0, 0)
        if (holder, term) != (self._holder, self._term):
            what = (
                f"{address} has the lease, in term {term}, and this daemon had it in {self._term}"
            )
            raise self._not_leader(what)
        return int(count)

    def _lost(self, count: int) -> BinlogError:
        return self._not_leader(
            f"the state's database holds {count} writes instead of {self._count}: its server was restored, or replaced"
            " by a replica that lagged"
        )

    def _not_leader(self, what: str) -> BinlogError:
        remedy = "nothing to do: this daemon stands by, and begins with the stored state when it leads again"
        return BinlogError(ErrorKind.NOT_LEADER, what, where=self._session.label, remedy=remedy)
