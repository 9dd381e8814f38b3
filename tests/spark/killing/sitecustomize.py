"""Lets a test kill a process of Spark's at a named point. Python imports this by itself in every
process of a job whose `PYTHONPATH` holds this folder; the product knows nothing of it.

A point is armed by a file of its name in the folder `KILL_FOLDER`; it disarms itself first, so that
what is started again gets past it.

    decoding    an executor's worker has decoded the first batch of a payload; the worker dies
    merged      the last commit of a batch's last table is written, Spark's commit log is not; driver and JVM die
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def _pass(point: str) -> bool:
    """Is it time to die? One of several processes at most is told so."""
    try:
        Path(os.environ["KILL_FOLDER"], point).unlink()
    except FileNotFoundError:
        return False
    return True


def _patch_delivered(module: ModuleType) -> None:
    decode: Callable[..., Iterator[Any]] = module.decode_table

    def killing(*arguments: Any, **more: Any) -> Iterator[Any]:
        for batch in decode(*arguments, **more):
            yield batch
            if _pass("decoding"):
                os.kill(os.getpid(), signal.SIGKILL)

    vars(module)["decode_table"] = killing


_PATCHES = {
    "dispatcher.binlog.decode.delivered": _patch_delivered,
}


class _Finder(MetaPathFinder):
    """Patches a module right after it is loaded, so that nothing is imported for its sake."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        patch = _PATCHES.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if patch else None
        if spec is None or spec.loader is None or patch is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            patch(module)

        vars(spec.loader)["exec_module"] = load_and_patch
        return spec


if os.environ.get("KILL_FOLDER"):
    sys.meta_path.insert(0, _Finder())
