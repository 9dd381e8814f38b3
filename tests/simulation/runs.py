"""Plays many histories in several processes. A module of its own, because these cannot import a `__main__`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.play import SEEDS_PER_LOG, play


def play_all(first: int, count: int, jobs: int) -> Iterator[tuple[int, int | None]]:
    """Yields (seeds played, the seed that failed or None) for each run of seeds that share a log."""
    runs = [
        (seed, min(seed + SEEDS_PER_LOG, first + count))
        for seed in range(first, first + count, SEEDS_PER_LOG)
    ]
    if jobs == 1:
        yield from map(_run, runs)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run, runs)


def _run(seeds: tuple[int, int]) -> tuple[int, int | None]:
    first, end = seeds
    gc.disable()  # collecting once for many plays is faster
    gc.collect()
    for seed in range(first, end):
        try:
            play(seed)
        except Exception:  # noqa: BLE001 - any error is a finding
            return seed - first, seed
    return end - first, None
