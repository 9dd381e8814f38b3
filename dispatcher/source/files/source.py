"""A folder of binlog files as a source."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid5

from dispatcher.binlog.event.header import HEADER_SIZE, EventHeader
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Gtids,
    Mode,
    make_executed,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind, full_metadata
from dispatcher.model.gtid import GtidSet
from dispatcher.settings.model import FilesSettings
from dispatcher.source.files.dump_stream import FilesStream
from dispatcher.source.files.folder import FileHead, Folder, batches_of, open_regular
from dispatcher.source.files.gtid_skip import ExecutedFilter
from dispatcher.source.protocols import SchemaServer, ViewRequest
from dispatcher.source.start_search import (
    FIRST_OFFSET,
    FirstTransaction,
    files_of,
    find_starts,
    is_whole_event,
)
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter


class FilesSource:
    """`server`: takes the place of the server uuid in positions, because files do not contain the uuid of their
    server."""

    def __init__(self, path: Path, prefix: str | None, *, follow: bool, server: str) -> None:
        self.folder = Folder(path, prefix)
        self._follow = follow
        self._server = server
        self._lock = threading.Lock()  # protects the cache of `folder`

    @property
    def label(self) -> str:
        return self.folder.label

    def open(self, dispatcher: int) -> OpenedFiles:  # noqa: ARG002 - any number of readers may share files
        """Raises BinlogError (FILES) if the folder holds no log, or an incomplete log."""
        with self._lock:
            return OpenedFiles(self.folder, self._follow, self._server)

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        """The second value is None, because the daemon cannot know when a person or a program removes the files."""
        files = [*request.files, *(name for name, _ in request.places)]
        return self.open(0).view(ViewRequest(files, request.starts)), None

    @property
    def lower_case_table_names(self) -> int | None:
        return 0  # files do not show the setting

    def next_host(self, dispatcher: int) -> None:
        """Do nothing: there is only one folder."""

    def server(self) -> SchemaServer:
        raise BinlogError(
            ErrorKind.METADATA_MISSING,
            "a folder of binlog files does not contain the columns of tables",
            where=self.label,
            remedy=f"{full_metadata()}; the files that it writes later name the columns",
        )


def files_source(files: FilesSettings, installation: UUID) -> FilesSource:
    """Return the source that `files` declares.

    Files do not show which server wrote them (most servers have the server id 1), so the folder takes the place of the
    server: positions without GTIDs are valid only for this folder in this installation. A position with GTIDs is valid
    for every server and folder that contains these GTIDs.
    """
    label = Folder(files.path, files.prefix).label
    return FilesSource(
        files.path, files.prefix, follow=files.follow, server=str(uuid5(installation, label))
    )


class OpenedFiles:
    """The folder's files as they were at one moment. This is an `OpenedSource`, and the `SearchableLog` for the search
    of starts."""

    findings: Sequence[BinlogError] = ()

    def __init__(self, folder: Folder, follow: bool, server: str) -> None:
        self._folder = folder
        self._follow = follow
        self._server = server
        files = folder.files()
        folder.forget(files)
        self._heads: dict[str, FileHead] = {}
        for file in files:
            head = folder.head(file.name)
            if head is not None:
                self._heads[file.name] = head
            elif file is not files[-1]:  # the newest file may have been created just now
                raise folder.fault(f"{file.name} is empty", "copy it again")
        self.mode = folder.mode(self._heads)
        tip = folder.tip(list(self._heads), self._heads)
        self.executed = str(tip.gtids)
        self.end = make_executed(self.mode, self.executed, tip.file, tip.offset)
        oldest = next(iter(self._heads.values())).previous_gtids
        self.purged = str(oldest or "") if self.mode is Mode.GTID else ""
        self.files: Sequence[tuple[str, int]] = [
            (file.name, file.size) for file in files if file.name in self._heads
        ]

    def view(self, request: ViewRequest) -> ServerView:
        """Describe the files. `request.places` is ignored, because the stream checks each file when it reads it."""
        starts = find_starts(self, request.starts)
        names = {*request.files, *files_of(starts), self.end.file}
        files = tuple(self.files)
        if (
            self.end.file not in self._heads
        ):  # the newest file's ROTATE names a file that does not exist yet
            files += ((self.end.file, self.end.offset),)
        return ServerView(
            server=self._server,
            mode=self.mode,
            executed=self.executed,
            purged=self.purged,
            files=files,
            file=self.end.file,
            offset=self.end.offset,
            created={name: head.created for name, head in self._heads.items() if name in names},
            knows_tables=False,
            starts=starts,
        )

    def dump(
        self, mode: Mode, position: ExecutedPosition, routes: Routes, buffer_bytes: int
    ) -> FilesStream:
        splitter = Splitter(routes, packets=False, checksum=False, buffer_bytes=buffer_bytes)
        file, offset, executed = position.file, position.offset, None
        if mode is Mode.GTID:
            file, offset, executed = self._first_file(position)
        return FilesStream(
            self._folder, splitter, mode, file, offset, executed, follow=self._follow
        )

    def _first_file(self, position: ExecutedPosition) -> tuple[str, int, ExecutedFilter]:
        """Return the newest file that begins at or before `position`, its first offset, and the filter that leaves out
        the executed transactions. A server would begin a dump by GTIDs with this file, too. Raises BinlogError
        (POSITION_PURGED)."""
        assert isinstance(position.gtids, GtidSet)
        for name, head in reversed(self._heads.items()):
            previous = head.previous_gtids
            if isinstance(previous, GtidSet) and position.gtids.contains(previous):
                count = len(position.gtids) - len(previous)
                return name, head.start, ExecutedFilter(position, count)
        raise BinlogError(
            ErrorKind.POSITION_PURGED,
            f"no file begins at or before {str(position.gtids)[:200] or 'the first transaction'}",
            where=self._folder.label,
        )

    def close(self) -> None:
        """Do nothing: no file is open."""

    # -- a `SearchableLog` -----------------------------------------------------------------------------------

    def previous_gtids(self, name: str) -> Gtids | None:
        return self._heads[name].previous_gtids

    def first(self, name: str) -> FirstTransaction | None:
        for batch in self.batches(name):
            if len(batch.tx.end):
                begins = self._heads[batch.file].first_offset
                return FirstTransaction(batch.file, begins, int(batch.tx.commit_us[0]))
        return None

    def batches(self, name: str) -> Generator[Batch, None, None]:
        names = [file for file, _ in self.files]
        for file in names[names.index(name) :]:
            with self._reading(file):
                yield from batches_of(self._folder.path / file, self._heads[file], FIRST_OFFSET)

    def type_at(self, name: str, offset: int) -> int | None:
        with self._reading(name), open_regular(self._folder.path / name) as file:
            file.seek(offset)
            event = file.read(HEADER_SIZE)
            if len(event) < HEADER_SIZE:
                return None
            header = EventHeader.read(event)
            if header.size < HEADER_SIZE or header.log_pos not in (
                0,
                (offset + header.size) & 0xFFFF_FFFF,
            ):
                return None
            event += file.read(header.size - len(event))
        checksum = self._heads[name].format.checksum
        whole = len(event) == header.size and is_whole_event(event, offset, checksum=checksum)
        return header.type if whole else None

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._folder.read_error(error, name) from error
