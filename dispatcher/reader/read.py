"""Reads a source range by range, writes the lines, and acknowledges what was written."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

from dispatcher.reader.change_lines import ChangeLines
from dispatcher.reader.change_sources import ChangeSource
from dispatcher.reader.outputs import LineOutput


async def copy_changes(
    source: ChangeSource, lines: ChangeLines, output: LineOutput, *, once: bool
) -> None:
    """Write the changes of the source as they come. `once`: return when the end of the log is reached that was the end
    at the first answer. Raises `BinlogError`, and BrokenPipeError if the reader of standard output is gone."""
    target: tuple[int, int] | None = None
    while True:
        delivered = await source.read()
        if delivered.data:
            await output.write(partial(lines.of, delivered.data))
        await source.acknowledge()
        target = target or delivered.head
        reached = target is not None and delivered.end >= target
        if once and (delivered.ended or reached):
            return


def end_at_signals() -> None:
    """Let SIGINT and SIGTERM cancel the current task: it ends between two ranges, or repeats its range at the next
    run."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
