"""Plays many histories in several processes. This is a separate module, because these processes cannot import a module
`__main__`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

SEEDS_PER_RUN = 40  # seeds that one process plays one after the other

Play = Callable[[int], object]


def play_all(play: Play, first: int, count: int, jobs: int) -> Iterator[tuple[int, int | None]]:
    """Yields (seeds played, the seed that failed or None) for each run of seeds. `play`: a function of a module."""
    runs = [
        (seed, min(seed + SEEDS_PER_RUN, first + count))
        for seed in range(first, first + count, SEEDS_PER_RUN)
    ]
    if jobs == 1:
        yield from map(partial(_run, play), runs)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_run, play), runs)


def _run(play: Play, seeds: tuple[int, int]) -> tuple[int, int | None]:
    first, end = seeds
    gc.disable()  # one collection for many plays is faster
    gc.collect()
    for seed in range(first, end):
        try:
            play(seed)
        except Exception:  # noqa: BLE001 - any error is a finding
            return seed - first, seed
    return end - first, None
