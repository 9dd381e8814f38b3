"""numba's `njit` with a type, and with the two options that every kernel here wants.

`cache`: a compiled kernel is kept beside its source (or in the user's cache folder, or in NUMBA_CACHE_DIR), so that a
daemon or a Spark worker loads it in milliseconds; where none of them can be written, it is compiled in each process.
NUMBA_CACHE_DIR outlives an upgrade, so each release uses a folder of its own there.
`nogil`: a kernel never touches Python objects, so other threads may run meanwhile.

With NUMBA_DISABLE_JIT=1 kernels run as the Python that they are, some hundred times slower, for a fuzzer or a debugger.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
if INTERPRETED:
    np.seterr(over="ignore")  # in a kernel integers wrap around, in a hash on purpose

F = TypeVar("F", bound=Callable[..., Any])


def release_folder(cache_folder: str, sources: Path) -> str:
    """Return the folder in `cache_folder` for the Python files below `sources` as they are now.

    numba compares only the age of the file that defines a kernel, not of those that define the parts it calls, and it
    raises AttributeError for the cached index of a kernel whose signature names a class that was renamed.
    """
    state = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        status = path.stat()
        state.update(
            f"{path.relative_to(sources)} {status.st_size} {status.st_mtime_ns}\n".encode()
        )
    return str(Path(cache_folder) / state.hexdigest()[:16])


_config: Any = numba.config  # its names are not declared
if _config.CACHE_DIR:
    _config.CACHE_DIR = release_folder(_config.CACHE_DIR, Path(__file__).parents[1])


def njit(function: F) -> F:
    return _compiled(function)


def part(function: F) -> F:
    """For the parts that a kernel is cut into for its readers: inlined by LLVM.

    A call costs little, but each array that it is given is counted in and out atomically, which costs more than
    the look at an event that it is for.
    """
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: Any) -> F:
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return cast(F, numba.njit(nogil=True, **options)(function))
