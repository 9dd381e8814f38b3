"""`python -m tests.fuzz.target NAME [libFuzzer's arguments]`: the process that fuzzes one target (see __main__)."""

from __future__ import annotations

import sys

import atheris

# Project modules are instrumented when they are imported, so this statement precedes all imports of the project.
with atheris.instrument_imports(include=["dispatcher"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS


def main(arguments: list[str]) -> None:
    name = arguments.pop(1)
    atheris.Setup(arguments, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
