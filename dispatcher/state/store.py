"""The state store: a SQLite file with each consumer's progress, session number, table versions and XA transactions.

Invariants:

* `save` and `next_session` return once their data is on disk: WAL with `synchronous=FULL`, one transaction per call.
  Callers release acknowledged bytes only after `save` has returned.
* One process per file: two daemons would overwrite each other's acknowledgements. `lock` holds a lock on `<file>.lock`
  as long as the store is open. SQLite's exclusive mode would also exclude a person with `sqlite3`.
* A row contains both positions of one save: `acknowledged` is what the reader has, `covered` how far the log contains
  nothing else for it.
* Only the daemon's user can read the files: mode 0600, the folder 0700, whatever the umask. Files of earlier versions
  with wider modes are tightened.
* Table versions belong to a client (a connection), not to a consumer. One row says how far the client has read its log;
  that is where the open versions end.
* Prepared XA transactions belong to a client too. They are stored in the same transaction as progress, so that progress
  never passes a prepare whose rows are not stored.

Calls block on the disk, so callers use a thread. Calls from several threads are serialized by a mutex. Every error of
SQLite, the folder or the lock is a `BinlogError` of `ErrorKind.STATE_STORE`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

from dispatcher.binlog.stream.xa_store import XaChanges, XaEntry
from dispatcher.dispatch.effects import StoreVersions
from dispatcher.dispatch.specs import Progress
from dispatcher.dispatch.versions import StoredVersions
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.state.lock import StoreLock
from dispatcher.state.private import FILE_MODE, tighten
from dispatcher.state.schema import upgrade
from dispatcher.state.space import FULL_REMEDY, what_failed
from dispatcher.state.xa_rows import load_xa, save_xa

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

_VERSION_COLUMNS = (
    "database_name, table_name, start_file, start_offset, start_created, end_file, end_offset,"
    " end_created, open, definition"
)
_Row = tuple[int, str | None, str | None, int]  # session, acknowledged, covered, file_created


class StateStore:
    """An open state store. Creates the file and its folder if they do not exist.

    Raises `BinlogError` (STATE_STORE) if the file cannot be opened, is damaged, was written by a newer version, or is
    open in another process.

    `clock`: seconds since 1970. `rewritten`: how often the file was deleted and rewritten. `exposed`: files that other
    users can read and whose mode cannot be changed, because they belong to another user.
    """

    installation_id: UUID
    epoch: int  # of consumers without a stored position

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._log_path = path.with_name(path.name + "-wal")
        self._clock = clock
        self._mutex = threading.Lock()
        self.rewritten = 0
        self._files: tuple[tuple[int, int] | None, ...] | None = None
        self._lock = StoreLock(path)
        try:
            if self._lock.store_id and path.exists() and not path.stat().st_size:
                what = f"the file is empty, but it contained the store {self._lock.store_id}"
                raise self._error(what, _EMPTIED)
            with self._converted_errors():
                self.exposed = _make_private(path)
            self.installation_id = self._connect()
            self._lock.record(str(self.installation_id))
        except BaseException:
            self._lock.close()
            raise

    def _connect(self) -> UUID:
        with self._converted_errors():
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            return self._open()
        except BaseException:
            self._db.close()
            raise

    def __repr__(self) -> str:
        return f"StateStore({str(self._path)!r})"

    def load(self, consumer: str) -> Progress | None:
        """The stored progress of a consumer; None before its first `save`.

        Raises BinlogError: STORED_POSITION if only this consumer's row is unreadable, STATE_STORE for the whole store.
        """
        row = self._row(consumer)
        if row is None:
            return None
        _, acknowledged, covered, file_created = row
        if acknowledged is None or covered is None:
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
        with self._transaction() as db:
            db.executemany(_SAVE, rows)
            if prepared is not None:
                save_xa(db, client, prepared)

    def load_prepared(self, client: str) -> list[XaEntry]:
        """The prepared transactions of a client in the order of their numbers."""
        with self._mutex, self._converted_errors():
            return load_xa(self._db, client)

    def load_versions(self, client: str) -> StoredVersions | None:
        """The stored table versions of a client; None before the first `save_versions`."""
        with self._mutex, self._converted_errors():
            row = self._db.execute(
                "SELECT server, file, offset, created FROM stream WHERE client = ?", (client,)
            ).fetchone()
            if row is None:
                return None
            query = f"SELECT {_VERSION_COLUMNS} FROM table_version WHERE client = ? ORDER BY rowid"
            versions = tuple(
                ((v[0], v[1]), LogPosition(*v[2:5]), LogPosition(*v[5:8]), json.loads(v[9]), bool(v[8]))
                for v in self._db.execute(query, (client,))
            )  # fmt: skip
        return StoredVersions(row[0], LogPosition(*row[1:]), versions)

    def save_versions(self, client: str, versions: StoreVersions) -> None:
        """Store how far a client has read, and its table versions if they are given, in one transaction."""
        mark = (versions.position.file, versions.position.offset, versions.position.created)
        with self._transaction() as db:
            if versions.versions is None:
                query = "UPDATE stream SET file = ?, offset = ?, created = ? WHERE client = ?"
                db.execute(query, (*mark, client))
                return
            db.execute("DELETE FROM stream WHERE client = ?", (client,))
            db.execute("DELETE FROM table_version WHERE client = ?", (client,))
            row = (client, versions.versions.server, *mark)
            db.execute("INSERT INTO stream VALUES (?, ?, ?, ?, ?)", row)
            db.executemany(
                f"INSERT INTO table_version (client, {_VERSION_COLUMNS}) VALUES ({', '.join('?' * 11)})",
                [
                    (
                        client, *name, start.file, start.offset, start.created, end.file, end.offset, end.created,
                        int(open_), json.dumps(definition),
                    )
                    for name, start, end, definition, open_ in versions.versions.versions
                ],
            )  # fmt: skip

    def next_session(self, consumer: str) -> int:
        """Store and return a session number higher than all earlier ones.

        It is based on the time (ms since 1970), so that numbers do not repeat after an older copy was restored.
        """
        with self._transaction() as db:
            now_ms = int(self._clock() * 1000)
            (number,) = db.execute(_NEXT_SESSION, (consumer, now_ms)).fetchone()
        return int(number)

    def session(self, consumer: str) -> int:
        """The newest session number; 0 = no session yet."""
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

    def check(self) -> None:
        """Rewrite the store's file if it was deleted. Raises BinlogError if it was replaced by another file."""
        with self._mutex, self._converted_errors():
            self._check_file()

    def _check_file(self) -> None:
        """The caller holds `_mutex`. Data written to a deleted file would be lost when this process ends."""
        if self._files is None:
            return  # the store is being opened
        store, log = self._files
        current = _identity(self._path)
        if current is not None and current != store:
            raise self._error("the file was replaced by another one while it was open", _REPLACED)
        current_log = _identity(self._log_path)
        if current is None or (log is not None and current_log != log):
            try:
                self._rewrite()
            except OSError as error:
                what, full = what_failed(error, self._path.parent)
                what = f"the file was deleted and cannot be rewritten: {what}"
                raise self._error(what, FULL_REMEDY if full else _remedy(error)) from error
        elif log is None:
            self._files = store, current_log

    def _rewrite(self) -> None:
        """Copy the open store to its path. A deleted file is complete as long as it is open."""
        self._lock.renew()
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        with closing(sqlite3.connect(fresh)) as copy:
            self._db.backup(copy)
        _sync(fresh)
        # Closing deletes the write-ahead log by name, so close before the new file is in place.
        self._db.close()
        for end in ("-wal", "-shm"):
            self._path.with_name(self._path.name + end).unlink(missing_ok=True)
        fresh.replace(self._path)
        _sync(self._path.parent)
        self._files = None
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._set_up()
        self.rewritten += 1

    def forget(self, consumer: str) -> None:
        """Delete the state of a consumer. It, and all later new consumers, begin in a new epoch."""
        with self._transaction() as db:
            db.execute("DELETE FROM consumer WHERE name = ?", (consumer,))
            self._begin_epoch(db)

    def close(self) -> None:
        """Checkpoint the write-ahead log into the file and release the lock. May be called again."""
        with self._mutex:
            if not self._lock.held:
                return
            try:
                with self._converted_errors():
                    self._db.close()
            finally:
                self._lock.close()

    def _row(self, consumer: str) -> _Row | None:
        query = "SELECT session, acknowledged, covered, file_created FROM consumer WHERE name = ?"
        with self._mutex, self._converted_errors():
            row: _Row | None = self._db.execute(query, (consumer,)).fetchone()
            return row

    def _open(self) -> UUID:
        with self._transaction("EXCLUSIVE") as db:
            if upgrade(db, self._path):
                self._begin_epoch(db)
        with self._converted_errors():
            self._set_up()
            check = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                raise self._error(check.splitlines()[-1], _DAMAGED)
            installation, self.epoch = db.execute("SELECT id, epoch FROM installation").fetchone()
            return UUID(installation)

    def _begin_epoch(self, db: sqlite3.Connection) -> None:
        """Set the epoch of new consumers to one that was never used: based on the time (s since 1970)."""
        query = "UPDATE installation SET epoch = max(epoch + 1, ?) RETURNING epoch"
        (self.epoch,) = db.execute(query, (int(self._clock()),)).fetchone()

    def _set_up(self) -> None:
        """Configure the connection. The journal mode cannot be changed within a transaction."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._files = _identity(self._path), None

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
    """The row that `_SAVE` writes. Both positions of a reader that keeps up are one."""
    text = acknowledged.to_json()
    return consumer, text, text if covered is acknowledged else covered.to_json(), created


_WITHOUT = "consumers then begin at their 'start', or at the position that their readers pass"
_EMPTIED = f"restore the file from a backup, or delete it: {_WITHOUT}"
_DAMAGED = f"the file is damaged: restore it from a backup, or move it away: {_WITHOUT}"
_REPLACED = (
    "restart the daemon to continue with the new file, or move the new file away: the daemon then rewrites its own."
    " Nothing is acknowledged until then"
)


def _remedy(error: sqlite3.Error | OSError) -> str | None:
    text = str(error).lower()
    if "malformed" in text or "not a database" in text or "corrupt" in text:
        return _DAMAGED
    if "readonly" in text or "unable to open" in text:
        return "give the daemon's user write access to the file and its folder"
    return None


def _make_private(path: Path) -> tuple[Path, ...]:
    """Create the store's file if it does not exist and tighten the modes. Returns files that could not be tightened.

    SQLite creates the file with the umask's mode, and gives its companion files the mode of the file.
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    return tighten(path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock"))


def _identity(path: Path) -> tuple[int, int] | None:
    """(device, inode) of a file; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
