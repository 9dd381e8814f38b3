"""`python -m tests.fuzz.bounds [SECONDS]`: mutated inputs of every target through compiled kernels that check indices.

To be run with NUMBA_BOUNDSCHECK=1 and a NUMBA_CACHE_DIR of its own (see the Makefile), because numba's cache ignores
whether compiled code checks bounds. An IndexError is a kernel that would have read or written outside of an array.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

from dispatcher.library.warm import load_decoder
from dispatcher.stream.warmup import load_kernels
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS


def mutants(rng: random.Random, inputs: list[bytes]) -> Iterator[bytes]:
    """Yields mutants without end: inputs that are cut, or in which bytes are changed, inserted or removed."""
    extremes = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
    while True:
        data = bytearray(rng.choice(inputs))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0 if at < len(data):
                    data[at] = rng.choice((*extremes, rng.randrange(256)))
                case 1:
                    data[at:at] = bytes(rng.choices(extremes, k=rng.randrange(1, 5)))
                case 2:
                    del data[at : at + rng.randrange(1, 9)]
                case _:
                    del data[at + rng.randrange(40) :]
        yield bytes(data)


def main(seconds: float) -> int:
    seed = random.randrange(10**9)
    print(f"== bounds, {seconds} s for each target, seed {seed}", flush=True)
    load_kernels()
    load_decoder()
    rng = random.Random(seed)
    found = 0
    for name, target in TARGETS.items():
        inputs = seeds()[name]
        for data in inputs:
            target(data)  # compiles the kernels
        until = time.monotonic() + seconds
        for data in mutants(rng, inputs):
            try:
                target(data)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                print(f"FOUND by {name}: {error!r}\n  input: {data.hex()}")
                found += 1
                break
            if time.monotonic() > until:
                break
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))
