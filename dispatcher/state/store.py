"""The state store: a SQLite file with each consumer's progress, session number, table versions and XA transactions, and
with the consumers that tokens have declared.

Invariants:

* `save` and `next_session` return once their data is on disk: WAL with `synchronous=FULL`, one transaction per call.
  Callers release acknowledged bytes only after `save` has returned.
* One process per file: two daemons would overwrite each other's acknowledgements. `lock` locks `<file>.lock` and the
  file as long as the store is open. SQLite's exclusive mode would also lock out a person who uses `sqlite3`.
* The daemon notices that a store is older than the acknowledged positions, because `newest` keeps these positions in a
  file beside the store.
* A row contains both positions of one save: `acknowledged`, up to which the reader has stored the data, and `covered`,
  up to which the log contains nothing else for the consumer.
* Only the daemon's user can read the files: mode 0600, the folder 0700, whatever the umask. The store narrows the modes
  of existing files.
* Table versions belong to a client (a connection), not to a consumer. One row for each client contains the position up
  to which the client has read its log. A version without an end of its own (`open`) is valid up to this position.
* Prepared XA transactions belong to a client too. They are stored in the same transaction as progress, so that progress
  never passes a prepare whose rows are not stored.

Calls block on the disk, so callers use a thread. Calls from several threads are serialized by a mutex. Every error of
SQLite, the folder or the lock is a `BinlogError` of `ErrorKind.STATE_STORE`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.state.declaration_rows import (
    delete_declaration,
    load_declarations,
    note_reads,
    replace_declaration,
)
from dispatcher.state.files import beside, identity, make_private, resolved
from dispatcher.state.lock import FileLock, StoreLock, refuse_hard_links
from dispatcher.state.newest import EpochSeq, Loss, NewestPositions
from dispatcher.state.schema import SCHEMA_VERSION, create
from dispatcher.state.space import FULL_REMEDY, what_failed
from dispatcher.state.statements import Statements
from dispatcher.state.version_rows import load_versions, save_versions
from dispatcher.state.xa_rows import load_xa, save_xa
from dispatcher.stream.xa_store import XaChanges, XaEntry

_SAVE = """
INSERT INTO consumer (name, acknowledged, covered, file_created) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET acknowledged = excluded.acknowledged, covered = excluded.covered,
  file_created = excluded.file_created
