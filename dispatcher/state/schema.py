"""The schema of the state store's SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from uuid import uuid4

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.statements import Statements

SCHEMA_VERSION = 1
# "BiDi" in ASCII: distinguishes a state store from other SQLite files, also for the command `file`.
APPLICATION_ID = 0x42694469
# "BiDm": marks a state store whose contents were moved to another store. No version of the daemon opens such a file.
MOVED_ID = 0x4269446D

_SCHEMA = """
CREATE TABLE installation (id TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 0);
CREATE TABLE consumer (
  name         TEXT PRIMARY KEY,
  session      INTEGER NOT NULL DEFAULT 0,
  acknowledged TEXT,               -- positions as JSON, NULL until the first save
  covered      TEXT,
  file_created INTEGER NOT NULL DEFAULT 0,
  paused       INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE stream (
  client  TEXT PRIMARY KEY,
  server  TEXT NOT NULL,
  file    TEXT NOT NULL,           -- how far the log was read; open table versions end here
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
  open          INTEGER NOT NULL,  -- 1: ends where the client's stream does, if that is later
  definition    TEXT NOT NULL      -- JSON
);
CREATE INDEX table_version_of ON table_version (client);
CREATE TABLE prepared (
  client      TEXT NOT NULL,
  number      INTEGER NOT NULL,
  xid         TEXT NOT NULL,
  server      TEXT NOT NULL,       -- of the XA PREPARE, like the next five
  file        TEXT NOT NULL,
  offset      INTEGER NOT NULL,
  created     INTEGER NOT NULL,
  source      TEXT NOT NULL,       -- source and gno: its GTID
  gno         INTEGER NOT NULL,
  ended       TEXT,                -- of the XA COMMIT or XA ROLLBACK, as JSON
  flaws       TEXT NOT NULL,       -- XaFaults as JSON
  compression INTEGER,             -- NULL: without rows
  size        INTEGER,
  rows        BLOB,
  PRIMARY KEY (client, number)
);
CREATE TABLE declaration (
  name        TEXT PRIMARY KEY,
  owner       TEXT NOT NULL,       -- the name of the token
  content     TEXT NOT NULL,       -- JSON
  declared_at INTEGER NOT NULL,    -- seconds since 1970
  read_at     INTEGER NOT NULL
) WITHOUT ROWID;
"""
_REMEDY = "set state.path to another file"


def create(db: sqlite3.Connection, path: Path) -> bool:
    """Create the schema within the caller's transaction. Returns True if the file had no schema.

    Raises BinlogError (STATE_STORE) for a database of another program or of another version, and for a state that was
    moved to another store.
    """
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        # `executescript` would commit the caller's transaction.
        for statement in _SCHEMA.strip().split(";\n"):
            db.execute(statement)
        db.execute("INSERT INTO installation (id) VALUES (?)", (str(uuid4()),))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return True
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise not_a_store(db, path)
    if (version := _pragma(db, "user_version")) != SCHEMA_VERSION:
        what = f"the file has schema {version}; this version of binlog-dispatcher supports {SCHEMA_VERSION}"
        remedy = f"run the binlog-dispatcher that wrote the file, or {_REMEDY}"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
    return False


def not_a_store(db: sqlite3.Connection, path: Path) -> BinlogError:
    """The error for a file whose application id is not that of a state store."""
    what, remedy = "the file is a database of another program", _REMEDY
    if _pragma(db, "application_id") == MOVED_ID:
        (target,) = db.execute("SELECT target FROM moved").fetchone()
        what = f"the state was moved to {target}"
        remedy = f"name that store in the settings (state), or {_REMEDY}"
    return BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)


def mark_moved(db: Statements, target: str) -> None:
    """Mark the store as moved, within the caller's transaction."""
    db.execute("CREATE TABLE moved (target TEXT NOT NULL)")
    db.execute("INSERT INTO moved VALUES (?)", (target,))
    db.execute(f"PRAGMA application_id = {MOVED_ID}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
