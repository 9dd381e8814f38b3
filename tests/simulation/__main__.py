"""`python -m tests.simulation [--seeds N] [--first SEED] [--jobs N]` plays N histories, one for each seed.

Prints the count. If a seed breaks a rule, prints its transcript and the rule, and exits with 1. `--show SEED` prints
the transcript of any seed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

from tests.simulation.play import play
from tests.simulation.runs import play_all
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
    began = reported = time.monotonic()
    done = 0
    for count, failed in play_all(options.first, options.seeds, options.jobs):
        done += count
        if failed is not None:
            _show(failed)
            print(f"{done} histories, then seed {failed} broke a rule", flush=True)
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
