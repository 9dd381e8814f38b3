"""A server's log as short dumps beside the dispatchers' show it: when files were made, how they begin, what is in them.

SHOW BINLOG EVENTS tells neither creation times nor commit times, so each look is a dump of its own, by file, that the
server ends where its log does or we as soon as enough was seen. Everything here blocks.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import NamedTuple

from dispatcher.binlog.event import header
from dispatcher.binlog.event.gtid import parse_gtid_event, parse_previous
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.stream.batch import Batch
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.dispatch.executed_position import Gtids, Mode, make_executed
from dispatcher.dispatch.server_view import Boundary, ServerView
from dispatcher.dispatch.specs import Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.mysql.blocking_dump import asked, events_of
from dispatcher.source.mysql.error_map import FATAL_READING_LOG, number_of
from dispatcher.source.mysql.replication_commands import at_end, ended, lost, socket_of
from dispatcher.source.mysql.server_facts import Connection, Endpoint, ServerFacts
from dispatcher.source.start_search import (
    NOT_NUMBERED,
    NUMBERED,
    First,
    commit_us,
    files_of,
    find_starts,
)

TIMEOUT_S = 10
BUFFER_BYTES = 1 << 20
# As many files without a transaction as a look into the log goes over, three events a file.
LOOK_EVENTS_MAX = 100_000
_HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
_FIRST = 4  # offset of a file's first event
_LISTS = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


def mode_of(known: ServerFacts) -> Mode:
    if known.flavour == "mariadb":
        return Mode.MARIADB
    return Mode.GTID if known.gtid_mode == "ON" else Mode.FILE


class ServerLog:
    """The log as of when `known` was asked for; a `starts.Log`. Raises BinlogError."""

    def __init__(self, endpoint: Endpoint, known: ServerFacts) -> None:
        self.mode = mode_of(known)
        self.files: Sequence[tuple[str, int]] = [(file.name, file.size) for file in known.files]
        self.purged = known.gtid_purged
        self.end = make_executed(self.mode, known.gtid_executed, known.file, known.offset)
        self._endpoint = endpoint
        self._known = known
        self._heads: dict[str, tuple[Gtids | None, First | None]] = {}

    def view(
        self,
        files: Sequence[str],
        starts: Sequence[Start] = (),
        places: Sequence[tuple[str, int]] = (),
    ) -> ServerView:
        """What the rules need to know; creation times of these files, of the newest, of those that are found, and of
        those of `places`; what stands at these."""
        found = find_starts(self, starts)
        there = {name for name, _ in self.files}
        created, boundaries = self.probed(places)
        for name in dict.fromkeys((*files, *files_of(found), self._known.file)):
            if name in there and name not in created:
                created[name] = self.created(name)
        return replace(self.bare(created), starts=found, boundaries=boundaries)

    def probed(
        self, places: Sequence[tuple[str, int]]
    ) -> tuple[dict[str, int], dict[tuple[str, int], Boundary]]:
        """Creation times by file, and what stands at files and offsets, of those that the log has: a dump for each."""
        sizes = dict(self.files)
        created: dict[str, int] = {}
        boundaries: dict[tuple[str, int], Boundary] = {}
        for name, offset in places:
            if name not in sizes:
                continue
            # A dump begins at an offset of 32 bits; one behind the end of its file is refused.
            if _FIRST < offset <= min(sizes[name], 0xFFFF_FFFF):
                created[name], boundaries[name, offset] = self._probe(name, offset)
            elif name not in created:
                created[name] = self.created(name)
        return created, boundaries

    def _probe(self, name: str, offset: int) -> tuple[int, Boundary]:
        """The creation time of a file (s since 1970), and what stands at an offset: one short dump tells both."""
        created = 0
        try:
            with closing(self._events(name, offset)) as found:
                for file, event in found:
                    code = event.raw[4]
                    if code == EventType.FORMAT_DESCRIPTION and not created:
                        created = int.from_bytes(event.raw[:4], "little")
                    if file != name and created:
                        break  # the file ends there
                    if _is_of_the_file(event):
                        whole = event.ends_at(offset + len(event.raw)) and event.sound
                        return created, Boundary(whole, self._gtid_of(event) if whole else None)
        except BinlogError as error:
            if not _unreadable(error):
                raise
            return created or self.created(name), Boundary(whole=False)
        return created, Boundary(whole=True)

    def _gtid_of(self, event: _Event) -> tuple[str, int] | None:
        code = event.raw[4]
        if self.mode is not Mode.GTID or code not in (EventType.GTID, EventType.GTID_TAGGED):
            return None
        gtid = parse_gtid_event(code, event.body)
        return gtid.name, gtid.gno

    def bare(self, created: Mapping[str, int]) -> ServerView:
        """What is known already."""
        return ServerView(
            server=self._known.server_uuid,
            mode=self.mode,
            executed=self._known.gtid_executed,
            purged=self.purged,
            files=tuple(self.files),
            file=self._known.file,
            offset=self._known.offset,
            created=created,
        )

    def created(self, name: str) -> int:
        """When the server made a file (s since 1970): the timestamp of its FORMAT_DESCRIPTION."""
        with closing(self._events(name, 4)) as found:
            for _, event in found:
                if event.raw[4] == EventType.FORMAT_DESCRIPTION:
                    return int.from_bytes(event.raw[:4], "little")
        return 0

    # -- a `starts.Log` --------------------------------------------------------------------------------------

    def held(self, name: str) -> Gtids | None:
        return self._head(name)[0]

    def first(self, name: str) -> First | None:
        return self._head(name)[1]

    def _head(self, name: str) -> tuple[Gtids | None, First | None]:
        if name not in self._heads:
            self._heads[name] = self._read_head(name)
        return self._heads[name]

    def _read_head(self, name: str) -> tuple[Gtids | None, First | None]:
        held: Gtids | None = None
        with closing(self._events(name, 4)) as found:
            for file, event in found:
                code = event.raw[4]
                if code in _LISTS and file == name:
                    held = parse_previous(code, event.body)
                elif code in NUMBERED or code in NOT_NUMBERED:
                    begins = event.log_pos - len(event.raw)
                    return held, First(file, begins, commit_us(event.raw, event.body))
        return held, None

    def type_at(self, name: str, offset: int) -> int | None:
        if offset >> 32:  # a dump cannot begin there
            return None
        try:
            with closing(self._events(name, offset)) as found:
                for file, event in found:
                    if not _is_of_the_file(event):
                        continue
                    whole = event.ends_at(offset + len(event.raw)) and event.sound
                    return event.raw[4] if file == name and whole else None
        except BinlogError as error:
            if _unreadable(error):
                return None
            raise
        return None

    def batches(self, name: str) -> Generator[Batch, None, None]:
        label = self._endpoint.label
        splitter = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=BUFFER_BYTES)
        splitter.prepared = None
        with self._asked(name, 4) as connection:
            sock = socket_of(connection)
            sock.settimeout(TIMEOUT_S)
            while True:
                splitter.compact()
                if not splitter.full:
                    try:
                        size = sock.recv_into(splitter.room())
                    except OSError as error:
                        raise lost(error.strerror or str(error), label) from error
                    if not size:
                        raise lost("the server closed the connection", label)
                    splitter.wrote(size)
                for batch in splitter.split():
                    if isinstance(batch, Batch):
                        yield batch
                    elif at_end(batch.packet):
                        return
                    else:
                        raise _purged_meanwhile(ended(batch.packet, label))

    # -- dumps -----------------------------------------------------------------------------------------------

    def _asked(self, name: str, offset: int) -> AbstractContextManager[Connection]:
        mariadb = self.mode is Mode.MARIADB
        return asked(
            self._endpoint, name, offset, mariadb=mariadb, checksum=True, timeout_s=TIMEOUT_S
        )

    def _events(self, name: str, offset: int) -> Generator[tuple[str, _Event], None, None]:
        """Events with their files, one after the other: for a few of them."""
        file, checksum = "", True
        try:
            with self._asked(name, offset) as connection:
                for raw in self._first_events(connection, name):
                    event = _Event(raw, checksum)
                    if event.raw[4] == EventType.FORMAT_DESCRIPTION:
                        checksum = header.parse_format_description(event.raw).checksum
                        event = _Event(event.raw, checksum)
                    elif event.raw[4] == EventType.ROTATE and not event.log_pos:
                        file, _ = header.parse_rotate(event.body)
                    yield file, event
        except BinlogError as error:
            raise _purged_meanwhile(error) from error.__cause__

    def _first_events(self, connection: Connection, name: str) -> Generator[bytes, None, None]:
        label = self._endpoint.label
        with closing(events_of(connection, label)) as found:
            for n, raw in enumerate(itertools.chain.from_iterable(found)):
                if n == LOOK_EVENTS_MAX:
                    what = f"{n} events from {name} on hold no transaction"
                    raise BinlogError(ErrorKind.CONNECT_FAILED, what, where=label)
                yield raw


class _Event(NamedTuple):
    """`checksum`: does it end in one?"""

    raw: bytes
    checksum: bool

    @property
    def body(self) -> bytes:
        return self.raw[header.HEADER_SIZE : len(self.raw) - header.CHECKSUM_SIZE * self.checksum]

    @property
    def log_pos(self) -> int:
        """The offset after it; 0 for one that was made for the dump."""
        return int.from_bytes(self.raw[13:17], "little")

    def ends_at(self, offset: int) -> bool:
        """True if that is what it says; it has 32 bits for it."""
        return self.log_pos == offset & 0xFFFF_FFFF

    @property
    def sound(self) -> bool:
        return not self.checksum or zlib.crc32(self.raw[:-4]) == int.from_bytes(
            self.raw[-4:], "little"
        )


def _is_of_the_file(event: _Event) -> bool:
    """False for what the server makes for the dump."""
    made = event.raw[4] in (*_HEARTBEATS, EventType.MARIADB_START_ENCRYPTION)
    return bool(event.log_pos) and not made


def _unreadable(error: BinlogError) -> bool:
    """True if the server has the file, and read bytes there that are no event."""
    purged = error.kind is ErrorKind.CONNECTION_LOST  # see `_purged_meanwhile`
    return number_of(error) == FATAL_READING_LOG and not purged


def _purged_meanwhile(error: BinlogError) -> BinlogError:
    """The file was listed a moment ago: the next look will find out what there is."""
    if error.kind is not ErrorKind.POSITION_PURGED:
        return error
    return BinlogError(ErrorKind.CONNECTION_LOST, error.what, where=error.where)
