"""Moves the folder of a Delta table in an object store, where a rename copies each file and deletes it.

Connectors rename a folder in an order of their own, and delete while they copy. A process that is killed meanwhile
leaves two folders of which neither tells what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

AT_A_TIME = 16
_LOG = "_delta_log/"


class StoredFiles(Protocol):
    """What is needed of a file system, see `FileSystem`."""

    def files_below(self, path: str) -> list[str]: ...
    def rename(self, old: str, new: str) -> None: ...
    def delete(self, path: str) -> None: ...


def moving_order(names: Sequence[str]) -> list[list[str]]:
    """Returns groups of a table's files: data in one, then each file of its log, the newest first.

    So what is left of the log is always that of an older version, which tells whose table it is.
    """
    logged = sorted((name for name in names if name.startswith(_LOG)), reverse=True)
    return [sorted(set(names) - set(logged)), *([name] for name in logged)]


def move_files(files: StoredFiles, old: str, new: str) -> None:
    """Move the files of a folder one by one, if there is one. It can be repeated until all are moved.

    Raises `BinlogError` if the file system refuses it.
    """
    names = files.files_below(old)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for group in moving_order(names):
            for _ in pool.map(partial(_move_file, files, old, new), group):
                pass  # an error is raised
    files.delete(old)


def _move_file(files: StoredFiles, old: str, new: str, name: str) -> None:
    files.delete(f"{new}/{name}")  # what an attempt before has copied
    files.rename(f"{old}/{name}", f"{new}/{name}")
