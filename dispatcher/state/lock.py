"""The locks of a state store: they keep other processes out. The kernel releases them when the process ends.

There are two locks, because a file can have several names, and another file can get the same name:

* `StoreLock`, a `flock` on `<file>.lock`, keeps other processes out even if the store's file was deleted. The lock file
  contains the pid of the last owner and, once a store was opened, its installation id. With this id the daemon
  recognises an empty file as a store that was truncated, not as a new store. The store resolves symbolic links before
  it makes the name of the lock.
* `FileLock` locks the store's file itself, under any of its names. For example, a container can mount this file in
  another folder.

`FileLock` is an open file description lock of one byte far after the bytes that SQLite locks. SQLite's own locks are
traditional POSIX locks: they belong to the process, and closing any descriptor of the file drops all of them. So the
store closes its `FileLock` only after SQLite has closed the file. On local disks a `flock` would suffice. But on NFS a
`flock` is a POSIX lock of the whole file, which would also keep out SQLite.

A store with several hard links is refused: its write-ahead log belongs to one name only. If SQLite opened the file by
another name after a crash, it would not find this log, and the file would have an older state. At the next open by the
first name, SQLite would copy pages of the old log over newer pages of the file.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FILE_MODE, FOLDER_MODE
from dispatcher.state.space import FULL_REMEDY, what_failed

# SQLite locks bytes at offsets of 1 GiB and above. Source: its File Locking And Concurrency, section 3, and `os.h`.
_LOCKED_BYTE = 1 << 62
# struct flock of 64-bit Linux; `l_pid` has to be 0.
_ONE_BYTE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
_STOP_OTHER = "stop the other daemon, or set another state.path for this one"


@dataclass(frozen=True, slots=True)
class FileOwner:
    """The process that has a store open. `pid`: "" if the lock file does not contain it."""

    pid: str


def owner_of(path: Path) -> FileOwner | None:
    """Return the process that has the store at `path` open; None if no process has it open, or if the lock file cannot
    be read. Takes no lock, so that a daemon that starts meanwhile gets the lock."""
    try:
        with path.open("rb") as file:
            asked = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _ONE_BYTE)
        if struct.unpack_from("h", asked)[0] == fcntl.F_UNLCK:
            return None
        return FileOwner(_lock_path(path).read_text("ascii", "replace").partition("\n")[0])
    except OSError:
        return None


class StoreLock:
    """A lock, held from the constructor to `close`. The constructor raises BinlogError (STATE_STORE) if another process
    holds the lock.

    `store_id`: the installation id of the store that was last opened under this lock; "" if no store was opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd, self.store_id = _acquire(path)

    def record(self, store_id: str) -> None:
        """Record the installation id of the store that is open."""
        self.store_id = store_id
        _write_owner(self._fd, self._path, store_id)

    def renew(self) -> None:
        """Acquire the lock again if its file was deleted: another process could create and lock a new lock file."""
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


class FileLock:
    """A lock of the file itself, held from the constructor to `close`. Raises BinlogError (STATE_STORE), OSError.

    Close it after every SQLite connection of this process to the file.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _ONE_BYTE)
        except BlockingIOError as error:
            self.close()
            what = "in use by another process, which has opened the file by another name"
            raise BinlogError(
                ErrorKind.STATE_STORE, what, where=str(path), remedy=_STOP_OTHER
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def refuse_hard_links(path: Path) -> None:
    """Raises BinlogError (STATE_STORE) if the file has several names."""
    try:
        status = path.stat()
    except OSError:
        return  # the next code that opens the file reports this
    names = status.st_nlink
    if stat.S_ISREG(status.st_mode) and names > 1:
        what = f"the file has {names} names (hard links), and its -wal lies beside one of them"
        file, copy = shlex.quote(str(path)), shlex.quote(f"{path}.copy")
        remedy = (
            f"stop the daemon, then give this name a file of its own: cp -p {file} {copy} && mv {copy} {file}"
            if _lock_path(path).exists()
            # No daemon has used this name, so the -wal file belongs to another name.
            else f"set state.path to the name that the daemon has used, and remove this one: rm {file}"
        )
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _acquire(path: Path) -> tuple[int, str]:
    """Lock the lock file of the store. Returns its descriptor and the installation id that it contains."""
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
        raise BinlogError(
            ErrorKind.STATE_STORE, what, where=str(path), remedy=_STOP_OTHER
        ) from error
    try:
        _write_owner(fd, path, store_id.strip())
    except BinlogError:
        os.close(fd)
        raise
    return fd, store_id.strip()


def _write_owner(fd: int, path: Path, store_id: str) -> None:
    """Overwrite the content, and only then truncate the file. On a full disk, a file that was truncated first could not
    be written again."""
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
