"""The cache folder: what is in it is complete, and only one process at a time makes a thing.

Every entry is a folder made in a staging folder beside its final name, under a file lock, and renamed into place: a
process killed halfway leaves only a staging folder, which the next maker of the same entry removes. Readers take no
lock: a final name that exists is complete, and is never changed afterwards.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "BINLOG_DISPATCHER_CACHE"


class ServerUnavailable(Exception):
    """A server, or a tool of it, cannot be had on this machine. The text says what to do."""


def cache_dir() -> Path:
    """$BINLOG_DISPATCHER_CACHE, else binlog-dispatcher in $XDG_CACHE_HOME or ~/.cache. Created on demand."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "binlog-dispatcher"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file at `path`, waiting for as long as another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached_folder(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; where it is missing, `make(staging)` fills it first."""
    final = cache_dir() / name
    if final.is_dir():
        return final
    with locked(final.with_name(final.name + ".lock")):
        if final.is_dir():
            return final
        staging = final.with_name(f".{final.name}.new")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        make(staging)
        staging.rename(final)
    return final


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Standard output of a command; ServerUnavailable with its last lines where it fails."""
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=env,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise ServerUnavailable(f"cannot {what}: {arguments[0]} is not installed") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-12:]
        detail = "\n  ".join(lines)
        raise ServerUnavailable(
            f"cannot {what}: {arguments[0]} ended with {done.returncode}\n  {detail}"
        )
    return done.stdout
