"""A folder of binlog files as a source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid5

from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.settings.model import FilesSettings
from dispatcher.source.files.dump_stream import FilesStream
from dispatcher.source.files.folder import File, FileHead, Folder
from dispatcher.source.files.gtid_skip import ExecutedFilter
from dispatcher.source.files.log_probe import FolderLog
from dispatcher.source.protocols import SchemaServer, ViewRequest
from dispatcher.source.start_search import files_of, find_starts


class FilesSource:
    """`server`: stands for the server uuid in positions, because files do not tell which server wrote them."""

    def __init__(self, path: Path, prefix: str | None, *, follow: bool, server: str) -> None:
        self.folder = Folder(path, prefix)
        self._follow = follow
        self._server = server
        self._lock = threading.Lock()  # the folder caches what it has read

    @property
    def label(self) -> str:
        return self.folder.label

    def open(self, dispatcher: int) -> OpenedFiles:  # noqa: ARG002 - any number of readers may share files
        """Raises BinlogError (FILES) for a folder that holds no log, or an incomplete one."""
        with self._lock:
            return OpenedFiles(self.folder, self._follow, self._server)

    def survey(self, request: ViewRequest) -> tuple[ServerView, int | None]:
        """The daemon does not know when somebody removes files, so there is no purge by age."""
        files = [*request.files, *(name for name, _ in request.places)]
        return self.open(0).view(ViewRequest(files, request.starts)), None

    def next_host(self, dispatcher: int) -> None:
        """Do nothing: there is one folder."""

    def server(self) -> SchemaServer:
        raise BinlogError(
            ErrorKind.METADATA_MISSING,
            "a folder of binlog files does not tell the columns of a table",
            where=self.label,
            remedy="SET PERSIST binlog_row_metadata=FULL on the server that writes the files, so that they tell it",
        )


def files_source(files: FilesSettings, installation: UUID) -> FilesSource:
    """Return the source that `files` declares.

    Files do not tell which server wrote them (most servers have the server id 1), so the folder stands for the server:
    positions without GTIDs are valid for this folder in this installation. A GTID means the same everywhere.
    """
    label = Folder(files.path, files.prefix).label
    return FilesSource(
        files.path, files.prefix, follow=files.follow, server=str(uuid5(installation, label))
    )


class OpenedFiles:
    """The files as they were at one moment."""

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
            elif file is not files[-1]:  # the newest one may have been created just now
                raise folder.fault(f"{file.name} is empty", "copy it again")
        self.mode = folder.mode(self._heads)
        self.tip = folder.tip(list(self._heads), self._heads)
        self._files = self._with_next(files)

    def _with_next(self, files: list[File]) -> list[tuple[str, int]]:
        """Return names and sizes, with the file that the newest one's ROTATE names even if it does not exist yet."""
        sizes = [(file.name, file.size) for file in files if file.name in self._heads]
        if self.tip.file not in self._heads:
            sizes.append((self.tip.file, self.tip.offset))
        return sizes

    def view(self, request: ViewRequest) -> ServerView:
        """`request.places` is ignored: the whole log is read anyway when a consumer begins there."""
        oldest = next(iter(self._heads.values())).previous_gtids
        purged = str(oldest or "") if self.mode is Mode.GTID else ""
        tip = self.tip
        end = make_executed(self.mode, str(tip.gtids), tip.file, tip.offset)
        log = FolderLog(self._folder, self._heads, self.mode, self._files, purged=purged, end=end)
        starts = find_starts(log, request.starts)
        names = {*request.files, *files_of(starts), tip.file}
        return ServerView(
            server=self._server,
            mode=self.mode,
            executed=str(tip.gtids),
            purged=purged,
            files=tuple(self._files),
            file=tip.file,
            offset=tip.offset,
            created={n: head.created for n, head in self._heads.items() if n in names},
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
        """Return the newest file that begins at or before `position`, as a server chooses it for a GTID set."""
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
