"""A cache folder. Its entries are always complete, and only one process at a time makes an entry.

An entry is a folder. To make an entry, a process takes a file lock and fills a staging folder beside the entry's path.
When the staging folder is complete, the process renames it to the entry's path. If the process is killed before the
rename, only the staging folder is left. The next process that makes the entry removes that staging folder. Readers take
no lock: an entry that exists is complete and never changes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "BINLOG_DISPATCHER_CACHE"


def cache_dir() -> Path:
    """Returns $BINLOG_DISPATCHER_CACHE, or binlog-dispatcher in $XDG_CACHE_HOME or ~/.cache. Does not create the
    folder."""
    if path := os.environ.get(CACHE_VARIABLE):
        return Path(path).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "binlog-dispatcher"


def cached_folder(final: Path, make: Callable[[Path], None]) -> Path:
    """Returns `final`. If this folder is missing, `make(staging)` fills a staging folder, which is then renamed to
    `final`."""
    if final.is_dir():
        return final
    with _locked(final.with_name(final.name + ".lock")):
        if final.is_dir():
            return final
        staging = final.with_name(f".{final.name}.new")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        make(staging)
        staging.rename(final)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
