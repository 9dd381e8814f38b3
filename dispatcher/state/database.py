"""The state store in a database of MySQL or MariaDB, for the one daemon that holds the lease.

It has the same contract and the same tables as the store in a file (`store`). Invariants:

* `save` and `next_session` return after their transaction is committed, except a `save` of covered positions alone (see
  below). If another daemon has taken the lease, a write changes nothing and fails: see `server.fence`.
* A transaction must be short, because it locks the row of the lease, and renewals of the lease wait for this lock. So
  the store writes large rows of prepared transactions in parts, before the transaction that refers to them, and deletes
  unused parts after that transaction. Each part, or each MiB of small parts, has a transaction of its own. A part is
  valid while a row of `prepared` contains its id.
* The daemon may read the log of the server that has the state. Then each write of the state is a transaction in that
  log. When the daemon reads this transaction, the covered position of every consumer moves. If the daemon stored these
  positions at once, it would write the next transaction, and so on without end. So a covered position that moves
  without an acknowledgement waits: it is stored with the next acknowledgement, or by `checkpoint` when it is a MiB
  ahead or in another file. If a crash loses a covered position, the daemon reads that part of the log again, which
  contains nothing for the consumer. The position up to which a client has read its log is stored in the same way.

How durable a commit is depends on the server's settings: see `warnings`. A failover to a replica that lags loses the
newest commits; `server.fence` describes which losses the daemon notices, and what it does then.

Calls wait for the server, so callers use a thread. Calls from several threads are serialized by a mutex.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.declaration_rows import (
    delete_declaration,
    load_declarations,
    note_reads,
    replace_declaration,
)
from dispatcher.state.leader_settings import write_leader_settings
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.server.durability import durability_warnings
from dispatcher.state.server.fence import Fence
from dispatcher.state.server.parts import (
    PartRows,
    delete_parts,
    read_parts,
    unnamed_parts,
    write_parts,
)
from dispatcher.state.server.schema import create_tables
from dispatcher.state.server.session import DatabaseSession, SessionLimits
from dispatcher.state.statements import Statements
from dispatcher.state.version_rows import load_versions, save_versions
from dispatcher.state.xa_rows import load_xa, save_xa
from dispatcher.stream.xa_store import XaChanges, XaEntry

FAR_BYTES = 1 << 20  # `checkpoint` writes a covered position that is at least this far ahead
_SAVE = """
INSERT INTO consumer (name, acknowledged, covered, file_created) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE acknowledged = VALUES(acknowledged), covered = VALUES(covered),
  file_created = VALUES(file_created)
