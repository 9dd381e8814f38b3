"""Writes the head of an answer together with the beginning of its body.

uvicorn writes them one after the other, and uvloop sends each at once: two calls of the system and two packets, and a
reader that wakes up twice, for an answer of a kilobyte.
"""

from __future__ import annotations

import asyncio


class AnswerWriter:
    """The transport of one answer. A head that nothing follows at once, as of a stream that begins, is sent alone."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._begun = False
        self._alone: asyncio.Handle | None = None

    def write(self, data: bytes | memoryview) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._cancel()
            self._transport.writelines((head, data))
        elif self._begun:
            self._transport.write(data)
        else:
            self._begun, self._head = True, bytes(data)
            self._alone = self._loop.call_soon(self._flush)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, None
        self._cancel()
        if head is not None:
            self._transport.write(head)

    def _cancel(self) -> None:
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None
