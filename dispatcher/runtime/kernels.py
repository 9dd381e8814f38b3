"""Loads the kernels of a process, and compiles those that numba's cache lacks, in child processes.

The compiler leaves about 100 MB of memory in its process, and holds Python's lock for seconds at a time. So child
processes compile the kernels while this process opens its listener and its connections; then this process loads the
kernels from the cache. If numba cannot store kernels, this process compiles them itself, before its loop runs.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

from numba.core import event as numba_event

from dispatcher.binlog.kernel.jit import compiled_functions, is_cached
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.runtime.process import release_compiler
from dispatcher.stream.warmup import Load, load_kept_kernels

COMPILING = "compiling kernels, once per version and machine"
_CHILDREN_MAX = 2  # each compiles with about 300 MB of memory
_LOOK_EVERY_S = 0.2
_NUMBER_BYTES = 2


class _Reporting(numba_event.Listener):
    """Writes into a pipe the number of each function that is compiled."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._numbers = {function: n for n, function in enumerate(compiled_functions())}

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        number = self._numbers.get(event.data["dispatcher"].py_func)
        if number is not None:
            os.write(self._pipe, number.to_bytes(_NUMBER_BYTES, "big"))


class Kernels:
    """The kernels of this process. The constructor loads the kernels, or begins to compile them in child processes.

    `done` and `total` count the functions that are compiled; some of the `total` may not be needed. Call the
    constructor before threads are started, because it forks.
    """

    def __init__(self, loads: Sequence[Load], packages: Sequence[str], log: Logger | None) -> None:
        """`loads`: functions that each load some kernels, sorted by the time to compile these kernels, longest
        first. `packages`: the packages that contain these kernels and their parts. `log`: the log to which the progress
        is written."""
        self._loads = loads
        self._log = log
        self._children: list[BaseProcess] = []
        self._seen: set[int] = set()
        self._part = b""
        self._loaded = asyncio.Event()
        modules = (function.__module__ for function in compiled_functions())
        self.total = sum(module.startswith(tuple(packages)) for module in modules)
        self._tell(logging.DEBUG, "loading kernels")
        if load_kept_kernels(self._load):
            self._finish()
        elif not is_cached():
            remedy = "set NUMBA_CACHE_DIR to a folder that the daemon's user may write to"
            what = "compiling kernels at each start, because numba has no folder for them"
            self._tell(logging.WARNING, what, remedy=remedy)
            self._load()
            self._finish()
        else:
            self._begin()

    @property
    def done(self) -> int:
        return len(self._seen)

    @property
    def loaded(self) -> bool:
        return self._loaded.is_set()

    @property
    def status(self) -> str:
        """The progress as a text for people; "" once the kernels are loaded."""
        return "" if self.loaded else f"{COMPILING}: {self.done} of {self.total}"

    async def wait(self) -> None:
        """Wait until the kernels are loaded."""
        await self._loaded.wait()

    async def run(self, log_every_s: float = 5.0) -> None:
        """Follow the child processes, log their progress, and load the kernels. Returns at once if they are loaded."""
        began = logged = time.monotonic()
        while self._compiling():
            await asyncio.sleep(_LOOK_EVERY_S)
            if time.monotonic() - logged >= log_every_s:
                logged = time.monotonic()
                self._tell(logging.INFO, COMPILING, done=self.done, of=self.total)
        if not self.loaded:
            await in_thread("load kernels", self._load)
            self._finish()
            seconds = round(time.monotonic() - began)
            self._tell(logging.INFO, "kernels compiled", seconds=seconds)

    # ------------------------------------------------------------------------------------------------------------

    def _compiling(self) -> bool:
        """Read the progress. Returns False once all child processes have ended."""
        if not self._children:
            return False
        alive = any(child.is_alive() for child in self._children)
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, 4096):
                self._part += data
        whole = len(self._part) // _NUMBER_BYTES * _NUMBER_BYTES
        for at in range(0, whole, _NUMBER_BYTES):
            self._seen.add(int.from_bytes(self._part[at : at + _NUMBER_BYTES], "big"))
        self._part = self._part[whole:]
        if not alive:
            for child in self._children:
                child.join()
            self._children = []
            os.close(self._pipe)
        return alive

    def _tell(self, level: int, event: str, **fields: object) -> None:
        if self._log is not None:
            self._log.log(level, event, **fields)

    def _load(self) -> None:
        for load in self._loads:
            load()

    def _finish(self) -> None:
        self._loaded.set()
        release_compiler()

    def _begin(self) -> None:
        """Start the child processes. Each child reads from a pipe which function it calls next, as an index of
        `_loads`, until the pipe is empty."""
        self._tell(logging.INFO, COMPILING, done=0, of=self.total)
        orders, give = os.pipe()
        os.write(give, bytes(range(len(self._loads))))
        os.close(give)
        self._pipe, report = os.pipe()
        os.set_blocking(self._pipe, False)
        context = multiprocessing.get_context("fork")
        number = min(_CHILDREN_MAX, len(os.sched_getaffinity(0)), len(self._loads))
        with _interrupt_delayed():
            for _ in range(number):
                child = context.Process(
                    target=_compile, args=(self._loads, orders, report), daemon=True
                )
                child.start()
                self._children.append(child)
        os.close(orders)
        os.close(report)


@contextmanager
def _interrupt_delayed() -> Iterator[None]:
    """Let a SIGINT take effect at the end of the block, which forks. Python runs functions at a fork that print and
    ignore a KeyboardInterrupt. To block the signal would not be enough, because other threads could receive it."""
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        signal.raise_signal(signal.SIGINT)


def _compile(loads: Sequence[Callable[[], None]], orders: int, report: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    with numba_event.install_listener("numba:compile", _Reporting(report)):
        while order := os.read(orders, 1):
            loads[order[0]]()
