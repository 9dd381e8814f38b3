"""A server's log, read by short dumps, which are separate from the dumps of the dispatchers.

SHOW BINLOG EVENTS shows neither creation times nor commit times, so each probe is a separate dump by file. The server
ends the dump at the end of its log, or the probe ends the dump as soon as it has found the wanted event. All functions
here block.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple

from dispatcher.binlog.event.gtid import parse_gtid_event, parse_previous
from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    EventHeader,
    parse_format_description,
)
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Gtids,
    Mode,
    make_executed,
)
from dispatcher.dispatch.values.server_view import Boundary, ServerView
from dispatcher.dispatch.values.specs import AtGtid, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.error_map import FATAL_READING_LOG, STATE_OF_SERVER, number_of
from dispatcher.mysql.login import Endpoint
from dispatcher.mysql.server_facts import ServerFacts
from dispatcher.source.mysql.blocking_dump import BlockingDump, blocking_dump, rotate_target
from dispatcher.source.protocols import ViewRequest
from dispatcher.source.start_search import (
    FIRST_OFFSET,
    NOT_NUMBERED,
    NUMBERED,
    FirstTransaction,
    commit_us,
    files_of,
    find_starts,
    is_made_for_dump,
    is_whole_event,
)
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes

TIMEOUT_S = 10
# The largest number of events that one probe reads. A file without a transaction contains three events, and a probe may
# skip many such files.
PROBE_EVENTS_MAX = 100_000
_LISTS = (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST)


def mode_of(server: ServerFacts, *, several_hosts: bool = False) -> Mode:
    """Return the kind of a server's positions. `several_hosts`: True if other servers may replace this one."""
    if server.flavour == "mariadb":
        return Mode.DOMAINS if several_hosts else Mode.MARIADB
    return Mode.GTID if server.gtid_mode == "ON" else Mode.FILE


