"""Moves the folder of a Delta table in an object store. There, a rename copies each file, and then deletes the old
file.

If a store's connector renamed the folder, it would move the files in any order. If the process was killed meanwhile,
each of the two folders would contain some of the files, and neither folder would show to which table it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

AT_A_TIME = 16
_LOG = "_delta_log/"


class StoredFiles(Protocol):
    """The methods of `FileSystem` that this module calls."""

    def files_below(self, path: str) -> list[str]: ...
    def exists(self, path: str) -> bool: ...
    def rename(self, old: str, new: str) -> None: ...
    def delete(self, path: str) -> None: ...


def moving_order(names: Sequence[str]) -> list[list[str]]:
    """Returns groups of a table's files: all data files in one group, then each file of its log, the newest first.

    So the log files that remain in the old folder are always a complete log of an older version of the table. This log
    shows to which table the folder belongs.
    """
    logged = sorted((name for name in names if name.startswith(_LOG)), reverse=True)
    return [sorted(set(names) - set(logged)), *([name] for name in logged)]


def move_files(files: StoredFiles, old: str, new: str) -> None:
    """Move the files of the folder `old`, if it exists, at most `AT_A_TIME` files at once. If the call fails, it can be
    repeated.

    Raises `BinlogError` if the file system refuses to move a file.
    """
    names = files.files_below(old)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for group in moving_order(names):
            for _ in pool.map(partial(_move_file, files, old, new), group):
                pass  # an error is raised
    files.delete(old)


def _move_file(files: StoredFiles, old: str, new: str, name: str) -> None:
    if not files.exists(f"{old}/{name}"):
        return  # another process moves the same folder, and has moved this file
    files.delete(f"{new}/{name}")  # an earlier attempt may have copied this file
    files.rename(f"{old}/{name}", f"{new}/{name}")