"""
_COLUMNS = "name, session, paused, acknowledged, covered, file_created"
_ROW = f"SELECT {_COLUMNS} FROM consumer WHERE name = ?"
_NOW_MS = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_NEXT_SESSION = f"""
INSERT INTO consumer (name, session) VALUES (?, {_NOW_MS})
ON DUPLICATE KEY UPDATE session = GREATEST(session + 1, {_NOW_MS})
"""
_SESSION = "SELECT session FROM consumer WHERE name = ?"
_SET_PAUSED = """
INSERT INTO consumer (name, paused) VALUES (?, ?) ON DUPLICATE KEY UPDATE paused = VALUES(paused)
"""
_NEXT_EPOCH = "UPDATE installation SET epoch = GREATEST(epoch + 1, UNIX_TIMESTAMP())"
_INSTALLATION = "SELECT id, epoch FROM installation"


class DatabaseStore:
    """An open store, under one term of the lease. Creates the tables if there are none.

    Every method raises BinlogError: NOT_LEADER if another daemon has taken the lease, or if the database has lost
    writes; STORED_POSITION if only one consumer's row cannot be read; STATE_STORE for every other error.

    `warnings`: the reasons why a crash of the server could lose positions, one per line.
    """

    installation_id: UUID
    epoch: int  # the epoch of consumers without a stored position

    def __init__(self, settings: StateSettings, holder: str, term: int) -> None:
        self._term = term
        self._mutex = threading.Lock()
        self._closed = False
        idle_s = max(2, settings.lease)  # the daemon calls `check` every second
        self._session = DatabaseSession(settings, SessionLimits(idle_s=idle_s))
        # The row of each consumer as it was when the term began. No other process writes these rows, and this store
        # removes a row from this dict before it writes the row.
        self._rows: dict[str, tuple[Any, ...]] = {}
        self._stored: dict[str, Progress] = {}  # what is stored, as far as known
        self._waiting: dict[str, Progress] = {}  # newer covered positions, not stored yet
        self._streams: dict[str, LogPosition] = {}
        self._waiting_streams: dict[str, StoreVersions] = {}
        try:
            with self._calling():
                create_tables(self._session)
                self._fence = Fence(self._session, holder, term)
                self.warnings = self._session.run(durability_warnings)
                installation, self.epoch = self._session.run(_installation)
                self.installation_id = UUID(installation)
                self._rows = self._session.run(_rows)
        except BaseException:
            self._session.close()
            raise

    def __repr__(self) -> str:
        return f"DatabaseStore({self._session.label!r})"

    def write_leader_settings(self, digests: str) -> None:
        """Store the digests of this daemon's settings (JSON), for the standbys."""
        with self._calling():
            write = partial(write_leader_settings, term=self._term, digests=digests)
            self._fence.write(write)

    # -- progress --------------------------------------------------------------------------------------------

    def load(self, consumer: str) -> Progress | None:
        """The stored progress of a consumer; None before its first `save`."""
        with self._calling():
            *_, acknowledged, covered, created = self._row(consumer)
            if acknowledged is None or covered is None:
                return None
            try:
                stored = Progress(
                    Position.from_json(acknowledged), Position.from_json(covered), created
                )
            except (BinlogError, ValueError, TypeError) as error:
                what = error.what if isinstance(error, BinlogError) else str(error)
                where = f"consumer {consumer}, {self._session.label}"
                raise BinlogError(ErrorKind.STORED_POSITION, what, where=where) from error
            self._stored[consumer] = stored
            return self._waiting.get(consumer, stored)

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str = "",
        prepared: XaChanges | None = None,
    ) -> None:
        """Store progress and the changes of a client's prepared transactions, in one transaction.

        `progress`: (consumer, acknowledged, covered, creation time of `covered.file`) of several consumers.
        """
        rows = {name: Progress(reached, end, created) for name, reached, end, created in progress}
        with self._calling():
            if prepared is None and all(map(self._may_wait, rows.items())):
                self._waiting |= rows
            else:
                self._write(rows, client, prepared)

    def _may_wait(self, row: tuple[str, Progress]) -> bool:
        name, progress = row
        stored = self._stored.get(name)
        return stored is not None and stored.acknowledged == progress.acknowledged

    def _write(
        self, rows: Mapping[str, Progress], client: str = "", prepared: XaChanges | None = None
    ) -> None:
        """Write `rows` and all waiting positions, so that a restart reads little of the log again, and the stored
        position of each client's log is as new as the progress."""
        rows = {**self._waiting, **rows}
        parts = PartRows(prepared.put if prepared is not None else ())
        for group in parts.groups:
            self._fence.write(partial(write_parts, parts=group))

        def write(db: Statements) -> None:
            if rows:
                db.executemany(_SAVE, [_row_of(name, row) for name, row in rows.items()])
            self._write_streams(db)
            if prepared is not None:
                write_parts(db, parts.small)
                save_xa(db, client, prepared, parts.keys())

        self._forget_rows(*rows)
        self._fence.write(write)
        self._stored |= rows
        self._waiting.clear()
        self._note_streams()
        if prepared is not None:
            self._sweep_parts()

    def _sweep_parts(self) -> None:
        """Delete the parts that no row names. The method ignores errors, because the caller's write is committed
        already; the next write of prepared transactions tries to delete the parts again."""
        with contextlib.suppress(BinlogError):
            while groups := self._session.run(unnamed_parts):
                for keys in groups:
                    self._fence.write(partial(delete_parts, keys=keys))

    def load_prepared(self, client: str) -> list[XaEntry]:
        """The prepared transactions of a client in the order of their numbers."""
        with self._calling():
            return self._session.run(
                lambda db: load_xa(db, client, lambda key: read_parts(db, key))
            )

    # -- table versions --------------------------------------------------------------------------------------

    def load_versions(self, client: str) -> StoredVersions | None:
        """The stored table versions of a client; None before the first `save_versions`."""
        with self._calling():
            stored = self._session.run(lambda db: load_versions(db, client))
            if stored is None or stored.position is None:
                return stored
            self._streams[client] = stored.position
            waiting = self._waiting_streams.get(client)
            return stored if waiting is None else replace(stored, position=waiting.position)

    def save_versions(self, client: str, versions: StoreVersions) -> None:
        """Store how far a client has read and, if given, its table versions, in one transaction."""
        with self._calling():
            if versions.versions is None and client in self._streams:
                self._waiting_streams[client] = versions
                return
            self._fence.write(lambda db: save_versions(db, client, versions))
            self._streams[client] = versions.position
            self._waiting_streams.pop(client, None)

    def _write_streams(self, db: Statements) -> None:
        for client, versions in self._waiting_streams.items():
            save_versions(db, client, versions)

    def _note_streams(self) -> None:
        self._streams |= {client: each.position for client, each in self._waiting_streams.items()}
        self._waiting_streams.clear()

    # -- sessions --------------------------------------------------------------------------------------------

    def next_session(self, consumer: str) -> int:
        """Store and return a session number higher than all earlier ones.

        The number is based on the server's time (ms since 1970), so that numbers do not repeat after the server has
        lost the newest ones.
        """

        def number(db: Statements) -> int:
            db.execute(_NEXT_SESSION, (consumer,))
            return int(db.execute(_SESSION, (consumer,)).fetchone()[0])

        with self._calling():
            self._forget_rows(consumer)
            return self._fence.write(number)

    def session(self, consumer: str) -> int:
        """The number of the newest session; 0 if there was none."""
        with self._calling():
            return int(self._row(consumer)[1])

    def paused(self, consumer: str) -> bool:
        """True if an administrator has paused the delivery to the consumer's reader."""
        with self._calling():
            return bool(self._row(consumer)[2])

    def _row(self, consumer: str) -> tuple[Any, ...]:
        row = self._rows.get(consumer)
        if row is None:
            row = self._session.run(lambda db: db.execute(_ROW, (consumer,)).fetchone())
        return row or (consumer, 0, 0, None, None, 0)

    def _forget_rows(self, *consumers: str) -> None:
        """Forget the rows of these consumers, because the caller will write these rows. After that, `_row` reads these
        rows from the database."""
        for consumer in consumers:
            self._rows.pop(consumer, None)

    def set_paused(self, consumer: str, paused: bool) -> None:
        with self._calling():
            self._forget_rows(consumer)
            self._fence.write(lambda db: db.execute(_SET_PAUSED, (consumer, int(paused))))

    def forget(self, consumer: str) -> None:
        """Delete the state of a consumer. This consumer, and all later new consumers, begin in a new epoch."""

        def delete(db: Statements) -> None:
            db.execute("DELETE FROM consumer WHERE name = ?", (consumer,))

        self._replace_consumer(consumer, delete)

    def _replace_consumer(self, consumer: str, change: Callable[[Statements], None]) -> None:
        def replace_(db: Statements) -> int:
            change(db)
            db.execute(_NEXT_EPOCH)
            return _installation(db)[1]

        with self._calling():
            self._forget_rows(consumer)
            # A position that waits must not be written after the deletion.
            for rows in (self._stored, self._waiting):
                rows.pop(consumer, None)
            self.epoch = self._fence.write(replace_)

    # -- declared consumers ----------------------------------------------------------------------------------

    def declarations(self) -> list[Declaration]:
        """The consumers that tokens have declared, in the order of their names."""
        with self._calling():
            return self._session.run(load_declarations)

    def declare(self, declaration: Declaration) -> None:
        """Store a declared consumer. The consumer begins at its `start`, in a new epoch, whatever was stored under its
        name."""
        self._replace_consumer(declaration.name, lambda db: replace_declaration(db, declaration))

    def undeclare(self, consumer: str) -> None:
        """Delete a declared consumer with its state. All later new consumers begin in a new epoch."""
        self._replace_consumer(consumer, lambda db: delete_declaration(db, consumer))

    def note_reads(self, consumers: Sequence[str], read_s: int) -> None:
        """Store that readers of declared consumers have called at `read_s`, seconds since 1970."""
        with self._calling():
            self._fence.write(partial(note_reads, consumers=consumers, read_s=read_s))

    # -- the store -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises BinlogError if the server does not answer, or if this daemon may not write any more."""
        with self._calling():
            self._fence.check()

    def checkpoint(self) -> None:
        """Store all waiting positions, if at least one of them is far ahead of the stored position."""
        with self._calling():
            if self._is_far():
                self._write({})

    def _is_far(self) -> bool:
        consumers = self._waiting.items()
        streams = self._waiting_streams.items()
        return any(_far(self._stored[name].covered, row.covered) for name, row in consumers) or any(
            _far(self._streams[client], versions.position) for client, versions in streams
        )

    def close(self) -> None:
        """Store the waiting positions, if this daemon still has the lease, and end the session. May be called again.

        Call it before the lease is given back.
        """
        with self._mutex:
            if self._waiting or self._waiting_streams:
                # After an error the daemon reads the log again from the stored positions.
                with contextlib.suppress(BinlogError):
                    self._write({})
                self._waiting.clear()
                self._waiting_streams.clear()
            self._closed = True
            self._session.close()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        with self._mutex:
            if self._closed:
                raise self._session.error("the store is closed", "restart the daemon")
            try:
                yield
            except (ValueError, TypeError, LookupError) as error:
                remedy = "the tables were changed by hand: restore the database from a backup"
                raise self._session.error(f"invalid content: {error}", remedy) from error


def _row_of(name: str, progress: Progress) -> tuple[str, str, str, int]:
    acknowledged, covered = progress.acknowledged, progress.covered
    text = acknowledged.to_json()
    return name, text, text if covered is acknowledged else covered.to_json(), progress.created


def _rows(db: Statements) -> dict[str, tuple[Any, ...]]:
    """All rows, by consumer. A daemon that takes over reads all rows with few statements, instead of several for each
    consumer."""
    return {str(row[0]): row for row in rows_in_pages(db, "consumer", _COLUMNS, "name")}


def _installation(db: Statements) -> tuple[str, int]:
    installation, epoch = db.execute(_INSTALLATION).fetchone()
    return installation, epoch


def _far(stored: Position | LogPosition, newer: Position | LogPosition) -> bool:
    return newer.file != stored.file or newer.offset - stored.offset >= FAR_BYTES
