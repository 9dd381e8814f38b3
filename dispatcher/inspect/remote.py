"""A server's log as blocks: `mysql://user@host:port[/file]`.

The server says at the beginning of each file which it is. Events that it makes for the dump (that ROTATE, heartbeats,
a FORMAT_DESCRIPTION repeated) are not in the file and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

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
from dispatcher.binlog.event.header import FLAG_ARTIFICIAL, FormatDescription
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.inspect.bounds import Bound, GtidBound, PositionBound, Range
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.source.mysql.blocking_dump import HEARTBEATS, LogServer, rotate_target

_LISTS = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


class Dumps(Protocol):
    """What is needed of a `LogServer`."""

    def dump(self, file: str, *, follow: bool = False) -> Iterator[list[bytes]]: ...


class RemoteLog:
    """A source: from a file on (default: the oldest, or that in which `start` lies) to the end of the log, or without
    end (`follow`)."""

    more = True

    def __init__(self, server: LogServer, file: str, start: Bound | None, *, follow: bool) -> None:
        self._server = server
        self._follow = follow
        known = [one.name for one in server.files]
        if file and file not in known:
            raise UserError(
                ErrorKind.SETTINGS,
                f"{server.endpoint.label} has no file {file}",
                remedy=f"it has {known[0]} to {known[-1]}" if known else "it has none",
            )
        if isinstance(start, PositionBound) and start.file and not file:
            file = start.file
        elif isinstance(start, GtidBound) and not file:
            file = _file_of(server, known, start)
        self.names: Sequence[str] = known[known.index(file) :] if file in known else known

    def blocks(self, wanted: Range) -> Iterator[Block]:  # noqa: ARG002 - the filter is the reader's
        reader = DumpReader()
        for events in self._server.dump(self.names[0], follow=self._follow):
            yield from reader.feed(events)


def _file_of(server: LogServer, files: Sequence[str], start: GtidBound) -> str:
    """The newest file before whose beginning none of the transactions was written; the oldest if there is none."""
    low, high = 0, len(files) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _all_before(server, files[middle], start):
            high = middle - 1
        else:
            low = middle
    return files[low]


def _all_before(server: LogServer, file: str, start: GtidBound) -> bool:
    """Does the file's own list of what came before it hold one of the transactions?"""
    reader = DumpReader()
    for events in server.dump(file):
        for block in reader.feed(events):
            for line in block.events.tolist():
                if line[2] in _LISTS:
                    return _listed(
                        block.buf[line[0] + 19 : line[0] + line[1] - block.tail], line[2], start
                    )
                if line[2] != EventType.FORMAT_DESCRIPTION:
                    return False
    return False


def _listed(body: bytes, kind: int, start: GtidBound) -> bool:
    if kind == EventType.PREVIOUS_GTIDS:
        return isinstance(start.gtids, GtidSet) and bool(
            parse_previous_gtids(body).intersection(start.gtids)
        )
    if isinstance(start.gtids, GtidSet):
        return False
    return any(
        start.gtids.get((gtid.domain, gtid.server), gtid.sequence + 1) <= gtid.sequence
        for gtid in parse_mariadb_gtid_list(body)
    )


class DumpReader:
    """Events of a dump to blocks."""

    def __init__(self) -> None:
        self._file = ""
        self._offset = FIRST_OFFSET
        self._format: FormatDescription | None = None

    def feed(self, events: Sequence[bytes]) -> Iterator[Block]:
        """Raises `BinlogError` behind the last event that can be read."""
        run: list[bytes] = []
        for event in events:
            kind = event[4] if len(event) >= 19 else -1
            made = kind >= 0 and int.from_bytes(event[17:19], "little") & FLAG_ARTIFICIAL
            starts_file = kind == EventType.ROTATE and (made or event[:4] == bytes(4))
            if (
                kind >= 0
                and kind != EventType.FORMAT_DESCRIPTION
                and not starts_file
                and kind not in HEARTBEATS
            ):
                run.append(event)
                continue
            if run:
                yield self._block(run)
                run = []
            if kind in HEARTBEATS:
                continue
            if kind < 0 or (kind != EventType.FORMAT_DESCRIPTION and not starts_file):
                raise self._error(ErrorKind.MALFORMED_EVENT, f"an event of {len(event)} bytes")
            if starts_file:
                self._file, self._offset = rotate_target(event)
            else:
                self._format = self._parsed(event)
                yield self._block([event])
        if run:
            yield self._block(run)

    def _parsed(self, event: bytes) -> FormatDescription:
        try:
            return parse_format(event)
        except BinlogError as error:
            raise error.at(f"{self._file}, offset {self._offset}") from None

    def _block(self, events: Sequence[bytes]) -> Block:
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
            found, _, here = frame_events(
                buf, at, checksum=self._format.checksum, base=0, stops=False
            )
            if not len(found):
                raise self._error(ErrorKind.CHECKSUM_MISMATCH, type_name(data[at + 4]))
            parts.append(found)
            at = here
        lines = parts[0] if len(parts) == 1 else np.concatenate(parts)
        ends = self._offset + np.cumsum(lines[:, SIZE])
        # The header's position is right where it differs: an encrypted file begins with more than is sent.
        told, low = int(lines[-1, LOG_POS]), int(ends[-1]) & 0xFFFFFFFF
        if told > low and told - low < 1 << 20:
            ends += told - low
        lines[:, OFFSET] = ends - lines[:, SIZE]
        self._offset = int(ends[-1])
        return Block(self._file, self._format, data, lines)

    def _error(self, kind: ErrorKind, what: str) -> BinlogError:
        where = f"{self._file or 'the dump'}, offset {self._offset}"
        return BinlogError(
            kind, what, where=where, remedy="try again; if it repeats, the server's file is damaged"
        )
