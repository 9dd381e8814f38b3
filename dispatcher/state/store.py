"""The state store: one SQLite file that says how far each consumer has got.

Invariants:

* What `save` and `next_session` return from is on disk: WAL with `synchronous=FULL`, one
  transaction per call. The caller may let go of bytes once `save` has returned, never earlier.
* One process per file. Two daemons on one store would each acknowledge over the other, so a lock on
  `<file>.lock` is held for as long as the store is open. It is the kernel's (`flock`): it goes with
  the process, however that dies. SQLite's own exclusive mode was not chosen because it also keeps a
  person with `sqlite3` from looking.
* A row holds both positions of one save: `acknowledged` is what the reader has, `covered` how far
  nothing else is its own.
* Only the daemon's user may read what is stored: files are made with mode 0600, their folder with 0700, whatever the
  umask, and files of before that others may read are tightened.
* Table versions belong to a connection, not to a consumer: one row says how far its log was read,
  which is where the versions end that are open.
* So do the rows of prepared XA transactions. They are stored together with progress, in one
  transaction, so that no progress leads past a prepare whose rows are not here.

Calls wait for the disk, so the caller gives them a thread. They may come from several threads; one
lock orders them. Every fault of SQLite, of the folder or of the lock is a `BinlogError` of
`ErrorKind.STATE_STORE`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from dispatcher.binlog.stream.xa_store import XaChanges, XaEntry
from dispatcher.dispatch.effects import StoreVersions
from dispatcher.dispatch.versions import Kept
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.state import xa_rows
from dispatcher.state.lock import StoreLock
from dispatcher.state.private import FILE_MODE, tighten

SCHEMA_VERSION = 4
# "BiDi" in ASCII: tells `file`, and us, a state store from somebody's database.
APPLICATION_ID = 0x42694469

_SCHEMA = """
CREATE TABLE installation (id TEXT NOT NULL);
CREATE TABLE consumer (
  name         TEXT PRIMARY KEY,
  session      INTEGER NOT NULL DEFAULT 0,
  acknowledged TEXT,               -- positions as JSON, NULL until the first save
  covered      TEXT,
  file_created INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
# What a version adds to the schema before it.
_MIGRATIONS: dict[int, str] = {
    2: """
CREATE TABLE stream (
  client  TEXT PRIMARY KEY,
  server  TEXT NOT NULL,
  file    TEXT NOT NULL,           -- how far the log was read: where open versions end
  offset  INTEGER NOT NULL,
  created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE table_version (
  client        TEXT NOT NULL,
  database_name TEXT NOT NULL,
  table_name    TEXT NOT NULL,
  start_file    TEXT NOT NULL,
  start_offset  INTEGER NOT NULL,
  start_created INTEGER NOT NULL,
  end_file      TEXT NOT NULL,
  end_offset    INTEGER NOT NULL,
  end_created   INTEGER NOT NULL,
  open          INTEGER NOT NULL,  -- 1: ends where the stream does, if that is later
  definition    TEXT NOT NULL      -- JSON
);
CREATE INDEX table_version_of ON table_version (client);
""",
    3: """
CREATE TABLE prepared (
  client      TEXT NOT NULL,
  number      INTEGER NOT NULL,
  xid         TEXT NOT NULL,
  server      TEXT NOT NULL,       -- where it was prepared
  file        TEXT NOT NULL,
  offset      INTEGER NOT NULL,
  created     INTEGER NOT NULL,
  source      TEXT NOT NULL,       -- of its GTID
  gno         INTEGER NOT NULL,
  ended       TEXT,                -- where it was committed or rolled back, as JSON
  flaws       TEXT NOT NULL,       -- JSON
  compression INTEGER,             -- NULL: without rows
  size        INTEGER,
  rows        BLOB,
  PRIMARY KEY (client, number)
);
""",
    4: """
ALTER TABLE installation ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
""",
}
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


_VERSION_COLUMNS = (
    "database_name, table_name, start_file, start_offset, start_created, end_file, end_offset,"
    " end_created, open, definition"
)
_Row = tuple[int, str | None, str | None, int]  # session, acknowledged, covered, file_created


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """What is stored of one consumer.

    `file_created`: when the server began `acknowledged.file`, in s since 1970; 0 where unknown.
    """

    acknowledged: Position
    covered: Position
    session: int
    file_created: int


class StateStore:
    """The open store; see the module's text for what it promises.

    `path` is the SQLite file; its folder is made when missing. Raises `BinlogError`
    (`ErrorKind.STATE_STORE`) when the file cannot be opened, is damaged, was written by a newer version,
    or is open in another process.

    `clock`: seconds since 1970. `rewritten`: how often the file was written anew because it had been deleted.
    `exposed`: files that others may read and whose mode cannot be changed, since they belong to another user.
    """

    installation_id: UUID
    epoch: int  # of consumers of which nothing is stored

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._mutex = threading.Lock()
        self.rewritten = 0
        self._files: tuple[tuple[int, int] | None, ...] | None = None
        self._lock = StoreLock(path)
        try:
            if self._lock.store and path.exists() and not path.stat().st_size:
                what = f"the file has 0 bytes, but the store {self._lock.store} was there"
                raise self._fault(what, _EMPTIED)
            with self._faults():
                self.exposed = _make_private(path)
            self.installation_id = self._connect()
            self._lock.opened(str(self.installation_id))
        except BaseException:
            self._lock.close()
            raise

    def _connect(self) -> UUID:
        with self._faults():
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            return self._open()
        except BaseException:
            self._db.close()
            raise

    def __repr__(self) -> str:
        return f"StateStore({str(self._path)!r})"

    def load(self, consumer: str) -> StoredProgress | None:
        """What is stored of a consumer; None before its first `save`.

        Raises BinlogError: STORED_POSITION where its row alone cannot be read, STATE_STORE for the whole store.
        """
        row = self._row(consumer)
        if row is None:
            return None
        session, acknowledged, covered, file_created = row
        if acknowledged is None or covered is None:
            return None
        try:
            positions = Position.from_json(acknowledged), Position.from_json(covered)
            return StoredProgress(*positions, int(session), int(file_created))
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
        """Store (consumer, acknowledged, covered, file_created) of several consumers, and what has changed of the
        `prepared` transactions of their `client`.

        All of it or, with an error, nothing.
        """
        rows = [(c, a.to_json(), covered.to_json(), created) for c, a, covered, created in progress]
        if not rows and prepared is None:
            return
        with self._transaction() as db:
            db.executemany(_SAVE, rows)
            if prepared is not None:
                xa_rows.save_xa(db, client, prepared)

    def load_prepared(self, client: str) -> list[XaEntry]:
        """The prepared transactions of a client, in the order in which they were read."""
        with self._mutex, self._faults():
            return xa_rows.load_xa(self._db, client)

    def load_versions(self, client: str) -> Kept | None:
        """What is stored of the tables that a client reads; None before the first `save_versions`."""
        with self._mutex, self._faults():
            row = self._db.execute(
                "SELECT server, file, offset, created FROM stream WHERE client = ?", (client,)
            ).fetchone()
            if row is None:
                return None
            query = f"SELECT {_VERSION_COLUMNS} FROM table_version WHERE client = ? ORDER BY rowid"
            found = self._db.execute(query, (client,)).fetchall()
            versions = tuple(
                (
                    (v[0], v[1]),
                    LogPosition(*v[2:5]),
                    LogPosition(*v[5:8]),
                    json.loads(v[9]),
                    bool(v[8]),
                )
                for v in found
            )
        return Kept(row[0], LogPosition(*row[1:]), versions)

    def save_versions(self, client: str, what: StoreVersions) -> None:
        """Store how far a client has read, and what is known of its tables where that is given; all or nothing."""
        mark = (what.mark.file, what.mark.offset, what.mark.created)
        with self._transaction() as db:
            if what.kept is None:
                query = "UPDATE stream SET file = ?, offset = ?, created = ? WHERE client = ?"
                db.execute(query, (*mark, client))
                return
            db.execute("DELETE FROM stream WHERE client = ?", (client,))
            db.execute("DELETE FROM table_version WHERE client = ?", (client,))
            row = (client, what.kept.server, *mark)
            db.execute("INSERT INTO stream VALUES (?, ?, ?, ?, ?)", row)
            places = ", ".join("?" * 11)
            db.executemany(
                f"INSERT INTO table_version (client, {_VERSION_COLUMNS}) VALUES ({places})",
                [
                    (
                        client, *name, start.file, start.offset, start.created, end.file, end.offset, end.created,
                        int(open_), json.dumps(definition),
                    )
                    for name, start, end, definition, open_ in what.kept.versions
                ],
            )  # fmt: skip

    def next_session(self, consumer: str) -> int:
        """Store a number that is higher than all before, and return it.

        It is the time (ms since 1970), so that it does not repeat after the store was restored from an older copy.
        """
        with self._transaction() as db:
            now_ms = int(self._clock() * 1000)
            (number,) = db.execute(_NEXT_SESSION, (consumer, now_ms)).fetchone()
        return int(number)

    def session(self, consumer: str) -> int:
        """The newest session number; 0 when there was none."""
        row = self._row(consumer)
        return 0 if row is None else int(row[0])

    def check(self) -> None:
        """Raises BinlogError if another file has taken the place of the store's; writes it anew if it was deleted."""
        with self._mutex, self._faults():
            self._keep_file()

    def _keep_file(self) -> None:
        """The caller holds `_mutex`. What is written to a deleted file would be lost with this process."""
        if self._files is None:
            return  # it is just being opened
        store, log = self._files
        there = _identity(self._path)
        if there is not None and there != store:
            raise self._fault("another file has taken the place of the open one", _REPLACED)
        log_there = _identity(self._path.with_name(self._path.name + "-wal"))
        if there is None or (log is not None and log_there != log):
            try:
                self._write_anew()
            except OSError as error:
                what = f"the file was deleted and cannot be written anew: {error.strerror or error}"
                raise self._fault(what, _remedy(error)) from error
        elif log is None:
            self._files = store, log_there

    def _write_anew(self) -> None:
        """Copy the open store, of which nothing is lost as long as it is open, to where it was."""
        self._lock.renew()
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        with closing(sqlite3.connect(fresh)) as copy:
            self._db.backup(copy)
        _sync(fresh)
        # SQLite removes the write-ahead log by its name when it closes a store, so that comes before the new one.
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
        """Remove all that is stored of a consumer. It begins anew in a new epoch, as consumers that are new do then."""
        with self._transaction() as db:
            db.execute("DELETE FROM consumer WHERE name = ?", (consumer,))
            self._begin_epoch(db)

    def close(self) -> None:
        """Fold the log into the file and let go of the lock. May be called again."""
        with self._mutex:
            if not self._lock.held:
                return
            try:
                with self._faults():
                    self._db.close()
            finally:
                self._lock.close()

    def _row(self, consumer: str) -> _Row | None:
        query = "SELECT session, acknowledged, covered, file_created FROM consumer WHERE name = ?"
        with self._mutex, self._faults():
            row: _Row | None = self._db.execute(query, (consumer,)).fetchone()
            return row

    def _open(self) -> UUID:
        with self._transaction("EXCLUSIVE") as db:
            application, version = _pragma(db, "application_id"), _pragma(db, "user_version")
            empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if empty:
                for statement in _SCHEMA.strip().split(";\n"):
                    db.execute(statement)
                version = 1
                db.execute("INSERT INTO installation (id) VALUES (?)", (str(uuid4()),))
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            elif application != APPLICATION_ID:
                raise self._fault("the file is another program's database", _ELSEWHERE)
            elif version > SCHEMA_VERSION:
                raise self._fault(
                    f"the file has schema {version}, this version knows {SCHEMA_VERSION}",
                    f"run the newer binlog-dispatcher that wrote it, or {_ELSEWHERE}",
                )
            for newer in range(version + 1, SCHEMA_VERSION + 1):
                for statement in _MIGRATIONS[newer].strip().split(";\n"):
                    db.execute(statement)
            if empty:
                self._begin_epoch(db)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        with self._faults():
            self._set_up()
            check = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                raise self._fault(check.splitlines()[-1], _DAMAGED)
            found, self.epoch = db.execute("SELECT id, epoch FROM installation").fetchone()
            return UUID(found)

    def _begin_epoch(self, db: sqlite3.Connection) -> None:
        """Consumers of which nothing is stored begin in an epoch that was never used before: seconds since 1970."""
        query = "UPDATE installation SET epoch = max(epoch + 1, ?) RETURNING epoch"
        (self.epoch,) = db.execute(query, (int(self._clock()),)).fetchone()

    def _set_up(self) -> None:
        """What belongs to a connection; the mode of the journal cannot change within a transaction."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._files = _identity(self._path), None

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._mutex, self._faults():
            self._keep_file()
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # After some faults (a full disk) SQLite has rolled back by itself.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._keep_file()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._fault(str(error), _remedy(error)) from error
        except OSError as error:
            raise self._fault(error.strerror or str(error), _remedy(error)) from error
        except (BinlogError, ValueError) as error:
            if isinstance(error, BinlogError) and error.kind is ErrorKind.STATE_STORE:
                raise
            raise self._fault(f"unreadable content: {error}", _DAMAGED) from error

    def _fault(self, what: str, remedy: str | None) -> BinlogError:
        return BinlogError(ErrorKind.STATE_STORE, what, where=str(self._path), remedy=remedy)


_ELSEWHERE = "name another state.path"
_EMPTIED = "restore the file from a backup; or remove it, and consumers begin where 'start' or their readers say"
_REPLACED = (
    "restart the daemon to go on from the file that is there now, or move that away: then the daemon writes its own"
    " again; nothing is acknowledged meanwhile"
)
_DAMAGED = (
    "the file is damaged: restore it, or move it away, and the consumers begin where their 'start'"
    " or their readers say"
)


def _remedy(error: sqlite3.Error | OSError) -> str | None:
    text = str(error).lower()
    if "malformed" in text or "not a database" in text or "corrupt" in text:
        return _DAMAGED
    if "full" in text:
        return "free space on the file system; nothing is lost, readers wait"
    if "readonly" in text or "unable to open" in text:
        return "give the daemon's user write access to the file and its folder"
    return None


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _make_private(path: Path) -> tuple[Path, ...]:
    """Make the store's file, if it is missing, and tighten what exists; returns what could not be tightened.

    SQLite gives the files beside it the mode of this one, but makes this one with the mode that the umask leaves.
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    return tighten(path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock"))


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one at the same path; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
