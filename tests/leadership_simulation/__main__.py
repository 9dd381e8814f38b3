"""`python -m tests.leadership_simulation [--seeds N] [--first SEED] [--jobs N]` plays N histories of several
daemons, one for each seed.

Prints the count. If a seed breaks a rule, prints its transcript and the rule, and exits with 1. `--trace SEED` prints
the transcript of any seed.
"""

from __future__ import annotations

import sys

from tests.leadership_simulation.play import play
from tests.leadership_simulation.transcript import Transcript
from tests.simulation.command import Simulation, main


def _show(seed: int, lines: list[str]) -> None:
    transcript = Transcript(kept=True)
    transcript.lines = lines
    play(seed, transcript)


if __name__ == "__main__":
    sys.exit(main(Simulation("tests.leadership_simulation", __doc__, play, _show), sys.argv[1:]))
