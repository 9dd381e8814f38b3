"""numba's `njit` with a type, and with the two options that every kernel here wants.

`cache`: a compiled kernel is kept beside its source (or in the user's cache folder, or in NUMBA_CACHE_DIR), so that a
daemon or a Spark worker loads it in milliseconds; where none of them can be written, it is compiled in each process.
`nogil`: a kernel never touches Python objects, so other threads may run meanwhile.

With NUMBA_DISABLE_JIT=1 kernels run as the Python that they are, some hundred times slower, for a fuzzer or a debugger.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
if INTERPRETED:
    np.seterr(over="ignore")  # in a kernel integers wrap around, in a hash on purpose

F = TypeVar("F", bound=Callable[..., Any])


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
