"""Shows on stderr that long work runs: on a terminal, in one line that changes; otherwise, with a line at the beginning
and a new line every five seconds, also while the work waits in one call."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dispatcher.model.printable import printable
from dispatcher.terminal.output import say_progress

LINE_EVERY_S = 5.0


@contextmanager
def reporting(report: Callable[[float], None], every_s: float = LINE_EVERY_S) -> Iterator[None]:
    """Call `report` every `every_s` seconds with the seconds since the beginning of the block, in a thread, until the
    block ends."""
    began, ended = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            report(time.monotonic() - began)

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def long_work(
    what: str,
    total: int | None = None,
    unit: str = "",
    *,
    announced: bool = True,
    every_s: float = LINE_EVERY_S,
) -> Iterator[Callable[[int], None]]:
    """Show the progress of the work in the `with` block. Yields a function, which the work calls with the amount that
    was done since the last call.

    `total`: the approximate amount of the whole work, None if it is not known; `unit`: what the amounts count, "" for
    work without amounts; `announced`: False for no line at the beginning. Tests replace `every_s`.
    """
    if sys.stderr.isatty():
        with _on_terminal(what, total, unit) as advance:
            yield advance
        return
    done = 0

    def advance_in_pipe(count: int) -> None:
        nonlocal done
        done += count

    def report(seconds: float) -> None:
        amount = f"{done}{_of(total)} {unit}, " if unit else ""
        say_progress(f"{what}: {amount}{seconds:.0f} s so far")

    if announced:
        say_progress(f"{what} ...")
    with reporting(report, every_s):
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
