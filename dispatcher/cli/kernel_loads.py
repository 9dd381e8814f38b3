"""Loads kernels for a command, and shows the progress if they must be compiled."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

from dispatcher.terminal.output import say_progress, show_progress

_TERMINAL_EVERY_S, _LINE_EVERY_S = 0.5, 5.0


def load_with_progress(loads: Sequence[Callable[[], None]]) -> bool:
    """Call functions each of which loads some kernels. Prints the progress on stderr and returns True if numba's cache
    lacks some of these kernels, so that they are compiled."""
    from dispatcher.runtime.kernels import Kernels  # noqa: PLC0415

    kernels = Kernels(loads, ["dispatcher"], _Progress())
    if kernels.loaded:
        return False
    asyncio.run(kernels.run(_TERMINAL_EVERY_S if sys.stderr.isatty() else _LINE_EVERY_S))
    return True


class _Progress:
    """Prints what `Kernels` logs. A terminal shows the newest number of functions only."""

    def log(self, level: int, event: str, **fields: object) -> None:
        if "seconds" in fields:
            say_progress(f"{event} in {fields['seconds']} s")
        elif level >= logging.WARNING:
            say_progress(f"{event}; {fields['remedy']}")
        elif level >= logging.INFO:
            # `of` counts also the functions of other commands.
            show_progress(f"{event}: {fields['done']} functions")


def read_each_type() -> None:
    """Write the rows of the sample binlog as lines, so that numba compiles the kernels that `read` needs."""
    from dispatcher.binlog.kernel.sample import SAMPLE  # noqa: PLC0415
    from dispatcher.reader.change_lines import ChangeLines  # noqa: PLC0415

    for _ in ChangeLines().of(SAMPLE.read_bytes()):
        pass