"""
_NEXT_SESSION = """
INSERT INTO consumer (name, session) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET session = max(session + 1, excluded.session)
RETURNING session
"""
_SET_PAUSED = """
INSERT INTO consumer (name, paused) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
"""

_Row = tuple[int, str | None, str | None, int]  # session, acknowledged, covered, file_created


class StateStore:
    """An open state store. Creates the file and its folder if they do not exist.

    Raises `BinlogError` (STATE_STORE) if the file cannot be opened, is damaged, was written by another version, or is
    open in another process.

    `clock`: seconds since 1970. `exposed`: files that other users can read and whose mode cannot be changed, because
    they belong to another user. `losses`: the consumers whose
    stored position was older than the newest known position when the store was opened. `unreadable`: how many lines of
    the file with the newest positions could not be read at that time.
    """

    installation_id: UUID
    epoch: int  # the epoch of consumers without a stored position

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path = resolved(path)
        self._log_path = beside(path, "-wal")
        self._clock = clock
        self._mutex = threading.Lock()
        self._files: tuple[tuple[int, int] | None, ...] | None = None
        self._newest: NewestPositions | None = None
        self._file_lock: FileLock | None = None
        refuse_hard_links(path)
        self._lock = StoreLock(path)
        try:
            if self._lock.store_id and path.exists() and not path.stat().st_size:
                what = f"the file is empty, but it contained the store {self._lock.store_id}"
                raise self._error(what, _EMPTIED)
            with self._converted_errors():
                self.exposed = make_private(path)
                self._file_lock = FileLock(path)
            self.installation_id = self._connect()
            self._lock.record(str(self.installation_id))
        except BaseException:
            self._release()
            raise

    def _connect(self) -> UUID:
        with self._converted_errors():
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            return self._open()
        except BaseException:
            self._db.close()
            raise

    def _release(self) -> None:
        """Release the locks. Called after SQLite has closed the file."""
        if self._newest is not None:
            self._newest.close()
        if self._file_lock is not None:
            self._file_lock.close()
        self._lock.close()

    def __repr__(self) -> str:
        return f"StateStore({str(self._path)!r})"

    def load(self, consumer: str) -> Progress | None:
        """The stored progress of a consumer; None before its first `save`.

        Raises BinlogError: STORED_POSITION if only this consumer's row is unreadable, STATE_STORE for the whole store.
        """
        row = self._row(consumer)
        _, acknowledged, covered, file_created = row or (0, None, None, 0)
        if acknowledged is None or covered is None:
            if (loss := self._lost_rows.get(consumer)) is not None:
                raise self._lost_row(loss)
            return None
        try:
            positions = Position.from_json(acknowledged), Position.from_json(covered)
            return Progress(*positions, int(file_created))
        except (BinlogError, ValueError, TypeError) as error:
            what = error.what if isinstance(error, BinlogError) else str(error)
            where = f"consumer {consumer}, {self._path}"
            raise BinlogError(ErrorKind.STORED_POSITION, what, where=where) from error

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str = "",
        prepared: XaChanges | None = None,
    ) -> None:
        """Store progress and the changes of a client's prepared transactions, in one transaction.

        `progress`: (consumer, acknowledged, covered, creation time of `covered.file`) of several consumers.
        """
        rows = [_row_of(*of_consumer) for of_consumer in progress]
        if not rows and prepared is None:
            return
        marks = [(name, EpochSeq(*acknowledged.order)) for name, acknowledged, _, _ in progress]
        with self._transaction() as db:
            self._known.clear_before(marks)
            db.executemany(_SAVE, rows)
            if prepared is not None:
                save_xa(db, client, prepared)
        with self._mutex, self._converted_errors():
            for name, _ in marks:
                self._lost_rows.pop(name, None)
            if self._known.record(marks):
                self._checkpoint()

    def load_prepared(self, client: str) -> list[XaEntry]:
        """The prepared transactions of a client in the order of their numbers."""
        with self._mutex, self._converted_errors():
            return load_xa(self._db, client)

    def load_versions(self, client: str) -> StoredVersions | None:
        """The stored table versions of a client; None before the first `save_versions`."""
        with self._mutex, self._converted_errors():
            return load_versions(self._db, client)

    def save_versions(self, client: str, versions: StoreVersions) -> None:
        """Store how far a client has read and, if given, its table versions, in one transaction."""
        with self._transaction() as db:
            save_versions(db, client, versions)

    def next_session(self, consumer: str) -> int:
        """Store and return a session number higher than all earlier ones.

        The number is based on the time (ms since 1970), so that numbers do not repeat after an older copy was restored.
        """
        with self._transaction() as db:
            now_ms = int(self._clock() * 1000)
            (number,) = db.execute(_NEXT_SESSION, (consumer, now_ms)).fetchone()
        return int(number)

    def session(self, consumer: str) -> int:
        """The number of the newest session; 0 if there was none."""
        row = self._row(consumer)
        return 0 if row is None else int(row[0])

    def paused(self, consumer: str) -> bool:
        """True if an administrator has paused the delivery to the consumer's reader."""
        query = "SELECT paused FROM consumer WHERE name = ?"
        with self._mutex, self._converted_errors():
            row = self._db.execute(query, (consumer,)).fetchone()
        return row is not None and bool(row[0])

    def set_paused(self, consumer: str, paused: bool) -> None:
        with self._transaction() as db:
            db.execute(_SET_PAUSED, (consumer, int(paused)))
        self.checkpoint()

    def check(self) -> None:
        """Raises BinlogError if the store's file was deleted, or replaced by another file."""
        with self._mutex, self._converted_errors():
            self._check_file()
            self._known.renew()

    def checkpoint(self) -> None:
        """Move what was committed from the write-ahead log into the file, so that a damaged log loses few positions."""
        with self._mutex, self._converted_errors():
            self._check_file()
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Move what was committed into the file. The caller holds `_mutex`. If another process reads the store at the
        same time, some frames may stay in the log.

        RESTART lets the next write begin the log again from its start. This method makes such a write at once. Without
        this write, recovery after a crash would read the old log up to its first damaged frame. The frames before this
        frame can contain older pages than the file, so the store would have older positions again. TRUNCATE would avoid
        that, too. But a log that keeps its size needs no new disk space for acknowledgements, and its sync writes no
        metadata.
        """
        (wait_ms,) = self._db.execute("PRAGMA busy_timeout").fetchone()
        self._db.execute("PRAGMA busy_timeout = 0")  # do not wait for readers
        try:
            busy, frames, _ = self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {wait_ms}")
        if frames and not busy:
            # An UPDATE to the same value would not suffice: SQLite writes nothing for it.
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._known.sync()

    def _check_file(self) -> None:
        """Check that the paths still name the open files: what is written to a deleted file is lost when this process
        ends. The caller holds `_mutex`."""
        if self._files is None:
            return  # the store is being opened
        store, log = self._files
        current, current_log = identity(self._path), identity(self._log_path)
        if current is not None and current != store:
            raise self._error("the file was replaced by another one while it was open", _REPLACED)
        if current is None or log not in (None, current_log):
            self._lock.renew()
            name = self._path.name if current is None else self._log_path.name
            raise self._error(f"{name} was deleted while it was open", _DELETED)
        self._files = store, current_log

    def forget(self, consumer: str) -> None:
        """Delete the state of a consumer. This consumer, and all later new consumers, begin in a new epoch."""

        def delete(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM consumer WHERE name = ?", (consumer,))

        self._replace_consumer(consumer, delete)

    def declarations(self) -> list[Declaration]:
        """The consumers that tokens have declared, in the order of their names."""
        with self._mutex, self._converted_errors():
            return load_declarations(self._db)

    def declare(self, declaration: Declaration) -> None:
        """Store a declared consumer. The consumer begins at its `start`, in a new epoch, whatever was stored under its
        name."""
        self._replace_consumer(declaration.name, lambda db: replace_declaration(db, declaration))

    def undeclare(self, consumer: str) -> None:
        """Delete a declared consumer with its state. All later new consumers begin in a new epoch."""
        self._replace_consumer(consumer, lambda db: delete_declaration(db, consumer))

    def _replace_consumer(
        self, consumer: str, change: Callable[[sqlite3.Connection], None]
    ) -> None:
        with self._transaction() as db:
            self._known.clear(consumer)
            change(db)
            self._begin_epoch(db)
        with self._mutex, self._converted_errors():
            self._lost_rows.pop(consumer, None)
            self._checkpoint()

    def note_reads(self, consumers: Sequence[str], read_s: int) -> None:
        """Store that readers of declared consumers have called at `read_s`, seconds since 1970."""
        with self._transaction() as db:
            note_reads(db, consumers, read_s)

    @contextmanager
    def transaction(self) -> Iterator[Statements]:
        """A transaction for statements of the caller. The transaction is on disk when the block has ended.

        A BinlogError of the block is raised unchanged.
        """
        of_block: BinlogError | None = None
        try:
            with self._transaction() as db:
                try:
                    yield db
                except BinlogError as error:
                    of_block = error
                    raise
        except BinlogError:
            if of_block is not None:
                raise of_block from of_block.__cause__
            raise

    def close(self) -> None:
        """Checkpoint the write-ahead log into the file and release the lock. May be called again."""
        with self._mutex:
            if not self._lock.held:
                return
            try:
                with self._converted_errors():
                    self._known.sync()
                    self._db.close()
            finally:
                self._release()

    def _row(self, consumer: str) -> _Row | None:
        query = "SELECT session, acknowledged, covered, file_created FROM consumer WHERE name = ?"
        with self._mutex, self._converted_errors():
            row: _Row | None = self._db.execute(query, (consumer,)).fetchone()
            return row

    def _open(self) -> UUID:
        with self._transaction("EXCLUSIVE") as db:
            if create(db, self._path):
                self._begin_epoch(db)
        with self._converted_errors():
            self._set_up()
            check = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                raise self._error(check.splitlines()[-1], _DAMAGED)
            installation, self.epoch = db.execute("SELECT id, epoch FROM installation").fetchone()
            self._compare(installation)
            return UUID(installation)

    def _compare(self, installation: str) -> None:
        """Compare the stored positions with the newest positions of the file `.newest`, and record the losses."""
        self._newest = known = NewestPositions(beside(self._path, ".newest"), installation)
        self.unreadable = known.unreadable
        stored = {name: self._stored_order(name, mark) for name, mark in known.marks.items()}
        self.losses = known.compare(stored)
        # A consumer whose row is lost must not begin at its `start`: it would skip rows, or would get positions with a
        # smaller `seq` in an epoch that readers already use.
        lost = (loss for loss in self.losses if loss.stored is None and not loss.new_store)
        self._lost_rows = {loss.consumer: loss for loss in lost}

    def _stored_order(self, consumer: str, known: EpochSeq | None) -> EpochSeq | None:
        """Returns the epoch and seq of the stored position; `known` if the row is unreadable, which `load` reports."""
        query = "SELECT acknowledged FROM consumer WHERE name = ?"
        row = self._db.execute(query, (consumer,)).fetchone()
        if row is None or row[0] is None:
            return None
        try:
            return EpochSeq(*Position.from_json(row[0]).order)
        except (BinlogError, ValueError, TypeError):
            return known

    def _lost_row(self, loss: Loss) -> BinlogError:
        what = f"the state store has lost the consumer's position: {loss.newest} was acknowledged"
        where = f"consumer {loss.consumer}, {self._path}"
        return BinlogError(ErrorKind.STORED_POSITION, what, where=where)

    @property
    def _known(self) -> NewestPositions:
        assert self._newest is not None, "set when the store is opened"
        return self._newest

    def _begin_epoch(self, db: sqlite3.Connection) -> None:
        """Set the epoch of new consumers to one that was never used: based on the time (s since 1970)."""
        query = "UPDATE installation SET epoch = max(epoch + 1, ?) RETURNING epoch"
        (self.epoch,) = db.execute(query, (int(self._clock()),)).fetchone()

    def _set_up(self) -> None:
        """Configure the connection. The journal mode cannot be changed within a transaction."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._files = identity(self._path), None

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._mutex, self._converted_errors():
            self._check_file()
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # After some errors (a full disk) SQLite has already rolled back.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._check_file()

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            what, full = what_failed(error, self._path.parent)
            raise self._error(what, FULL_REMEDY if full else _remedy(error)) from error
        except (BinlogError, ValueError) as error:
            if isinstance(error, BinlogError) and error.kind is ErrorKind.STATE_STORE:
                raise
            raise self._error(f"invalid content: {error}", _DAMAGED) from error

    def _error(self, what: str, remedy: str | None) -> BinlogError:
        return BinlogError(ErrorKind.STATE_STORE, what, where=str(self._path), remedy=remedy)


def _row_of(
    consumer: str, acknowledged: Position, covered: Position, created: int
) -> tuple[str, str, str, int]:
    """Returns the row that `_SAVE` writes. `acknowledged` and `covered` are the same object if the reader keeps up."""
    text = acknowledged.to_json()
    return consumer, text, text if covered is acknowledged else covered.to_json(), created


_WITHOUT = "consumers begin at their 'start', or at the position that their readers pass"
_EMPTIED = f"restore the file from a backup, or delete it: {_WITHOUT}"
_DAMAGED = f"the file is damaged: restore it from a backup, or move it away: {_WITHOUT}"
_REPLACED = (
    "restart the daemon to continue with the new file, or put back the file that was replaced. Nothing is acknowledged"
    " until then"
)
_DELETED = f"restart the daemon, after you have restored a backup if there is one. Without a file, {_WITHOUT}"


def _remedy(error: sqlite3.Error | OSError) -> str | None:
    text = str(error).lower()
    if "malformed" in text or "not a database" in text or "corrupt" in text:
        return _DAMAGED
    if (
        "readonly" in text
        or "unable to open" in text
        or isinstance(error, IsADirectoryError | PermissionError)
    ):
        return "give the daemon's user write access to the file and its folder"
    return None
