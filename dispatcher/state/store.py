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
`Kind.STATE_STORE`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from dispatcher.binlog.prepared import Changes, Entry
from dispatcher.dispatch.inputs import StoreVersions
from dispatcher.dispatch.versions import Kept
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.model.position import Mark, Position
from dispatcher.state import prepared_rows
from dispatcher.state.private import FILE_MODE, FOLDER_MODE, tighten

SCHEMA_VERSION = 3
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
}
_SAVE = """
INSERT INTO consumer (name, acknowledged, covered, file_created) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET acknowledged = excluded.acknowledged, covered = excluded.covered,
  file_created = excluded.file_created
"""
_NEXT_SESSION = """
INSERT INTO consumer (name, session) VALUES (?, 1)
ON CONFLICT (name) DO UPDATE SET session = session + 1
RETURNING session
"""


_VERSION_COLUMNS = (
    "database_name, table_name, start_file, start_offset, start_created, end_file, end_offset,"
    " end_created, open, definition"
)
_Row = tuple[int, str | None, str | None, int]  # session, acknowledged, covered, file_created


@dataclass(frozen=True, slots=True)
class Stored:
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
    (`Kind.STATE_STORE`) when the file cannot be opened, is damaged, was written by a newer version,
    or is open in another process.

    `exposed`: files that others may read and whose mode cannot be changed, since they belong to another user.
    """

    installation_id: UUID

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._lock_fd = _lock(path)
        try:
            with self._faults():
                self.exposed = _make_private(path)
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self.installation_id = self._open()
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            os.close(self._lock_fd)
            raise

    def __repr__(self) -> str:
        return f"StateStore({str(self._path)!r})"

    def load(self, consumer: str) -> Stored | None:
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
            return Stored(*positions, int(session), int(file_created))
        except (BinlogError, ValueError, TypeError) as error:
            what = error.what if isinstance(error, BinlogError) else str(error)
            where = f"consumer {consumer}, {self._path}"
            raise BinlogError(Kind.STORED_POSITION, what, where=where) from error

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str = "",
        prepared: Changes | None = None,
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
                prepared_rows.save(db, client, prepared)

    def load_prepared(self, client: str) -> list[Entry]:
        """The prepared transactions of a client, in the order in which they were read."""
        with self._mutex, self._faults():
            return prepared_rows.load(self._db, client)

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
                ((v[0], v[1]), Mark(*v[2:5]), Mark(*v[5:8]), json.loads(v[9]), bool(v[8]))
                for v in found
            )
        return Kept(row[0], Mark(*row[1:]), versions)

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
        """Count the consumer's session number up by one and return it; the first is 1."""
        with self._transaction() as db:
            (number,) = db.execute(_NEXT_SESSION, (consumer,)).fetchone()
        return int(number)

    def session(self, consumer: str) -> int:
        """The newest session number; 0 when there was none."""
        row = self._row(consumer)
        return 0 if row is None else int(row[0])

    def forget(self, consumer: str) -> None:
        """Remove all that is stored of a consumer. Its session numbers begin anew."""
        with self._transaction() as db:
            db.execute("DELETE FROM consumer WHERE name = ?", (consumer,))

    def close(self) -> None:
        """Fold the log into the file and let go of the lock. May be called again."""
        with self._mutex:
            if self._lock_fd < 0:
                return
            try:
                with self._faults():
                    self._db.close()
            finally:
                os.close(self._lock_fd)
                self._lock_fd = -1

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
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        with self._faults():
            # The mode of the journal cannot change within a transaction.
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            check = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                raise self._fault(check.splitlines()[-1], _DAMAGED)
            return UUID(db.execute("SELECT id FROM installation").fetchone()[0])

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._mutex, self._faults():
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # After some faults (a full disk) SQLite has rolled back by itself.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._fault(str(error), _remedy(error)) from error
        except OSError as error:
            raise self._fault(error.strerror or str(error), _remedy(error)) from error
        except (BinlogError, ValueError) as error:
            if isinstance(error, BinlogError) and error.kind is Kind.STATE_STORE:
                raise
            raise self._fault(f"unreadable content: {error}", _DAMAGED) from error

    def _fault(self, what: str, remedy: str | None) -> BinlogError:
        return BinlogError(Kind.STATE_STORE, what, where=str(self._path), remedy=remedy)


_ELSEWHERE = "name another state.path"
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


def _lock(path: Path) -> int:
    """Take the lock beside `path`; returns its file descriptor, which holds it."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise BinlogError(
            Kind.STATE_STORE,
            f"cannot open {lock_path.name}: {error.strerror}",
            where=str(path),
            remedy="give the daemon's user write access to the folder, or name another state.path",
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise BinlogError(
            Kind.STATE_STORE,
            f"in use by another process{f' (pid {owner})' if owner else ''}",
            where=str(path),
            remedy="stop the other daemon, or give this one its own state.path",
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
    return fd
