"""`python -m tests.snapshot_simulation.mutate [--seeds N] [--jobs N] [NAME…]`: see `tests.simulation.mutate`."""

from __future__ import annotations

import sys

from tests.simulation.mutate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "tests.snapshot_simulation"))
