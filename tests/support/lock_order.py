"""Finds the locks in the mirror's code and their order in docs/architecture.md, and checks this order while tests
run."""

from __future__ import annotations

import importlib
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

_ROOT = Path(__file__).parents[2]
PACKAGE = _ROOT / "spark_sink" / "mirror"
_LISTED = re.compile(r"^\d+\. `spark_sink/mirror/([\w/]+\.py)`, `(\w+)`: ", re.MULTILINE)
_MADE = re.compile(r"(\w+) = threading\.\w*(?:Lock|Condition|Semaphore)\(")

Lock = tuple[str, str]  # (module below the package, name)


def listed() -> list[Lock]:
    """Returns the locks in the order in which the document lists them."""
    return _LISTED.findall((_ROOT / "docs/architecture.md").read_text(encoding="utf-8"))


def made() -> set[Lock]:
    """Returns the locks that the code of the modules makes."""
    return {
        (str(module.relative_to(PACKAGE)), name)
        for module in PACKAGE.rglob("*.py")
        for name in _MADE.findall(module.read_text(encoding="utf-8"))
    }


class LockOrder:
    """`broken`: a message for each lock that was acquired in the wrong order; `taken`: all locks that were acquired."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.taken: set[Lock] = set()
        self._order = listed()
        self._held = threading.local()

    def held(self) -> list[Lock]:
        """Returns the locks that this thread holds."""
        if not hasattr(self._held, "locks"):
            self._held.locks = []
        locks: list[Lock] = self._held.locks
        return locks

    def takes(self, lock: Lock) -> None:
        self.taken.add(lock)
        for other in self.held():
            if self._order.index(other) >= self._order.index(lock):
                self.broken.append(f"{lock} is taken while {other} is held")


class _Watched:
    """A lock that reports to `LockOrder` when it is acquired and released. `lock`: the module and name of the lock in
    the code."""

    def __init__(self, order: LockOrder, lock: Lock) -> None:
        self._order, self._name, self._lock = order, lock, _real_lock()

    def __enter__(self) -> bool:
        self._order.takes(self._name)
        self._lock.acquire()
        self._order.held().append(self._name)
        return True

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._order.held().remove(self._name)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


_real_lock = threading.Lock


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[LockOrder]:
    """During the block, the locks of the mirror's modules record the order in which they are acquired. This includes
    existing locks and new locks."""
    order = LockOrder()

    def make() -> object:
        frame = sys._getframe(1)
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(PACKAGE):
            return _real_lock()
        line = linecache.getline(str(file), frame.f_lineno)
        name = _MADE.search(line)
        assert name is not None, line
        return _Watched(order, (str(file.relative_to(PACKAGE)), name[1]))

    with monkeypatch.context() as patched:
        patched.setattr(threading, "Lock", make)
        for path, name in listed():
            module = importlib.import_module(f"spark_sink.mirror.{path[:-3].replace('/', '.')}")
            if hasattr(module, name):
                patched.setattr(module, name, _Watched(order, (path, name)))
        yield order
