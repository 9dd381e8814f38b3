"""The lock file next to a state store: it admits one process, and records that a store exists.

The lock is a `flock`, which the kernel releases when the process ends. The file contains the pid of the last owner and,
once a store was opened, its installation id. The id distinguishes a store truncated to 0 bytes from a new one.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FILE_MODE, FOLDER_MODE
from dispatcher.state.space import FULL_REMEDY, what_failed


class StoreLock:
    """A lock, held from the constructor to `close`. Raises BinlogError (STATE_STORE) if another process holds it.

    `store_id`: installation id of the store that was opened under this lock before; "" = none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd, self.store_id = _acquire(path)

    def record(self, store_id: str) -> None:
        """Record the installation id of the store that is open."""
        self.store_id = store_id
        _write_owner(self._fd, self._path, store_id)

    def renew(self) -> None:
        """Acquire the lock again if its file was deleted: another process could create and lock a new one."""
        try:
            if os.path.samestat(os.fstat(self._fd), _lock_path(self._path).stat()):
                return
        except FileNotFoundError:
            pass  # deleted
        fd, _ = _acquire(self._path)
        os.close(self._fd)
        self._fd = fd
        _write_owner(fd, self._path, self.store_id)

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


def _acquire(path: Path) -> tuple[int, str]:
    """Lock the file; returns its descriptor and the installation id that it contains."""
    lock_path = _lock_path(path)
    try:
        path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise _refused(f"cannot open {lock_path.name}", path, error) from error
    owner, _, store_id = os.pread(fd, 100, 0).decode("ascii", "replace").partition("\n")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        what = f"in use by another process{f' (pid {owner})' if owner else ''}"
        remedy = "stop the other daemon, or set another state.path for this one"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy) from error
    try:
        _write_owner(fd, path, store_id.strip())
    except BinlogError:
        os.close(fd)
        raise
    return fd, store_id.strip()


def _write_owner(fd: int, path: Path, store_id: str) -> None:
    """Write over what is there: a file that is cut first would find no space again on a full disk."""
    content = f"{os.getpid()}\n{store_id}\n".encode("ascii", "replace")
    try:
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))
    except OSError as error:
        raise _refused(f"cannot write {_lock_path(path).name}", path, error) from error


def _refused(what: str, path: Path, error: OSError) -> BinlogError:
    cause, full = what_failed(error, path.parent)
    access = "give the daemon's user write access to the folder, or set another state.path"
    remedy = FULL_REMEDY if full else access
    return BinlogError(ErrorKind.STATE_STORE, f"{what}: {cause}", where=str(path), remedy=remedy)
