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
    """Write the changes of the source as they come. `once`: return at the place that was the end of the log when the
    first answer came. Raises `BinlogError`, and BrokenPipeError if the reader of standard output is gone."""
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
    """Let SIGINT and SIGTERM cancel the current task. If the task ends within a range, the next run repeats this
    range."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
