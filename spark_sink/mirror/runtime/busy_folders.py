"""Keeps maintenance and moves of folders apart.

Maintenance works on the path of a table: it compacts files, writes checkpoints and deletes old files. If a RENAME moved
the folder meanwhile, the commit of the maintenance would be in the log of the table that has the path then.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class BusyFolders:
    """The folders below the target, of all consumers of a job, that a thread uses alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[str] = set()

    @contextmanager
    def using(self, folders: Collection[str]) -> Iterator[None]:
        """Waits until no other thread uses one of the folders, and uses them until the end of the block."""
        wanted = set(folders)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & self._busy)
            self._busy |= wanted
        try:
            yield
        finally:
            with self._changed:
                self._busy -= wanted
                self._changed.notify_all()
