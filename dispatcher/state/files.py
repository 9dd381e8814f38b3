"""The files of a state store: their names, modes and identities."""

from __future__ import annotations

import os
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FILE_MODE, tighten


def make_private(path: Path) -> tuple[Path, ...]:
    """Create the store's file if it does not exist and tighten the modes. Returns the files whose modes could not be
    changed.

    SQLite creates the file with the umask's mode, and gives its companion files the mode of the file.
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    return tighten(beside(path, end) for end in ("", "-wal", "-shm", ".lock", ".newest"))


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def resolved(path: Path) -> Path:
    """Returns the file to which symbolic links lead. SQLite's companion files and the lock are in the folder of that
    file."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        what, remedy = f"invalid symbolic link: {error}", "set another state.path"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy) from error


def identity(path: Path) -> tuple[int, int] | None:
    """Returns (device, inode) of a file; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def sync_to_disk(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
