"""Reads and writes the row of the lease in the state's database. The row names the daemon that leads, and the lease
expires by the clock of that database.

Each call is one transaction: it locks the row, passes the row to the rules (`leadership.lease`), and writes the row
that the rules return. The row contains the time in UTC when the lease expires; the statement that reads the row
compares that time with NOW(6). NOW(6) is the time at which the statement began. So if the statement waits for the lock,
the computed remaining time is longer than the true remaining time, never shorter.

A `LeaseTable` has a session of its own, not that of the store. So a renewal waits only if a transaction of the store
has locked the row. If a daemon is stopped or loses the network within a transaction, the server soon ends the daemon's
session (`server.session`).

After a planned failover, the former primary keeps its sessions, and refuses only writes. A standby only reads, and the
former primary may be a replica of the new primary, so a standby that still reads there sees a valid row. Therefore the
statement that reads the row also reads whether the server is read-only. If it is, the session counts as lost.

If a session is lost during a call, the call is repeated once. If the commit of the first attempt succeeded, the second
attempt reads the row that the first attempt wrote: `campaign` returns this row, because the lease is taken, and `renew`
extends the lease again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

from dispatcher.leadership.lease import LeaseRow, campaigned, released, renewed
from dispatcher.leadership.patience import standby_patience_s
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.model import StateSettings
from dispatcher.state.server.schema import create_tables
from dispatcher.state.server.session import READ_ONLY_VARIABLES, DatabaseSession, SessionLimits
from dispatcher.state.statements import Statements

_VARIABLES = ", ".join(f"@@GLOBAL.{name}" for name in READ_ONLY_VARIABLES)
_READ = f"""
SELECT holder, address, term, TIMESTAMPDIFF(MICROSECOND, NOW(6), expires), {_VARIABLES} FROM lease WHERE place = 1
"""
_WRITE = """
UPDATE lease SET holder = ?, address = ?, term = ?, expires = NOW(6) + INTERVAL ? MICROSECOND WHERE place = 1
"""
_US = 1_000_000
_MEASURED_S = (
    30.0  # for each of about 15 answers, so that a lease that `state.lease` allows is long enough
)


class LeaseTable:
    """One thread at a time may call; any thread may call `interrupt`. Creates the tables if there are none.

    Every method raises BinlogError (STATE_STORE). After an error, the database may have executed the request
    nevertheless.
    """

    def __init__(self, settings: StateSettings, timeout_s: float | None = None) -> None:
        """`timeout_s`: how long a call waits for each answer; None: longer than the rules wait for the whole call, so
        that the rules end it (`interrupt`)."""
        if timeout_s is None:
            timeout_s = 2 * standby_patience_s(settings.lease)
        lock_wait_s = max(1, settings.lease // 3)
        limits = SessionLimits(timeout_s, lock_wait_s, max(2, settings.lease, int(timeout_s)))
        self._session = DatabaseSession(settings, limits)
        self._created = False

    def campaign(self, holder: str, address: str, duration_s: float) -> LeaseRow:
        """Take the lease, in the next term, if it is free. Returns the resulting row."""
        # At the first start this creates the tables. It also refuses a schema of another version of the program, which
        # then never leads.
        create_tables(self._session)
        return self._change(lambda row: campaigned(row, holder, address, duration_s))

    def renew(self, holder: str, term: int, duration_s: float) -> LeaseRow:
        """Extend the lease unless another daemon has taken it. Returns the resulting row."""
        return self._change(lambda row: renewed(row, holder, term, duration_s))

    def release(self, holder: str, term: int) -> None:
        """Let the lease expire now, if this holder has the lease."""
        self._change(lambda row: released(row, holder, term))

    def read(self) -> LeaseRow:
        if not self._created:
            create_tables(self._session)
            self._created = True
        return self._session.run(self._row)

    def interrupt(self) -> None:
        """End the call in which another thread waits: that call raises BinlogError."""
        self._session.interrupt()

    def close(self) -> None:
        """May be called again."""
        self._session.close()

    def _change(self, rule: Callable[[LeaseRow], LeaseRow]) -> LeaseRow:
        return self._session.run(partial(self._changed, rule))

    def _changed(self, rule: Callable[[LeaseRow], LeaseRow], db: Statements) -> LeaseRow:
        row = self._row(db, lock=True)
        new = rule(row)
        if new is not row:
            duration_us = round(new.remaining_s * _US)
            db.execute(_WRITE, (new.holder, new.address, new.term, duration_us))
        return new

    def _row(self, db: Statements, *, lock: bool = False) -> LeaseRow:
        row, variables = _read(db, lock=lock)
        self._session.refuse_read_only(variables)
        return row


def answer_time_s(settings: StateSettings) -> float:
    """Open a session and read the lease. Returns how many seconds the database took to answer, even if the rules would
    not have waited so long. Raises BinlogError (STATE_STORE)."""
    with contextlib.closing(LeaseTable(settings, _MEASURED_S)) as table:
        table.read()  # at the first start this creates the tables, which takes longer than any later request
    begun_s = time.monotonic()
    with contextlib.closing(LeaseTable(settings, _MEASURED_S)) as table:
        table.read()
    return time.monotonic() - begun_s


def lease_row(db: Statements, *, lock: bool = False) -> LeaseRow:
    """Returns the row of the lease, even if the server is read-only. `lock`: keep the row locked until the end of the
    transaction."""
    return _read(db, lock=lock)[0]


def _read(db: Statements, *, lock: bool) -> tuple[LeaseRow, dict[str, object]]:
    """Returns the row of the lease, and the values of the variables `READ_ONLY_VARIABLES`."""
    found = db.execute(_READ + (" FOR UPDATE" if lock else "")).fetchone()
    if found is None:
        what, remedy = "the table lease is empty", "restore the state's database from a backup"
        raise BinlogError(ErrorKind.STATE_STORE, what, remedy=remedy)
    holder, address, term, remaining_us, *values = found
    row = LeaseRow(holder, address, term, remaining_us / _US)
    return row, dict(zip(READ_ONLY_VARIABLES, values, strict=True))
