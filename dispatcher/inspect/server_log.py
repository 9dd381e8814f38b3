"""Reads the log of a server (`mysql://user@host:port[/file]`) as blocks of events.

Events that the server makes for the dump are dropped, because they are not in the file: the ROTATE with the name of
each file, heartbeats, a repeated FORMAT_DESCRIPTION.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dispatcher.binlog.event.file import (
    FIRST_OFFSET,
    LOG_POS,
    OFFSET,
    SIZE,
    Block,
    frame_events,
    header_line,
    parse_format,
)
from dispatcher.binlog.event.gtid import parse_mariadb_gtid_list, parse_previous_gtids
from dispatcher.binlog.event.header import (
    FLAG_ARTIFICIAL,
    HEADER_SIZE,
    TYPE_AT,
    EventHeader,
    FormatDescription,
)
from dispatcher.binlog.event.types import HEARTBEATS, EventType, type_name
from dispatcher.inspect.bounds import Bound, GtidBound, PositionBound, Range
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.source.mysql.blocking_dump import LogServer, rotate_target

_GTID_LISTS = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


class RemoteLog:
    """The log of a server, beginning with one of its files. With `follow`, the reading never ends; otherwise it ends at
    the end of the log.

    The log begins with `file`. If `file` is "" and `start` is a GTID or a position with a file, the log begins with the
    file that contains `start`. Otherwise it begins with the oldest file.
    """

    more = True

    def __init__(self, server: LogServer, file: str, start: Bound | None, *, follow: bool) -> None:
        self._server = server
        self._follow = follow
        names = [binlog.name for binlog in server.files]
        if file and file not in names:
            raise UserError(
                ErrorKind.SETTINGS,
                f"{server.endpoint.label} has no file {file}",
                remedy=f"it has {names[0]} to {names[-1]}" if names else "it has none",
            )
        if isinstance(start, PositionBound) and start.file and not file:
            file = start.file
        elif isinstance(start, GtidBound) and not file:
            file = _file_of(server, names, start)
        self.names: Sequence[str] = names[names.index(file) :] if file in names else names

    def blocks(self, shown: Range) -> Iterator[Block]:  # noqa: ARG002 - the server sends whole files
        reader = DumpReader()
        for events in self._server.dump(self.names[0], follow=self._follow):
            yield from reader.feed(events)


def _file_of(server: LogServer, files: Sequence[str], start: GtidBound) -> str:
    """Returns the newest file before which the log contains no transaction of `start`. If purged files contained such a
    transaction, returns the oldest file."""
    low, high = 0, len(files) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _any_before(server, files[middle], start):
            high = middle - 1
        else:
            low = middle
    return files[low]


def _any_before(server: LogServer, file: str, start: GtidBound) -> bool:
    """True if a transaction of `start` was written before the file, according to the GTID list at the file's
    beginning."""
    reader = DumpReader()
    for events in server.dump(file):
        for block in reader.feed(events):
            for line in block.events.tolist():
                at, size, kind = line[:3]
                if kind in _GTID_LISTS:
                    return _lists_any(
                        block.buf[at + HEADER_SIZE : at + size - block.tail], kind, start
                    )
                if kind != EventType.FORMAT_DESCRIPTION:
                    return False
    return False


def _lists_any(body: bytes, kind: int, start: GtidBound) -> bool:
    if isinstance(start.gtids, GtidSet):
        return kind == EventType.PREVIOUS_GTIDS and bool(
            parse_previous_gtids(body).intersection(start.gtids)
        )
    if kind == EventType.PREVIOUS_GTIDS:
        return False
    return any(
        start.gtids.get((gtid.domain, gtid.server), gtid.sequence + 1) <= gtid.sequence
        for gtid in parse_mariadb_gtid_list(body)
    )


def _names_file(rotate: EventHeader) -> bool:
    """True if the server made this ROTATE for the dump. Such a ROTATE names the file whose events follow. A ROTATE that
    is in a file names the next file."""
    return bool(rotate.flags & FLAG_ARTIFICIAL) or not rotate.timestamp


class DumpReader:
    """Groups the events of a dump into blocks."""

    def __init__(self) -> None:
        self._file = ""
        self._offset = FIRST_OFFSET
        self._format: FormatDescription | None = None

    def feed(self, events: Sequence[bytes]) -> Iterator[Block]:
        """Yields blocks. At the first damage, yields everything before the damage and then raises `BinlogError`."""
        plain: list[bytes] = []
        for event in events:
            if len(event) < HEADER_SIZE:
                yield from self._blocks(plain)
                raise self._error(ErrorKind.MALFORMED_EVENT, f"an event of {len(event)} bytes")
            kind = event[TYPE_AT]
            starts_file = kind == EventType.ROTATE and _names_file(EventHeader.read(event))
            if not (starts_file or kind == EventType.FORMAT_DESCRIPTION or kind in HEARTBEATS):
                plain.append(event)
                continue
            yield from self._blocks(plain)
            plain = []
            if starts_file:
                self._file, self._offset = rotate_target(event)
            elif kind == EventType.FORMAT_DESCRIPTION:
                self._format = self._parsed(event)
                yield from self._blocks([event])
        yield from self._blocks(plain)

    def _parsed(self, event: bytes) -> FormatDescription:
        try:
            return parse_format(event)
        except BinlogError as error:
            raise error.at(f"{self._file}, offset {self._offset}") from None

    def _blocks(self, events: Sequence[bytes]) -> Iterator[Block]:
        """Yields one block with all events, or nothing if there are no events."""
        if not events:
            return
        if self._format is None:
            raise self._error(
                ErrorKind.MALFORMED_EVENT,
                f"{type_name(events[0][4])} before any FORMAT_DESCRIPTION_EVENT",
            )
        data = b"".join(events)
        buf = np.frombuffer(data, dtype=np.uint8)
        parts, at = [], 0
        if data[4] == EventType.FORMAT_DESCRIPTION:
            parts.append(header_line(buf, 0, 0))
            at = len(data)
        while at < len(data):
            lines, _, end = frame_events(
                buf, at, checksum=self._format.checksum, base=0, stops=False
            )
            if not len(lines):
                raise self._error(ErrorKind.CHECKSUM_MISMATCH, type_name(data[at + 4]))
            parts.append(lines)
            at = end
        lines = parts[0] if len(parts) == 1 else np.concatenate(parts)
        ends = self._offset + np.cumsum(lines[:, SIZE])
        # If the position in the header is higher than the computed position, the header is right: an encrypted file
        # begins with bytes that the server does not send.
        log_pos, end = int(lines[-1, LOG_POS]), int(ends[-1]) & 0xFFFFFFFF
        if log_pos > end and log_pos - end < 1 << 20:
            ends += log_pos - end
        lines[:, OFFSET] = ends - lines[:, SIZE]
        self._offset = int(ends[-1])
        yield Block(self._file, self._format, data, lines)

    def _error(self, kind: ErrorKind, what: str) -> BinlogError:
        where = f"{self._file or 'the dump'}, offset {self._offset}"
        return BinlogError(
            kind,
            what,
            where=where,
            remedy="try again; if the error repeats, the server's file is damaged",
        )
