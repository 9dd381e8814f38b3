"""Group commit: threads that write items at the same time share one commit.

Pure: the caller passes the function that makes a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(eq=False, slots=True)
class _Pending(Generic[Item]):
    """The items of one call of `add`. `done`: True when the commit with these items has ended; `error`: its
    exception."""

    items: list[Item]
    done: bool = False
    error: BaseException | None = None


class GroupCommit(Generic[Item]):
    """Commits items, one group at a time. A thread that makes a commit includes the items of all threads that wait."""

    def __init__(self, commit: Callable[[list[Item]], None]) -> None:
        """`commit` either writes all items, or writes none and raises an exception. One thread at a time calls it."""
        self._commit = commit
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Pending[Item]] = []

    @property
    def waiting(self) -> int:
        """How many calls of `add` wait for their commit to begin."""
        with self._lock:
            return len(self._waiting)

    def add(self, items: Iterable[Item]) -> None:
        """Commit the items, all in one commit and in their order. Returns after this commit; raises its exception."""
        own = _Pending(list(items))
        with self._lock:
            self._waiting.append(own)
        with self._turn:
            if not own.done:
                self._commit_group()
        if own.error is not None:
            raise own.error

    def _commit_group(self) -> None:
        with self._lock:
            group, self._waiting = self._waiting, []
        error: BaseException | None = None
        try:
            self._commit([item for pending in group for item in pending.items])
        except BaseException as raised:  # noqa: BLE001 - each thread raises it
            error = raised
        for pending in group:
            pending.done, pending.error = True, error
