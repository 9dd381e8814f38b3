"""The head of an answer and the beginning of its body are written together, if one follows the other at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from dispatcher.api.connections.answer_writer import AnswerWriter

HEAD, BODY, MORE = b"HTTP/1.1 200 OK\r\n\r\n", b"body", b"more"


class Wire(asyncio.Transport):
    """Records each call that sends something."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.sent.append(b"".join(list_of_data))

    def close(self) -> None:
        self.sent.append(b"closed")

    def is_closing(self) -> bool:
        return self.sent[-1:] == [b"closed"]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def writer(wire: Wire) -> AnswerWriter:
    return AnswerWriter(wire, asyncio.get_running_loop())


async def test_the_head_is_sent_with_what_follows(wire: Wire, writer: AnswerWriter) -> None:
    writer.write(HEAD)
    writer.write(memoryview(BODY))
    writer.write(MORE)
    await asyncio.sleep(0)
    assert wire.sent == [HEAD + BODY, MORE]


async def test_a_head_that_nothing_follows_is_sent_alone(wire: Wire, writer: AnswerWriter) -> None:
    writer.write(HEAD)
    assert wire.sent == []
    await asyncio.sleep(0)
    writer.write(BODY)
    assert wire.sent == [HEAD, BODY]


async def test_what_was_written_is_sent_before_the_end(wire: Wire, writer: AnswerWriter) -> None:
    writer.write(HEAD)
    writer.close()
    await asyncio.sleep(0)
    assert wire.sent == [HEAD, b"closed"] and writer.is_closing()
