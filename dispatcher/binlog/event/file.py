"""A binlog file's events one after the other, from chunks of bytes: files of any size, of any version from 5.0 on.

Memory is bounded by a chunk and the largest event. What comes out are blocks: whole events that share one format, in
one piece of memory, their headers in an array. A kernel finds and checks them, so that a million small events cost a
fraction of a second.

The first fault ends the reading. Everything before it has come out by then, and the error names file and offset.
Of a file that is being written, or whose writer crashed, the last event may be cut: that is such a fault, too.

A FORMAT_DESCRIPTION names a checksum algorithm since MySQL 5.6.1 and MariaDB 5.3; before that there is neither the name
nor a checksum. Files from before 5.0 begin with START_V3 instead, and are not read, as by the servers' own tools.

Sources: MySQL source, sql/binlog_reader.h, libs/mysql/binlog/event/control_events.cpp (Format_description_event),
sql/binlog_istream.cc (magic numbers); MariaDB, sql/log_event.cc (Start_encryption_log_event).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    EVENT_BYTES_MAX,
    HEADER_SIZE,
    MAGIC,
    FormatDescription,
    parse_format_description,
    server_numbers,
)
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.jit import njit
from dispatcher.model.errors import BinlogError, ErrorKind

FIRST_OFFSET = len(MAGIC)

# Columns of a block's events. START: of the header in the block's bytes; OFFSET: in the file.
START, SIZE, TYPE, TIMESTAMP, SERVER_ID, LOG_POS, FLAGS, OFFSET = range(8)
_FIELDS = 8
_ROOM = 16_384

_CUT, _FULL, _APART, _BAD_SIZE, _BAD_CHECKSUM = range(5)
_REMEDY = "everything before it was read; copy the file again from the server, or go on behind it"
_PACKED_BY = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
)
_ENCRYPTED_MAGIC = b"\xfdbin"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole events. `events`: a line each, columns as above; `buf`: their bytes; `file`: its name."""

    file: str
    format: FormatDescription
    buf: bytes
    events: I64
    payload: int = (
        -1
    )  # of events unpacked from a TRANSACTION_PAYLOAD: how many of it came before them

    @property
    def tail(self) -> int:
        """Bytes of checksum at the end of each event."""
        return CHECKSUM_SIZE if self.format.checksum and self.payload < 0 else 0


def parse_format(raw: bytes) -> FormatDescription:
    """A FORMAT_DESCRIPTION_EVENT in a file, which must name its server's version: without it nobody knows whether there
    are checksums.

    Raises `BinlogError` MALFORMED_EVENT, UNSUPPORTED_EVENT, CHECKSUM_MISMATCH.
    """
    try:
        found = parse_format_description(raw)
    except BinlogError as error:
        if error.kind is ErrorKind.UNSUPPORTED_EVENT:
            raise
        raise BinlogError(error.kind, error.what, remedy=_REMEDY) from None
    if not server_numbers(found.server_version):
        name = type_name(EventType.FORMAT_DESCRIPTION)
        what = f"{name} names no server version, but {found.server_version!r}"
        raise BinlogError(ErrorKind.MALFORMED_EVENT, what, remedy=_REMEDY)
    return found


