"""Reads a whole binlog file block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatcher.binlog.event.file import Block, LogReader


def read_blocks(chunks: Iterable[bytes], name: str) -> Iterator[Block]:
    """Yield all blocks of a file. Raises `BinlogError` with file and offset after the last readable block."""
    reader = LogReader(name)
    for chunk in chunks:
        yield from reader.feed(chunk)
    reader.end()
