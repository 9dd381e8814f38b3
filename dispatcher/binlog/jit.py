"""numba's `njit` with a type, and with the two options that every kernel here wants.

`cache`: a compiled kernel is kept beside its source (or in the user's cache folder, or in NUMBA_CACHE_DIR), so that a
daemon or a Spark worker loads it in milliseconds; where none of them can be written, it is compiled in each process.
`nogil`: a kernel never touches Python objects, so other threads may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

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
