"""Disk for transactions that are larger than their consumer's queue: files that look like memory.

Each segment that is lent is a file of its own, mapped. So its space goes back when the last view of it goes, as memory
does, and no transaction waits for another; a file for each transaction would have to be told where one ends, and its
parts end together anyway. Segments grow with their transaction, so there are few of them.

* Space is reserved before anything is written (`posix_fallocate`): a full disk refuses a segment, and never kills the
  process in the middle of one (SIGBUS). A file system that keeps no promise of space, such as ZFS, can still do that.
* A file has no name for longer than it takes to open it, most have none at all (O_TMPFILE), so nothing is left behind
  by a process however it dies. What the moment between could leave is removed at the next start.
* All consumers share `bytes_max`.

Written pages are the system's to write to disk when it likes. What is in here is never needed after a crash: it is read
from the server again.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np

from dispatcher.binlog.stream.segments import U8
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.state.private import FOLDER_MODE, tighten

_PREFIX = "spill-"


class Spill:
    """`bytes`: what is lent now. One process per folder: the caller holds the state store's lock.

    Raises BinlogError (`ErrorKind.SPILL`) when the folder cannot be made or is not writable.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self.bytes = 0
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            tighten(
                [folder]
            )  # each file in it is private by itself, so another user's folder will do
            for left in folder.glob(f"{_PREFIX}*"):
                left.unlink()
            with tempfile.TemporaryFile(prefix=_PREFIX, dir=folder):
                pass
        except OSError as error:
            raise self._refused(error) from error

    def allocate(self, size: int) -> U8:
        """A segment of `size` bytes; its content is undefined. Raises BinlogError where there is no room for it."""
        if self.bytes + size > self._bytes_max:
            raise BinlogError(
                ErrorKind.SPILL,
                f"{size} more bytes do not fit into {self._bytes_max}, of which {self.bytes} are in use",
                where=str(self._folder),
            )
        mapping = self._mapping(size)
        if isinstance(mapping, OSError):
            # Not as its cause: that would keep the callers' frames, and what they hold, with an error that is kept.
            raise self._refused(mapping)
        self.bytes += size
        weakref.finalize(mapping, self._take_back, size).atexit = False
        segment: U8 = np.frombuffer(memoryview(mapping), dtype=np.uint8)
        return segment

    def _mapping(self, size: int) -> mmap.mmap | OSError:
        try:
            with tempfile.TemporaryFile(prefix=_PREFIX, dir=self._folder, buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                return mmap.mmap(file.fileno(), size)
        except OSError as error:
            return error.with_traceback(None)

    def _take_back(self, size: int) -> None:
        self.bytes -= size

    def _refused(self, error: OSError) -> BinlogError:
        return BinlogError(ErrorKind.SPILL, error.strerror or str(error), where=str(self._folder))
