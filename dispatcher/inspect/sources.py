"""The sources from which `inspect` reads blocks of events: files and standard input."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from dispatcher.binlog.event.file import FIRST_OFFSET, TYPE, Block, LogReader
from dispatcher.binlog.event.types import EventType
from dispatcher.inspect.bounds import Range
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

CHUNK_BYTES = 4 << 20
# The head of a file, with FORMAT_DESCRIPTION and events that change the format, such as START_ENCRYPTION.
HEAD_BYTES = 64 << 10
STDIN = "-"


class InspectSource(Protocol):
    """`names`: the files, in order. `more`: True if the log may continue in further files while it is read."""

    names: Sequence[str]
    more: bool

    def blocks(self, shown: Range) -> Iterator[Block]:
        """Yields the events in order. May leave out files outside of `shown`.

        At the first damage, yields everything before the damage and then raises `BinlogError`.
        """


class FileArguments:
    """Binlog files, in the order of the arguments. `-` is standard input."""

    more = False

    def __init__(self, files: Sequence[str]) -> None:
        """Raises `UserError` if a file cannot be opened."""
        self._files = files
        self.names: Sequence[str] = [
            "stdin" if file == STDIN else Path(file).name for file in files
        ]
        for file in files:
            if file != STDIN:
                _open(file).close()

    def blocks(self, shown: Range) -> Iterator[Block]:
        for file, name in zip(self._files, self.names, strict=True):
            offset = shown.first_offset(name)
            if offset is None:
                continue
            if file == STDIN:
                yield from _blocks(sys.stdin.buffer, name, FIRST_OFFSET)
                continue
            with _open(file) as stream:
                yield from _blocks(stream, name, offset)


def _open(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb", buffering=0)
    except OSError as error:
        what, remedy = f"{file}: {error.strerror}", "name a binlog file that can be read"
        if error.errno == errno.EISDIR:
            what = f"{file} is a directory"
            remedy = f"name its files: {file.rstrip('/')}/binlog.0*"
        raise UserError(ErrorKind.SETTINGS, what, remedy=remedy) from None


def _blocks(stream: BinaryIO, name: str, offset: int) -> Iterator[Block]:
    reader = LogReader(name)
    if offset > HEAD_BYTES and stream.seekable():
        yield from _seek(stream, reader, offset)
    while data := _read(stream, name):
        try:
            yield from reader.feed(data)
        except BinlogError as error:
            if reader.offset == offset != FIRST_OFFSET:
                raise UserError(
                    ErrorKind.SETTINGS,
                    f"--start: no event begins at {name}:{offset} ({error.what})",
                    remedy="name a position that is printed without --start",
                ) from None
            raise
    reader.end()


def _seek(stream: BinaryIO, reader: LogReader, offset: int) -> Iterator[Block]:
    """Read the head of the file, and then go to `offset`. Yields the FORMAT_DESCRIPTION events of the head."""
    for block in reader.feed(_read(stream, reader.name, HEAD_BYTES)):
        if block.events[0, TYPE] == EventType.FORMAT_DESCRIPTION:
            yield block
    size = stream.seek(0, 2)
    if size < offset:
        raise UserError(
            ErrorKind.SETTINGS,
            f"--start: {reader.name} ends at {size}, before {offset}",
            remedy="name a position inside the file",
        )
    stream.seek(offset)
    reader.jump(offset)


def _read(stream: BinaryIO, name: str, size: int = CHUNK_BYTES) -> bytes:
    try:
        return stream.read(size) or b""
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BinlogError(
            ErrorKind.MALFORMED_EVENT, what, where=name, remedy="check the disk"
        ) from error
