"""Keeps moves of folders apart from the work of other threads in these folders.

Maintenance works on the path of a table: it compacts files, writes checkpoints and deletes old files. If a RENAME moved
the folder meanwhile, maintenance would make its commit in the log of the table that has the path by then. A thread that
publishes a table in an Iceberg catalog reads the table by its path, too. If the folder moved meanwhile, Delta would
keep the former table in its cache for this path.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class BusyFolders:
    """The folders below the target that the threads of a job use, for all consumers of the job."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alone: set[str] = set()
        self._shared: Counter[str] = Counter()

    @contextmanager
    def using(self, folders: Collection[str]) -> Iterator[None]:
        """Waits until no other thread uses one of the folders. Until the end of the `with` block, no other thread can
        use these folders."""
        wanted = set(folders)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & (self._alone | self._shared.keys()))
            self._alone |= wanted
        try:
            yield
        finally:
            with self._changed:
                self._alone -= wanted
                self._changed.notify_all()

    @contextmanager
    def sharing(self, folder: str) -> Iterator[None]:
        """Waits until no other thread uses the folder alone. Until the end of the `with` block, other threads can share
        the folder, but cannot use it alone."""
        with self._changed:
            self._changed.wait_for(lambda: folder not in self._alone)
            self._shared[folder] += 1
        try:
            yield
        finally:
            with self._changed:
                self._shared[folder] -= 1
                self._shared += Counter()  # removes the folders that no thread shares
                self._changed.notify_all()
