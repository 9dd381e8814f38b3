"""`python -m tests.snapshot_simulation [--seeds N] [--first SEED] [--jobs N]` plays N histories of a stream that begins
with a snapshot, one for each seed.

Prints the count. If a seed breaks a rule, prints its transcript and the rule, and exits with 1. `--trace SEED` prints
the transcript of any seed.
"""

from __future__ import annotations

import sys

from tests.simulation.command import Simulation, main
from tests.snapshot_simulation.play import play

if __name__ == "__main__":
    sys.exit(main(Simulation("tests.snapshot_simulation", __doc__, play, play), sys.argv[1:]))
