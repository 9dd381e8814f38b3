"""`python -m tests.simulation [--seeds N] [--first SEED] [--jobs N]`: play so many histories, one per seed.

Ends with the count, or with the first seed that broke a rule: its transcript, the rule, and exit code 1. `--show SEED`
prints the transcript of any seed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.play import SEEDS_PER_LOG, play
from tests.simulation.transcript import Transcript

_PROGRESS_EVERY_S = 15.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", type=int, metavar="SEED")
    options = parser.parse_args(arguments)
    if options.show is not None:
        return _show(options.show)
    began = told = time.monotonic()
    done = 0
    for count, failed in _runs(options.first, options.seeds, options.jobs):
        done += count
        if failed is not None:
            _show(failed)
            print(f"{done} histories, then seed {failed} broke a rule", flush=True)
            return 1
        now = time.monotonic()
        if now - told >= _PROGRESS_EVERY_S:
            told = now
            print(
                f"{done} of {options.seeds} histories, {done / (now - began):.0f} per second",
                flush=True,
            )
    print(f"{done} histories in {time.monotonic() - began:.0f} s, no rule was broken", flush=True)
    return 0


def _runs(first: int, count: int, jobs: int) -> Iterator[tuple[int, int | None]]:
    """(seeds played, the one that failed) for each run of seeds that share a log."""
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
    gc.disable()  # what a play leaves behind is collected once for many
    gc.collect()
    for seed in range(first, end):
        try:
            play(seed)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            return seed - first, seed
    return end - first, None


def _show(seed: int) -> int:
    transcript = Transcript(kept=True)
    broken = ""
    try:
        play(seed, transcript)
    except Exception:  # noqa: BLE001 - it is printed
        broken = traceback.format_exc()
    print(f"seed {seed}")
    print("\n".join(transcript.lines or ()))
    print(broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
