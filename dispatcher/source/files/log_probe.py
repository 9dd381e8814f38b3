"""A folder of binlog files as the log in which starts are searched for."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dispatcher.binlog.event import header
from dispatcher.binlog.stream.batch import Batch
from dispatcher.dispatch.executed_position import ExecutedPosition, Gtids, Mode
from dispatcher.source.files.folder import FileHead, Folder, batches_of, open_regular
from dispatcher.source.start_search import FIRST_OFFSET, FirstTransaction, is_whole_event


class FolderLog:
    """The files as of one listing of the folder; a `SearchableLog`. Blocks, raises BinlogError."""

    def __init__(
        self,
        folder: Folder,
        heads: Mapping[str, FileHead],
        mode: Mode,
        files: Sequence[tuple[str, int]],
        *,
        purged: str,
        end: ExecutedPosition,
    ) -> None:
        self.mode = mode
        self.files: Sequence[tuple[str, int]] = [
            (name, size) for name, size in files if name in heads
        ]
        self.purged = purged
        self.end = end
        self._folder = folder
        self._heads = heads

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
            event = file.read(header.HEADER_SIZE)
            size = int.from_bytes(event[9:13], "little")
            log_pos = int.from_bytes(event[13:17], "little")
            if size < header.HEADER_SIZE or log_pos != (offset + size) & 0xFFFF_FFFF:
                return None
            event += file.read(size - len(event))
        checksum = self._heads[name].format.checksum
        whole = len(event) == size and is_whole_event(event, offset, checksum=checksum)
        return event[4] if whole else None

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._folder.read_error(error, name) from error
