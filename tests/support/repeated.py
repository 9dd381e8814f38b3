"""Calls a function again and again in a thread, while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_END_S = 120.0


class Repeated:
    """The calls of one function. An error ends them."""

    def __init__(self, action: Callable[[], object], name: str, pause_s: float) -> None:
        self._action = action
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._action()
                self._stopping.wait(self._pause_s)
        except BaseException as error:  # noqa: BLE001  it is raised in the test's own thread
            self._error = error

    def check(self) -> None:
        """Raises AssertionError if an error has ended the calls."""
        if self._error is not None:
            raise AssertionError(f"{self._thread.name} has failed") from self._error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait until the last call has returned."""
        self._stopping.set()
        self._thread.join(_END_S)
        assert not self._thread.is_alive(), self._thread.name


@contextmanager
def repeated(action: Callable[[], object], name: str, pause_s: float = 0) -> Iterator[Repeated]:
    """Call `action` in a thread until the block ends, with this pause between two calls. Raises AssertionError at the
    end of the block if a call has failed."""
    calls = Repeated(action, name, pause_s)
    calls.start()
    try:
        yield calls
    finally:
        calls.stop()
    calls.check()