class ServerLog:
    """A `SearchableLog`: the log as it was when the server's facts were read. Raises BinlogError."""

    def __init__(
        self, endpoint: Endpoint, server: ServerFacts, *, several_hosts: bool = False
    ) -> None:
        self.mode = mode_of(server, several_hosts=several_hosts)
        self.files: Sequence[tuple[str, int]] = [(file.name, file.size) for file in server.files]
        self.end = make_executed(self.mode, server.gtid_executed, server.file, server.offset)
        self._endpoint = endpoint
        self._server = server
        self._heads: dict[str, tuple[Gtids | None, FirstTransaction | None]] = {}

    @property
    def purged(self) -> str:
        """The transactions that the log no longer holds. On MariaDB these are the GTIDs that the first file lists at
        its beginning."""
        if self.mode is not Mode.DOMAINS:
            return self._server.gtid_purged
        return str(self.previous_gtids(self.files[0][0]) or "") if self.files else ""

    def find(self, starts: Iterable[Start]) -> dict[Start, ExecutedPosition | BinlogError]:
        """Return the positions of starts (see `find_starts`). Starts at GTIDs that were read from this server are left
        out."""
        own = self._server.server_uuid
        return find_starts(
            self, [s for s in starts if not (isinstance(s, AtGtid) and s.read_from == own)]
        )

    def view(self, request: ViewRequest) -> ServerView:
        """Describe the log, with the creation times of the requested files, of the newest file, and of the files in
        which starts were found."""
        starts = self.find(request.starts)
        names = {name for name, _ in self.files}
        created, boundaries = self.probe(request.places)
        for name in dict.fromkeys((*request.files, *files_of(starts), self._server.file)):
            if name in names and name not in created:
                created[name] = self.created(name)
        return replace(self.known_view(created), starts=starts, boundaries=boundaries)

    def known_view(self, created: Mapping[str, int]) -> ServerView:
        """Describe the log by the server's facts and the given creation times, without a dump."""
        return ServerView(
            server=self._server.server_uuid,
            mode=self.mode,
            executed=self._server.gtid_executed,
            owned=self._server.gtid_owned,
            purged=self.purged,
            files=tuple(self.files),
            file=self._server.file,
            offset=self._server.offset,
            created=created,
            lower_case_table_names=self._server.lower_case_table_names,
        )

    def probe(
        self, places: Sequence[tuple[str, int]]
    ) -> tuple[dict[str, int], dict[tuple[str, int], Boundary]]:
        """Return creation times by file, and boundaries by file and offset, for the `places` in files of the log. Each
        place takes one dump."""
        sizes = dict(self.files)
        created: dict[str, int] = {}
        boundaries: dict[tuple[str, int], Boundary] = {}
        for name, offset in places:
            if name not in sizes:
                continue
            # A dump request has 32 bits for the offset, and the server refuses an offset beyond the end of the file.
            if FIRST_OFFSET < offset <= min(sizes[name], 0xFFFF_FFFF):
                created[name], boundaries[name, offset] = self._probe(name, offset)
            elif name not in created:
                created[name] = self.created(name)
        return created, boundaries

    def _probe(self, name: str, offset: int) -> tuple[int, Boundary]:
        """Return the creation time of a file (s since 1970) and the boundary at an offset, by one dump."""
        created, event, whole = self._event_at(name, offset)
        gtid = self._gtid_of(event) if event is not None and whole else None
        return created or self.created(name), Boundary(whole, gtid)

    def _event_at(self, name: str, offset: int) -> tuple[int, _Event | None, bool]:
        """Return a file's creation time (0 = not read), the event at an offset, and True if the offset is a boundary.

        The event is None at the end of the file, and where the server finds no event.
        """
        created = 0
        try:
            with closing(self._events(name, offset)) as events:
                for file, event in events:
                    if event.code == EventType.FORMAT_DESCRIPTION and not created:
                        created = event.header.timestamp
                    if file != name and created:
                        break  # the file ends at this offset
                    if not is_made_for_dump(event.header):
                        whole = is_whole_event(event.raw, offset, checksum=event.checksum)
                        return created, event, whole
        except BinlogError as error:
            if not _unreadable(error):
                raise
            return created, None, False
        return created, None, True

    def _gtid_of(self, event: _Event) -> tuple[str, int] | None:
        if self.mode is not Mode.GTID or event.code not in (EventType.GTID, EventType.GTID_TAGGED):
            return None
        gtid = parse_gtid_event(event.code, event.body)
        return gtid.name, gtid.gno

    def created(self, name: str) -> int:
        """Return a file's creation time: its FORMAT_DESCRIPTION's timestamp (s since 1970, 0 = unknown)."""
        with closing(self._events(name, FIRST_OFFSET)) as events:
            for _, event in events:
                if event.code == EventType.FORMAT_DESCRIPTION:
                    return event.header.timestamp
        return 0

    # -- a `SearchableLog` -----------------------------------------------------------------------------------

    def previous_gtids(self, name: str) -> Gtids | None:
        return self._head(name)[0]

    def first(self, name: str) -> FirstTransaction | None:
        return self._head(name)[1]

    def _head(self, name: str) -> tuple[Gtids | None, FirstTransaction | None]:
        if name not in self._heads:
            self._heads[name] = self._read_head(name)
        return self._heads[name]

    def _read_head(self, name: str) -> tuple[Gtids | None, FirstTransaction | None]:
        previous: Gtids | None = None
        with closing(self._events(name, FIRST_OFFSET)) as events:
            for file, event in events:
                if event.code in _LISTS and file == name:
                    previous = parse_previous(event.code, event.body)
                elif event.code in NUMBERED or event.code in NOT_NUMBERED:
                    begins = event.header.log_pos - len(event.raw)
                    commit = commit_us(event.raw, event.body)
                    return previous, FirstTransaction(file, begins, commit)
        return previous, None

    def type_at(self, name: str, offset: int) -> int | None:
        if offset >> 32:  # a dump cannot begin at this offset
            return None
        _, event, whole = self._event_at(name, offset)
        return event.code if event is not None and whole else None

    def batches(self, name: str) -> Generator[Batch, None, None]:
        with self._dump(name, FIRST_OFFSET) as dump:
            yield from (batch for batch, _ in dump.batches(name, Routes()))

    # -- dumps -----------------------------------------------------------------------------------------------

    @contextmanager
    def _dump(self, name: str, offset: int) -> Iterator[BlockingDump]:
        mariadb = self.mode.mariadb
        try:
            with blocking_dump(
                self._endpoint, name, offset, mariadb=mariadb, timeout_s=TIMEOUT_S
            ) as dump:
                yield dump
        except BinlogError as error:
            raise _purged_meanwhile(error) from error.__cause__

    def _events(self, name: str, offset: int) -> Generator[tuple[str, _Event], None, None]:
        """Yield events one by one, with the names of their files. Raises BinlogError after `PROBE_EVENTS_MAX`."""
        file, checksum = "", True
        with self._dump(name, offset) as dump, closing(dump.events()) as events:
            for n, raw in enumerate(itertools.chain.from_iterable(events)):
                if n == PROBE_EVENTS_MAX:
                    what = f"{n} events from {name} on hold no transaction"
                    where = self._endpoint.label
                    raise BinlogError(ErrorKind.CONNECT_FAILED, what, where=where)
                header = EventHeader.read(raw)
                if header.type == EventType.FORMAT_DESCRIPTION:
                    checksum = parse_format_description(raw).checksum
                event = _Event(raw, checksum, header)
                if event.code == EventType.ROTATE and not event.header.log_pos:
                    self._require_server(header.server_id)
                    file, _ = rotate_target(raw)
                yield file, event

    def _require_server(self, server_id: int) -> None:
        """Raise CONNECTION_LOST if the dump and the facts come from different servers, because the address has led to
        two servers."""
        if server_id != self._server.server_id:
            what = f"the address leads to the server {server_id}, and led to {self._server.server_id} before"
            raise BinlogError(ErrorKind.CONNECTION_LOST, what, where=self._endpoint.label)


class _Event(NamedTuple):
    """`checksum`: True if the event ends in a checksum."""

    raw: bytes
    checksum: bool
    header: EventHeader

    @property
    def code(self) -> int:
        return self.header.type

    @property
    def body(self) -> bytes:
        return self.raw[HEADER_SIZE : len(self.raw) - CHECKSUM_SIZE * self.checksum]


def _unreadable(error: BinlogError) -> bool:
    """True if the server has the file, but found no valid event at the offset. After an error that is about the
    server's state, the dispatcher logs in again."""
    purged = error.kind is ErrorKind.CONNECTION_LOST  # see `_purged_meanwhile`
    if number_of(error) != FATAL_READING_LOG or purged:
        return False
    return not any(text in error.what.lower() for text in STATE_OF_SERVER)


def _purged_meanwhile(error: BinlogError) -> BinlogError:
    """Turn POSITION_PURGED into CONNECTION_LOST, so that the caller tries again: the server has purged the file after
    it listed the file, and the next attempt lists the files again."""
    if error.kind is not ErrorKind.POSITION_PURGED:
        return error
    return BinlogError(ErrorKind.CONNECTION_LOST, error.what, where=error.where)
