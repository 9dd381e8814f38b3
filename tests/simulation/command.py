"""The command line of a simulation: `python -m PACKAGE [--seeds N] [--first SEED] [--jobs N]`."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.runs import Play, play_all

_PROGRESS_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """`package`: the name of its package; `description`: for the help text; `play`: plays a seed; `show`: plays a seed,
    and adds the lines of the play's transcript to a list."""

    package: str
    description: str | None
    play: Play
    show: Callable[[int, list[str]], object]


def main(simulation: Simulation, arguments: Sequence[str]) -> int:
    prog = f"python -m {simulation.package}"
    parser = argparse.ArgumentParser(prog=prog, description=simulation.description)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", "--trace", type=int, metavar="SEED")
    options = parser.parse_args(arguments)
    if options.show is not None:
        return _show(simulation, options.show)
    began = reported = time.monotonic()
    done = 0
    for count, failed in play_all(simulation.play, options.first, options.seeds, options.jobs):
        done += count
        if failed is not None:
            _show(simulation, failed)
            print(f"{done} histories, then seed {failed} broke a rule")
            print(f"to play it again: {prog} --show {failed}", flush=True)
            return 1
        now = time.monotonic()
        if now - reported >= _PROGRESS_EVERY_S:
            reported = now
            print(
                f"{done} of {options.seeds} histories, {done / (now - began):.0f} per second",
                flush=True,
            )
    print(f"{done} histories in {time.monotonic() - began:.0f} s, no rule was broken", flush=True)
    return 0


def _show(simulation: Simulation, seed: int) -> int:
    lines: list[str] = []
    broken = ""
    try:
        simulation.show(seed, lines)
    except Exception:  # noqa: BLE001 - it is printed
        broken = traceback.format_exc()
    print(f"seed {seed}")
    print("\n".join(lines))
    print(broken)
    return 1 if broken else 0
