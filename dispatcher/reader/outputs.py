"""Where the command `read` writes its lines: standard output, or the standard input of another program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import BinaryIO, Protocol

from dispatcher.terminal.output import say_progress

RETRY_MAX_S = 60.0

Lines = Callable[[], Iterable[bytes | memoryview]]
"""Makes the lines of one range; a second call makes the same lines again."""


class LineOutput(Protocol):
    async def write(self, lines: Lines) -> None:
        """Write the lines of a range. Returns when the lines are written and may be acknowledged."""


class StreamOutput:
    """Standard output. Raises BrokenPipeError if its reader is gone."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    async def write(self, lines: Lines) -> None:
        await asyncio.to_thread(self._write, lines)

    def _write(self, lines: Lines) -> None:
        for piece in lines():
            self._stream.write(piece)
        self._stream.flush()


class CommandOutput:
    """A shell command that reads the lines of each range from its standard input. Exit code 0 means that the command
    has stored the lines. After another exit code and a pause, the command runs again and gets the same lines."""

    def __init__(self, command: str) -> None:
        self._command = command

    async def write(self, lines: Lines) -> None:
        pause_s = 1.0
        while (code := await self._run(lines)) != 0:
            say_progress(
                f"--run: {self._command!r} ended with exit code {code}; it gets the same lines again in {pause_s:g} s"
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _run(self, lines: Lines) -> int:
        process = await asyncio.create_subprocess_shell(
            self._command, stdin=asyncio.subprocess.PIPE
        )
        stdin = process.stdin
        assert stdin is not None
        try:
            pieces = iter(lines())
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                stdin.write(piece)
                await stdin.drain()
            stdin.close()
            await stdin.wait_closed()
        except (BrokenPipeError, ConnectionResetError):
            pass  # a program may end without reading everything; its exit code says whether it succeeded
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return await process.wait()
