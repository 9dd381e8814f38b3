"""Shows the progress of long work on stderr: on a terminal, in one line that changes; otherwise, with a new line every
ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dispatcher.model.printable import printable
from dispatcher.terminal.output import say_progress

LINE_EVERY_S = 10.0


@contextmanager
def long_work(
    what: str,
    total: int | None = None,
    unit: str = "",
    *,
    announced: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the work in the `with` block. Yields a function, which the work calls with the amount that
    was done since the last call.

    `total`: the approximate amount of the whole work, None if it is not known; `announced`: True to print a line also
    at the beginning if stderr is not a terminal. Tests replace `clock`.
    """
    if sys.stderr.isatty():
        with _on_terminal(what, total, unit) as advance:
            yield advance
        return
    done, said_at = 0, clock()
    if announced:
        say_progress(f"{what} ...")

    def advance_in_pipe(count: int) -> None:
        nonlocal done, said_at
        done += count
        if clock() - said_at >= LINE_EVERY_S:
            said_at = clock()
            say_progress(f"{what}: {done}{_of(total)} {unit}".rstrip())

    yield advance_in_pipe


def _of(total: int | None) -> str:
    return f" of about {total}" if total else ""


@contextmanager
def _on_terminal(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415 - takes 0.1 s to load
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    counted = [BarColumn(), TextColumn("{task.completed:.0f}" + f"{_of(total)} {unit}")]
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *(counted if unit else ()),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(what), total=total)
        yield lambda count: progress.advance(task, count)
