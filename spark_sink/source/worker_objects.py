"""Keeps the garbage collector of a Python worker away from what the worker has loaded. Runs on the executors.

Spark's worker calls `gc.collect()` after each task. With numba, pyarrow and the decoder loaded, that walks some 100,000
objects which live as long as the process: 40 ms of processor time, as much as it takes to decode 100,000 rows.
"""

from __future__ import annotations

import gc
import sys


class WorkerObjects:
    """The objects of this process."""

    def __init__(self) -> None:
        self._modules = 0  # how many were loaded when objects were frozen last

    def freeze(self) -> None:
        """Exempt all objects from collection if modules were loaded since the last call.

        Garbage is collected first. So two kinds of objects are never collected: those that modules hold, and those that
        the running task holds after it has loaded modules.
        """
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        gc.collect()
        gc.freeze()


PROCESS_OBJECTS = WorkerObjects()
