"""Prepares the daemon's process before its event loop runs: sets its limits and permissions. Also frees the memory of
the compiler."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import structlog


def prepare_process() -> None:
    os.umask(0o077)  # for every file that is created after this, also by libraries
    # A watchdog sends SIGABRT to a daemon whose loop is stuck: then Python writes the stack of each thread to stderr.
    faulthandler.enable()
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit, because each connection and each segment on disk needs a
    file descriptor.

    The default soft limit is low because select(), which some programs call, accepts only small descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- the compiler's memory --------------------------------------------------------------------------------------

_COMPILER = "libllvmlite"  # the beginning of the name of LLVM's library
_MADV_DONTNEED = 4


def release_compiler() -> None:
    """Release the resident memory of LLVM's code and constants, about 70 MB, which the process needs only while it
    loads or compiles kernels.

    This memory consists of unchanged pages of the library's file, so the system reads the pages again if a kernel is
    compiled later. Without this call the pages stay resident until the machine runs short of memory.
    """
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():  # not Linux
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for start, size in unchanged_mappings(smaps.read_text(encoding="utf-8"), _COMPILER):
        if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_DONTNEED):
            error = os.strerror(ctypes.get_errno())
            structlog.get_logger("dispatcher").debug("memory was not released", error=error)


def unchanged_mappings(smaps: str, name: str) -> Iterator[tuple[int, int]]:
    """Yields (address, bytes) of those mappings of a library that are not writable and have no anonymous pages.

    `smaps`: text of /proc/PID/smaps. Pages that the loader has relocated are anonymous, and must not be dropped.
    """
    start = size = 0
    for line in smaps.splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(
            ":"
        ):  # the head of a mapping: addresses, permissions, offset, device, inode, path
            permissions, path = rest.split(" ", 1)[0], rest.rpartition("/")[2]
            ends = [int(end, 16) for end in first.split("-")]
            wanted = path.startswith(name) and "w" not in permissions
            start, size = (ends[0], ends[1] - ends[0]) if wanted else (0, 0)
        elif first == "Anonymous:" and size and rest.split()[0] == "0":
            yield start, size
