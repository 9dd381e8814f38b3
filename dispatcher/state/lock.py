"""The lock beside a state store: one process per store, and a note that a store was here.

The lock is the kernel's (`flock`): it goes with the process, however that dies. Its file holds the pid of the newest
owner and, once a store was opened, the store's installation id. By the id a store that was cut to 0 bytes is told from
one that was never written.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FILE_MODE, FOLDER_MODE


class StoreLock:
    """Held from the constructor to `close`. Raises BinlogError (STATE_STORE) if another process holds it.

    `store`: installation id of the store that was opened under this lock before, "" if there was none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd, self.store = _take(path)

    def opened(self, store: str) -> None:
        """Note the id of the store that is open now."""
        self.store = store
        _note(self._fd, store)

    def renew(self) -> None:
        """Take the lock anew if its file was deleted: another process could take one of its own."""
        try:
            there = _lock_path(self._path).stat()
        except FileNotFoundError:
            there = None
        ours = os.fstat(self._fd)
        if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return
        fd, _ = _take(self._path)
        os.close(self._fd)
        self._fd = fd
        _note(fd, self.store)

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def close(self) -> None:
        """May be called again."""
        if self.held:
            os.close(self._fd)
            self._fd = -1


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _take(path: Path) -> tuple[int, str]:
    """The descriptor that holds the lock, and the id that its file noted."""
    lock_path = _lock_path(path)
    try:
        path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise BinlogError(
            ErrorKind.STATE_STORE,
            f"cannot open {lock_path.name}: {error.strerror}",
            where=str(path),
            remedy="give the daemon's user write access to the folder, or name another state.path",
        ) from error
    owner, _, store = os.pread(fd, 100, 0).decode("ascii", "replace").partition("\n")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise BinlogError(
            ErrorKind.STATE_STORE,
            f"in use by another process{f' (pid {owner})' if owner else ''}",
            where=str(path),
            remedy="stop the other daemon, or give this one its own state.path",
        ) from error
    _note(fd, store.strip())
    return fd, store.strip()


def _note(fd: int, store: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n{store}\n".encode("ascii", "replace"), 0)
