"""Reads a binlog file of any size, of MySQL 5.0 or newer, as blocks of whole events.

Memory is bounded by a chunk of the file and the largest event. The events of a block have one format, one bytes object
contains them, and an array contains their headers. A kernel frames and verifies the events, so a million small events
take a fraction of a second.

Reading ends at the first fault. The reader first yields all events before the fault. The error names file and offset. A
truncated last event is a fault, too: either the server is still writing the file, or the server crashed.

Since MySQL 5.6.1 and MariaDB 5.3 a FORMAT_DESCRIPTION contains a checksum algorithm. Older servers write neither the
algorithm nor checksums. Files of servers before 5.0 begin with START_V3 instead. The reader refuses such files, as the
servers' own tools do.

Sources: MySQL source, sql/binlog_reader.h, libs/mysql/binlog/event/control_events.cpp (Format_description_event),
sql/binlog_istream.cc (magic numbers); MariaDB, sql/log_event.cc (Start_encryption_log_event).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    EVENT_BYTES_MAX,
    FLAGS_AT,
    HEADER_SIZE,
    LOG_POS_AT,
    MAGIC,
    SERVER_ID_AT,
    SIZE_AT,
    TIMESTAMP_AT,
    TYPE_AT,
    FormatDescription,
    has_valid_checksum,
    parse_format_description,
    server_numbers,
)
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.jit import njit
from dispatcher.model.errors import BinlogError, ErrorKind

FIRST_OFFSET = len(MAGIC)

# Columns of a block's events. START: the header's offset in the block's bytes; OFFSET: its offset in the file.
START, SIZE, TYPE, TIMESTAMP, SERVER_ID, LOG_POS, FLAGS, OFFSET = range(8)
_FIELDS = 8
_BLOCK_EVENTS_MAX = 16_384

_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_START_ENCRYPTION = int(EventType.MARIADB_START_ENCRYPTION)
_CUT, _FULL, _APART, _BAD_SIZE, _BAD_CHECKSUM = range(5)
_REMEDY = "everything before it was read; copy the file again from the server, or continue after it"
_ARCHIVES = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
)
_ENCRYPTED_MAGIC = b"\xfdbin"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole events. `events`: a line per event, with the columns START to OFFSET. `buf`: the events' bytes. `file`: the
    file's name. `payload`: -1 for events of the file itself; for events of a TRANSACTION_PAYLOAD, the number of its
    events before this block."""

    file: str
    format: FormatDescription
    buf: bytes
    events: I64
    payload: int = -1

    @property
    def tail(self) -> int:
        """The size of the checksum at the end of each event."""
        return CHECKSUM_SIZE if self.format.checksum and self.payload < 0 else 0


def parse_format(raw: bytes) -> FormatDescription:
    """Parse a FORMAT_DESCRIPTION_EVENT of a file. The event must contain the server's version, because the version
    decides whether the event has a checksum algorithm.

    Raises `BinlogError` MALFORMED_EVENT, UNSUPPORTED_EVENT, CHECKSUM_MISMATCH.
    """
    try:
        format_description = parse_format_description(raw)
    except BinlogError as error:
        if error.kind is ErrorKind.UNSUPPORTED_EVENT:
            raise
        raise BinlogError(error.kind, error.what, remedy=_REMEDY) from None
    version = format_description.server_version
    if not server_numbers(version):
        what = f"{type_name(EventType.FORMAT_DESCRIPTION)} names no server version, but {version!r}"
        raise BinlogError(ErrorKind.MALFORMED_EVENT, what, remedy=_REMEDY)
    return format_description


