"""A cache folder whose entries are complete, and made by one process at a time.

Every entry is a folder made in a staging folder beside its final name, under a file lock, and renamed into place: a
process killed halfway leaves only a staging folder, which the next maker of the same entry removes. Readers take no
lock: a final name that exists is complete, and is never changed afterwards.
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
    """$BINLOG_DISPATCHER_CACHE, else binlog-dispatcher in $XDG_CACHE_HOME or ~/.cache. Not created."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "binlog-dispatcher"


def cached_folder(final: Path, make: Callable[[Path], None]) -> Path:
    """`final` itself; where it is missing, `make(staging)` fills a folder that then becomes it."""
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
