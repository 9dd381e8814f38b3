"""Compile the kernels once, before the processes that need them start: `python -m tests.kernels`.

In a clone that nothing has run in, every test worker, daemon and Spark worker would else compile the same ones at the
same time. They come into numba's cache by reading what the fuzzer begins with, which holds something of everything.
"""

from __future__ import annotations

from dispatcher.binlog.stream.warmup import load_kernels
from dispatcher.library.warm import load_decoder
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS


def main() -> None:
    load_kernels()
    load_decoder()
    for name, inputs in seeds().items():
        for data in inputs:
            TARGETS[name](data)


if __name__ == "__main__":
    main()