class LogReader:
    """Reads one file, whose bytes the caller passes in order. `offset`: the offset of the first byte that is not part
    of a block yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.format: FormatDescription | None = None
        self._parts: list[bytes] = []
        self._have = 0
        self._need = FIRST_OFFSET

    def feed(self, data: bytes) -> Iterator[Block]:
        """Yield the blocks that `data` completes. Raises `BinlogError` after the last readable block."""
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
        # Collect bytes up to the end of the next event, because otherwise a large event would be framed again with
        # every chunk.
        self._need = _size(rest, 0) if len(rest) >= HEADER_SIZE else 1

    def jump(self, offset: int) -> None:
        """Continue with bytes from another offset of the file. An event must begin at `offset`."""
        self.offset, self._parts, self._have, self._need = offset, [], 0, 1

    def end(self) -> None:
        """Finish the file. Raises `BinlogError` if the file ends inside an event."""
        if self.offset == 0:
            _check_magic(b"".join(self._parts), self.name)
        if self._have == 0:
            return
        rest = b"".join(self._parts)
        missing = _size(rest, 0) - len(rest) if len(rest) >= LOG_POS_AT else 0
        what = f"the file ends inside {type_name(rest[TYPE_AT]) if len(rest) > TYPE_AT else 'an event'}"
        raise BinlogError(
            ErrorKind.MALFORMED_EVENT,
            what + (f", {missing} bytes are missing" if missing > 0 else ""),
            where=f"{self.name}, offset {self.offset}",
            remedy="everything before it was read; the server still writes the file, or it was truncated in a copy or"
            " by a crash of the server",
        )

    def _blocks(self, data: bytes, at: int) -> Iterator[Block]:
        buf: U8 = np.frombuffer(data, dtype=np.uint8)
        base = self.offset - at
        while True:
            checksum = self.format is not None and self.format.checksum
            events, code, end = frame_events(buf, at, checksum=checksum, base=base)
            if len(events):
                if self.format is None:
                    raise _no_format(data, at)
                yield Block(self.name, self.format, data, events)
            at = end
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
                kind = type_name(data[at + TYPE_AT])
                raise BinlogError(ErrorKind.CHECKSUM_MISMATCH, kind, remedy=_REMEDY)

    def _apart(self, data: bytes, line: I64) -> Block:
        """Return the block of one event that changes how later events are read. Raises `BinlogError`."""
        start, size = int(line[0, START]), int(line[0, SIZE])
        raw = data[start : start + size]
        if line[0, TYPE] == EventType.FORMAT_DESCRIPTION:
            self.format = parse_format(raw)
        elif self.format is None:
            raise _no_format(data, start)
        elif self.format.checksum and not has_valid_checksum(raw):
            raise BinlogError(
                ErrorKind.CHECKSUM_MISMATCH, type_name(int(line[0, TYPE])), remedy=_REMEDY
            )
        return Block(self.name, self.format, data, line)


def frame_events(
    buf: U8, at: int, *, checksum: bool, base: int, stops: bool = True
) -> tuple[I64, int, int]:
    """Frame the events that begin at offset `at`. Return (a line for each whole event, code of the reason to stop,
    offset of the stop). `base` + an offset in `buf` is the offset in the file. `stops`: True to stop before an event
    that changes how later events are read."""
    size = min(_BLOCK_EVENTS_MAX, len(buf) // HEADER_SIZE + 1)
    lines = np.empty((size, _FIELDS), dtype=np.int64)
    n, code, end = _frame(buf, at, checksum, stops, base, lines)
    return lines[:n], code, end


def header_line(buf: U8, at: int, base: int) -> I64:
    """Return the line (see `Block.events`) of one event, without verifying the event."""
    line = np.empty((1, _FIELDS), dtype=np.int64)
    put_header(buf, at, base, line[0])
    return line


@njit
def put_header(buf: U8, at: Int, base: Int, line: I64) -> None:
    line[START] = at
    line[TIMESTAMP] = little(buf, at + TIMESTAMP_AT, 4)
    line[TYPE] = buf[at + TYPE_AT]
    line[SERVER_ID] = little(buf, at + SERVER_ID_AT, 4)
    line[SIZE] = little(buf, at + SIZE_AT, 4)
    line[LOG_POS] = little(buf, at + LOG_POS_AT, 4)
    line[FLAGS] = little(buf, at + FLAGS_AT, 2)
    line[OFFSET] = at + base


@njit
def _frame(
    buf: U8, at: Int, checksum: bool, stops: bool, base: Int, lines: I64
) -> tuple[Int, Int, Int]:
    """Fill `lines`. Return (lines used, code of the reason to stop, offset of the stop). With `stops`, stop before a
    complete event whose type changes how later events are read."""
    end = np.int64(len(buf))
    n = np.int64(0)
    at = np.int64(at)
    while True:
        if at + HEADER_SIZE > end:
            return n, np.int64(_CUT), at
        size = little(buf, at + SIZE_AT, 4)
        kind = np.int64(buf[at + TYPE_AT])
        apart = stops and kind in (_FORMAT_DESCRIPTION, _START_ENCRYPTION)
        if (
            size < HEADER_SIZE + (CHECKSUM_SIZE if checksum and not apart else 0)
            or size > EVENT_BYTES_MAX
        ):
            return n, np.int64(_BAD_SIZE), at
        if at + size > end:
            return n, np.int64(_CUT), at
        if apart:
            return n, np.int64(_APART), at
        if n == len(lines):
            return n, np.int64(_FULL), at
        stop = at + size - CHECKSUM_SIZE
        if checksum and np.int64(crc32(buf, at, stop)) != little(buf, stop, CHECKSUM_SIZE):
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
    for magic, packer, unpacker in _ARCHIVES:
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
    if data[at + TYPE_AT] == EventType.START_V3:
        # Version 1 (MySQL 3.23, headers of 13 bytes) and version 3 (4.0, 4.1) differ only in the size of this event.
        version = 1 if _size(data, at) < 75 else 3
        return BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{type_name(EventType.START_V3)}: a log of binlog version {version}, as MySQL before 5.0 wrote it",
            remedy="only version 4, which MySQL writes since 5.0, is read",
        )
    return BinlogError(
        ErrorKind.MALFORMED_EVENT,
        f"{type_name(data[at + TYPE_AT])} before any FORMAT_DESCRIPTION_EVENT",
        remedy="the beginning of the file is missing; copy it again from the server",
    )


def _bad_size(data: bytes, at: int) -> BinlogError:
    if data[at + TYPE_AT] == EventType.START_V3:
        return _no_format(data, at)
    what = f"{type_name(data[at + TYPE_AT])} names a size of {_size(data, at)} bytes"
    return BinlogError(ErrorKind.MALFORMED_EVENT, what, remedy=_REMEDY)


def _size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + SIZE_AT : at + LOG_POS_AT], "little")


def _encrypted_from_here() -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_EVENT,
        "the events after START_ENCRYPTION_EVENT are encrypted (encrypt_binlog=ON)",
        remedy="read them through their server, which decrypts them: mysql://user@host:port/FILE",
    )
