"""numba's `njit` with types, and with the two options that every kernel uses.

`cache`: numba stores a compiled kernel in NUMBA_CACHE_DIR, or if this is not set, beside the kernel's source or in the
user's cache folder. So a daemon or a Spark worker loads the kernel in milliseconds. If no folder is writable, each
process compiles the kernel. The folder NUMBA_CACHE_DIR still exists after an upgrade, so each release uses a separate
folder in it. `nogil`: a kernel uses no Python objects, so it runs without the GIL, and other threads can run at the
same time.

With NUMBA_DISABLE_JIT=1 kernels run as Python, about a hundred times slower, for a fuzzer or a debugger.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
if INTERPRETED:
    np.seterr(over="ignore")  # integers wrap around in a kernel; a hash function needs this

F = TypeVar("F", bound=Callable[..., Any])
_functions: list[
    Callable[..., Any]
] = []  # of all kernels and their parts, in the order of their definition
_uncached: list[Callable[..., Any]] = []


def release_folder(cache_folder: str, sources: Path) -> str:
    """Return the folder in `cache_folder` for the present state of the Python files below `sources`.

    numba's own check does not suffice: it compares the size and the modification time of the file that defines a
    kernel, but not of the files with the parts that the kernel calls. Also, if the signature of a cached kernel
    contains a class that was renamed since, numba raises AttributeError when it reads the kernel's index in the cache.
    """
    state = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        status = path.stat()
        state.update(
            f"{path.relative_to(sources)} {status.st_size} {status.st_mtime_ns}\n".encode()
        )
    return str(Path(cache_folder) / state.hexdigest()[:16])


_config: Any = numba.config  # numba does not declare its attributes
if _config.CACHE_DIR:
    _config.CACHE_DIR = release_folder(_config.CACHE_DIR, Path(__file__).parents[1])


def njit(function: F) -> F:
    """Compile a kernel that allocates no array: `_nrt=False` leaves out numba's reference counts.

    A kernel owns none of its arrays, because its caller holds them. The atomic changes of the counts took a third of
    the daemon's processor time for a log of small transactions (`perf record`). numba refuses to compile a kernel that
    allocates an array, or that returns one that is not an argument.
    """
    return _compiled(function, _nrt=False)


def part(function: F) -> F:
    """Compile a part of a kernel, which LLVM inlines. The part allocates no array."""
    return _compiled(function, forceinline=True, _nrt=False)


def allocating(function: F) -> F:
    """Compile a kernel that allocates arrays. It changes the reference count of each array that it gets or takes out of
    a tuple, so it must not do this for each event."""
    return _compiled(function)


def compiled_functions() -> Sequence[Callable[..., Any]]:
    """Return the functions of all imported kernels and of their parts."""
    return _functions


def is_cached() -> bool:
    """True if numba has a folder in which it stores compiled kernels."""
    return not _uncached


class _KernelCache(FunctionCache):
    """numba's cache of one kernel. This class loads the kernel without importing numba's definitions for Python and
    numpy.

    numba imports these definitions before it looks into a cache: 80 modules with all functions that a kernel could
    call. The import takes 11 MB, and three times as long as loading the daemon's kernels. If a kernel must be compiled,
    numba imports these modules at that time.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # numba's runtime, which compiled code may call
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def _compiled(function: F, **options: Any) -> F:
    kernel = numba.njit(nogil=True, **options)(function)
    _functions.append(function)
    if not INTERPRETED:
        try:
            cache = _KernelCache(function)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            _uncached.append(function)
        else:
            kernel._cache = cache  # noqa: SLF001 - numba has no public way; `cache=True` does the same
    return cast(F, kernel)