class LogReader:
    """Reads one file. Give it the bytes in order; `offset` is where those that are not yet part of a block begin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.format: FormatDescription | None = None
        self._parts: list[bytes] = []
        self._have = 0
        self._need = FIRST_OFFSET

    def feed(self, data: bytes) -> Iterator[Block]:
        """The blocks that these bytes complete. Raises `BinlogError` behind the last that can be read."""
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        data = b"".join(self._parts)
        at = 0
        if self.offset == 0:
            _check_magic(data, self.name)
            at = self.offset = FIRST_OFFSET
        base = self.offset - at
        try:
            for block in self._blocks(data, at):
                at = int(block.events[-1, START] + block.events[-1, SIZE])
                self.offset = base + at
                yield block
        except BinlogError as error:
            raise error.at(f"{self.name}, offset {self.offset}") from None
        rest = data[at:]
        self._parts, self._have = [rest], len(rest)
        # The size of the next event, if it is known, so that a large one is not looked at with every chunk.
        self._need = int.from_bytes(rest[9:13], "little") if len(rest) >= HEADER_SIZE else 1

    def jump(self, offset: int) -> None:
        """Go on with bytes from another place of the file, where an event begins."""
        self.offset, self._parts, self._have, self._need = offset, [], 0, 1

    def end(self) -> None:
        """The file has no more bytes. Raises `BinlogError` where it ends inside an event."""
        if self.offset == 0:
            _check_magic(b"".join(self._parts), self.name)
        if self._have == 0:
            return
        rest = b"".join(self._parts)
        missing = int.from_bytes(rest[9:13], "little") - len(rest) if len(rest) >= 13 else 0
        what = f"the file ends inside {type_name(rest[4]) if len(rest) > 4 else 'an event'}"
        raise BinlogError(
            ErrorKind.MALFORMED_EVENT,
            what + (f", {missing} bytes are missing" if missing > 0 else ""),
            where=f"{self.name}, offset {self.offset}",
            remedy="everything before it was read; the file is being written, was cut, or its server crashed",
        )

    def _blocks(self, data: bytes, at: int) -> Iterator[Block]:
        buf: U8 = np.frombuffer(data, dtype=np.uint8)
        base = self.offset - at
        while True:
            checksum = self.format is not None and self.format.checksum
            found, code, here = frame_events(buf, at, checksum=checksum, base=base)
            if len(found):
                if self.format is None:
                    raise _no_format(data, at)
                yield Block(self.name, self.format, data, found)
            at = here
            if code == _CUT:
                return
            if code == _APART:
                line = header_line(buf, at, base)
                at = int(line[0, START] + line[0, SIZE])
                yield self._apart(data, line)
                if line[0, TYPE] == EventType.MARIADB_START_ENCRYPTION and at < len(data):
                    raise _encrypted_from_here()
            elif code == _BAD_SIZE:
                raise _bad_size(data, at)
            elif code == _BAD_CHECKSUM:
                kind = type_name(data[at + 4])
                raise BinlogError(ErrorKind.CHECKSUM_MISMATCH, kind, remedy=_REMEDY)

    def _apart(self, data: bytes, line: I64) -> Block:
        """A block of the one event that changes how those after it are read."""
        start, size = int(line[0, START]), int(line[0, SIZE])
        raw = data[start : start + size]
        if line[0, TYPE] == EventType.FORMAT_DESCRIPTION:
            self.format = parse_format(raw)
        elif self.format is None:
            raise _no_format(data, start)
        elif self.format.checksum and zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            raise BinlogError(
                ErrorKind.CHECKSUM_MISMATCH, type_name(int(line[0, TYPE])), remedy=_REMEDY
            )
        return Block(self.name, self.format, data, line)


def read_blocks(chunks: Iterable[bytes], name: str) -> Iterator[Block]:
    """All blocks of a file. Raises `BinlogError` with file and offset behind the last that can be read."""
    reader = LogReader(name)
    for chunk in chunks:
        yield from reader.feed(chunk)
    reader.end()


def frame_events(
    buf: U8, at: int, *, checksum: bool, base: int, stops: bool = True
) -> tuple[I64, int, int]:
    """(a line for each whole event from `at` on, why it stops there, where that is). `base`: what is added to an offset
    in `buf` to get one in the file; `stops`: before an event that changes how those after it are read."""
    lines = np.empty((min(_ROOM, len(buf) // HEADER_SIZE + 1), _FIELDS), dtype=np.int64)
    n, code, here = _frame(buf, at, checksum, stops, base, lines)
    return lines[:n], code, here


def header_line(buf: U8, at: int, base: int) -> I64:
    """The line of one event, unchecked."""
    line = np.empty((1, _FIELDS), dtype=np.int64)
    put_header(buf, at, base, line[0])
    return line


@njit
def put_header(buf: U8, at: Int, base: Int, line: I64) -> None:
    line[START] = at
    line[TIMESTAMP] = little(buf, at, 4)
    line[TYPE] = buf[at + 4]
    line[SERVER_ID] = little(buf, at + 5, 4)
    line[SIZE] = little(buf, at + 9, 4)
    line[LOG_POS] = little(buf, at + 13, 4)
    line[FLAGS] = little(buf, at + 17, 2)
    line[OFFSET] = at + base


@njit
def _frame(
    buf: U8, at: Int, checksum: bool, stops: bool, base: Int, lines: I64
) -> tuple[Int, Int, Int]:
    """Fill `lines`; (how many, why it stops, where). It stops before a type that changes how the next are read, once
    that event is whole."""
    end = np.int64(len(buf))
    n = np.int64(0)
    at = np.int64(at)
    while True:
        if at + HEADER_SIZE > end:
            return n, np.int64(_CUT), at
        size = little(buf, at + 9, 4)
        kind = np.int64(buf[at + 4])
        apart = stops and (kind == 15 or kind == 164)
        if size < HEADER_SIZE + (4 if checksum and not apart else 0) or size > EVENT_BYTES_MAX:
            return n, np.int64(_BAD_SIZE), at
        if at + size > end:
            return n, np.int64(_CUT), at
        if apart:
            return n, np.int64(_APART), at
        if n == len(lines):
            return n, np.int64(_FULL), at
        if checksum and np.int64(crc32(buf, at, at + size - 4)) != little(buf, at + size - 4, 4):
            return n, np.int64(_BAD_CHECKSUM), at
        put_header(buf, at, base, lines[n])
        n += 1
        at += size


def _check_magic(data: bytes, name: str) -> None:
    if data[:4] == MAGIC:
        return
    if not data:
        raise BinlogError(
            ErrorKind.MALFORMED_EVENT, "the file is empty", where=name, remedy="name a binlog file"
        )
    if data[:4] == _ENCRYPTED_MAGIC:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            "the file is encrypted (binlog_encryption=ON)",
            where=name,
            remedy="read it through its server, which decrypts it: mysql://user@host:port/FILE",
        )
    for magic, packer, unpacker in _PACKED_BY:
        if data[:4].startswith(magic[:4]):
            raise BinlogError(
                ErrorKind.MALFORMED_EVENT,
                f"the file is packed by {packer}",
                where=name,
                remedy=f"unpack it: {unpacker} FILE | binlog-dispatcher inspect -",
            )
    raise BinlogError(
        ErrorKind.MALFORMED_EVENT,
        f"not a binlog: it begins with {data[:4]!r}, not {MAGIC!r}",
        where=name,
        remedy="name a binlog file, as SHOW BINARY LOGS lists them",
    )


def _no_format(data: bytes, at: int) -> BinlogError:
    if data[at + 4] == EventType.START_V3:
        # Version 1 (3.23) has headers of 13 bytes, which only the event's size tells from version 3 (4.0, 4.1).
        version = 1 if int.from_bytes(data[at + 9 : at + 13], "little") < 75 else 3
        return BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{type_name(EventType.START_V3)}: a log of binlog version {version}, as MySQL before 5.0 wrote it",
            remedy="only version 4, which MySQL writes since 5.0, is read",
        )
    return BinlogError(
        ErrorKind.MALFORMED_EVENT,
        f"{type_name(data[at + 4])} before any FORMAT_DESCRIPTION_EVENT",
        remedy="the beginning of the file is missing; copy it again from the server",
    )


def _bad_size(data: bytes, at: int) -> BinlogError:
    if data[at + 4] == EventType.START_V3:
        return _no_format(data, at)
    size = int.from_bytes(data[at + 9 : at + 13], "little")
    what = f"{type_name(data[at + 4])} names a size of {size} bytes"
    return BinlogError(ErrorKind.MALFORMED_EVENT, what, remedy=_REMEDY)


def _encrypted_from_here() -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_EVENT,
        "the events behind START_ENCRYPTION_EVENT are encrypted (encrypt_binlog=ON)",
        remedy="read them through their server, which decrypts them: mysql://user@host:port/FILE",
    )
