"""Writes the head of an answer together with the beginning of its body.

Without this module, uvicorn writes the head and the body separately, and uvloop sends each immediately. An answer of a
kilobyte would then cost two system calls and two packets, and would wake up its reader twice.
"""

from __future__ import annotations

import asyncio


class AnswerWriter:
    """The transport of one answer. If the body does not follow in the same iteration of the event loop, as in a stream
    of events, the transport sends the head alone."""

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
        """Close the connection once everything that was written is sent."""
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
