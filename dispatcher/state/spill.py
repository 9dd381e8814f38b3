"""Disk space for transactions that are larger than their consumer's queue, as memory-mapped files.

Each segment is a mapped file of its own. Its space is freed when the last view of the segment is deleted, as for a
segment in memory. A new segment is about as large as the part of the transaction that the daemon has already read, so a
transaction has few segments.

* Space is reserved before anything is written (`posix_fallocate`): on a full disk the allocation fails, and the process
  does not get SIGBUS while it writes. On a file system that ignores reservations, such as ZFS, a write can still cause
  SIGBUS.
* The files are unlinked when they are opened, or never have a name (O_TMPFILE), so that no file stays when the process
  ends. A file that was opened but not yet unlinked is removed at the next start.
* All consumers share `bytes_max`.

Nothing is synced to disk: after a crash the daemon reads the data from the server again.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FOLDER_MODE, tighten
from dispatcher.stream.segments import U8

_PREFIX = "spill-"
_LIMIT_REMEDY = (
    "raise state.max_bytes_in_spill above the whole transaction and restart the daemon, or raise the consumer's"
    " max_bytes_in_binlog_queue above it and reload; the daemon tries again"
)


class Spill:
    """Allocates segments on disk. `bytes`: the number of bytes allocated now. Only one process may use a folder: the
    caller holds the store's lock.

    Raises BinlogError (SPILL) if the folder cannot be created or written to.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self.bytes = 0
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            # Another user's folder keeps its mode; the files in it are private, too.
            tighten([folder])
            for left in folder.glob(f"{_PREFIX}*"):
                left.unlink()
            with tempfile.TemporaryFile(prefix=_PREFIX, dir=folder):
                pass
        except OSError as error:
            raise self._refused(error) from error

    def allocate(self, size: int) -> U8:
        """Returns a segment of `size` uninitialized bytes. Raises BinlogError (SPILL) if there is not enough space."""
        if self.bytes + size > self._bytes_max:
            raise BinlogError(
                ErrorKind.SPILL,
                f"{size} more bytes do not fit into {self._bytes_max}, of which {self.bytes} are in use",
                where=str(self._folder),
                remedy=_LIMIT_REMEDY,
            )
        mapping = self._mapping(size)
        if isinstance(mapping, OSError):
            # Not raised `from mapping`: callers keep the error, and a traceback would keep frames and buffers alive.
            raise self._refused(mapping, f" for {size} more bytes")
        self.bytes += size
        weakref.finalize(mapping, self._release, size).atexit = False
        segment: U8 = np.frombuffer(memoryview(mapping), dtype=np.uint8)
        return segment

    def _mapping(self, size: int) -> mmap.mmap | OSError:
        try:
            with tempfile.TemporaryFile(prefix=_PREFIX, dir=self._folder, buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                return mmap.mmap(file.fileno(), size)
        except OSError as error:
            return error.with_traceback(None)

    def _release(self, size: int) -> None:
        self.bytes -= size

    def _refused(self, error: OSError, what_for: str = "") -> BinlogError:
        what = f"{error.strerror or error}{what_for}"
        return BinlogError(ErrorKind.SPILL, what, where=str(self._folder))
