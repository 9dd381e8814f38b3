"""Recognises a full disk, from an error and from the file system.

On a disk that is nearly full, SQLite may be unable to create the files beside the store. It then fails with "disk I/O
error" or "unable to open database file", not with "database or disk is full".
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind

# SQLite makes its shared memory (`-shm`) in pieces of this size. Source: its WAL-mode File Format, section 2.
SHM_BYTES = 32 << 10
FULL_REMEDY = "free space on the file system; readers wait until then, and nothing is lost"
_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_UNCLEAR = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def what_failed(error: sqlite3.Error | OSError, folder: Path) -> tuple[str, bool]:
    """Returns the message for an error of a file in `folder`, and True if the disk is full."""
    text = str(getattr(error, "strerror", None) or error)
    if isinstance(error, OSError):
        return text, error.errno in _ERRNOS
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return text, True
    if code in _UNCLEAR and (missing := _missing(folder)):
        return f"database or disk is full ({text}, {missing})", True
    return text, False


def full_disk(path: Path) -> BinlogError | None:
    """Returns the error that a daemon with its store at `path` would get if it started now; None if the disk has
    room."""
    missing = _missing(path.parent)
    if not missing:
        return None
    what = f"database or disk is full ({missing})"
    return BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=FULL_REMEDY)


def _missing(folder: Path) -> str:
    """Returns a text that says what the file system lacks; "" if it has room."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    free = found.f_bavail * found.f_frsize
    if free < SHM_BYTES:
        return f"{free} bytes are free"
    return "no inode is free" if found.f_files and not found.f_favail else ""
