"""Reads and copies the file of a state store while a daemon uses the file.

The store is in WAL mode. A process that reads the file sees the state of one moment, even if the daemon writes at the
same time, and does not block the daemon. So the commands `state dump` and `state backup` need not stop the daemon.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.state.declaration_rows import load_declarations
from dispatcher.state.files import sync_to_disk
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.private import FILE_MODE
from dispatcher.state.schema import APPLICATION_ID, MOVED_ID, SCHEMA_VERSION, not_a_store
from dispatcher.state.space import FULL_REMEDY, what_failed
from dispatcher.state.statements import Statements

_NO_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_CONSUMERS = "name, session, acknowledged, covered, paused"
_CONNECTIONS = """
SELECT client, server, file, "offset", (SELECT count(*) FROM table_version v WHERE v.client = stream.client)
FROM stream ORDER BY client
"""
_PREPARED = """
SELECT client, count(DISTINCT xid), coalesce(sum(length("rows")), 0) FROM prepared GROUP BY client ORDER BY client
"""


def dump_state(path: Path) -> dict[str, Any]:
    """Return the content of the store, without the rows of prepared transactions:

    {"schema", "installation", "epoch", "consumers": [{"name", "session", "paused", "acknowledged", "covered"}],
    "declarations": [{"consumer", "declared_by", "source", "databases", "tables", "exclude_tables", "start",
    "declared_at", "read_at"}],
    "connections": [{"connection", "server", "file", "offset", "table_versions"}], "prepared": [{"connection",
    "transactions", "bytes"}]}. Positions have the form of the API, or are None before the first position.

    Raises BinlogError (STATE_STORE).
    """
    with _reading(path) as db:
        db.execute("BEGIN")  # all queries see the same moment
        return contents_of(db, _PREPARED)


def contents_of(db: Statements, prepared: str) -> dict[str, Any]:
    """Return the content of a store, in a file or in a database, as `dump_state` does. `prepared`: a query for client,
    number and bytes of prepared transactions."""
    installation, epoch = db.execute("SELECT id, epoch FROM installation").fetchone()
    return {
        "schema": SCHEMA_VERSION,
        "installation": installation,
        "epoch": epoch,
        "consumers": [
            {
                "name": name,
                "session": session,
                "paused": bool(paused),
                "acknowledged": _position(acknowledged),
                "covered": _position(covered),
            }
            for name, session, acknowledged, covered, paused in rows_in_pages(
                db, "consumer", _CONSUMERS, "name"
            )
        ],
        "declarations": [
            {
                "consumer": each.name,
                "declared_by": each.owner,
                **each.content,
                "declared_at": each.declared_s,
                "read_at": each.read_s,
            }
            for each in load_declarations(db)
        ],
        "connections": [
            dict(zip(("connection", "server", "file", "offset", "table_versions"), r, strict=True))
            for r in db.execute(_CONNECTIONS)
        ],
        "prepared": [
            dict(zip(("connection", "transactions", "bytes"), row, strict=True))
            for row in db.execute(prepared)
        ],
    }


def _position(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def back_up(path: Path, target: Path) -> int:
    """Copy the store to `target`, which must not exist. Returns the size in bytes.

    The copy is one file, without companion files, and only its owner can read it. The copy is on disk when this
    function returns. Raises BinlogError.
    """
    part = target.with_name(f"{target.name}.part")
    if target.exists():
        raise UserError(
            ErrorKind.SETTINGS, f"{target} exists already", remedy="name a file that does not exist"
        )
    with _reading(path) as db, _errors(target):
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
        try:
            with closing(sqlite3.connect(part)) as copy:
                db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy has no -wal file
                check = str(copy.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                what = f"the copy is damaged: {check.splitlines()[-1]}"
                raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path))
            sync_to_disk(part)
            part.rename(target)
            sync_to_disk(target.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    return target.stat().st_size


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store for reading. Raises BinlogError for a file that is not a state store of this version."""
    if not path.is_file():
        raise UserError(
            ErrorKind.SETTINGS, f"{path}: no such file", remedy="check state.path in the settings"
        )
    with (
        _errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db,
    ):
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application == MOVED_ID:
            raise not_a_store(db, path)
        if application != APPLICATION_ID:
            what, remedy = "the file is not a state store", "check state.path in the settings"
            raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
        if version != SCHEMA_VERSION:
            what = f"the file has schema {version}, and this version of binlog-dispatcher {SCHEMA_VERSION}"
            remedy = "use the version of the daemon that runs with the file"
            raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
        yield db


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        what, full = what_failed(error, path.parent)
        remedy = "run it as the daemon's user, on the machine of the daemon"
        if (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in _NO_DATABASE:
            remedy = "set state.path to another file, or put the newest backup of the state there"
        remedy = FULL_REMEDY if full else remedy
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy) from error
    except (ValueError, TypeError) as error:
        what = f"invalid content: {error}"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path)) from error
