"""Compiles the kernels once, before the processes that need them start: `python -m tests.kernels`.

In a clone in which nothing has run, every test worker, daemon and Spark worker would otherwise compile the same kernels
at the same time. This program reads the fuzzer's seeds, which contain events of all kinds, so that numba caches all
kernels.
"""

from __future__ import annotations

from dispatcher.front.dump.warmup import load_dump_kernels
from dispatcher.library.warm import load_decoder
from dispatcher.stream.warmup import load_kernels
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS


def main() -> None:
    load_kernels()
    load_dump_kernels()
    load_decoder()
    for name, inputs in seeds().items():
        for data in inputs:
            TARGETS[name](data)


if __name__ == "__main__":
    main()
