"""A folder of binlog files as the log in which starts are looked for."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence

from dispatcher.binlog.event import header
from dispatcher.binlog.stream.batch import Batch
from dispatcher.dispatch.executed_position import ExecutedPosition, Gtids, Mode
from dispatcher.source.files.folder import FileHead, Folder, batches_of, open_regular
from dispatcher.source.start_search import First


class FolderLog:
    """The files as of one look into the folder; a `starts.Log`. Blocks, raises BinlogError."""

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

    def held(self, name: str) -> Gtids | None:
        return self._heads[name].held

    def first(self, name: str) -> First | None:
        for batch in self.batches(name):
            if len(batch.tx.end):
                return First(batch.file, self._begins(batch.file), int(batch.tx.commit_us[0]))
        return None

    def _begins(self, name: str) -> int:
        """Where the first transaction of a file does."""
        return self._heads[name].first_offset

    def batches(self, name: str) -> Generator[Batch, None, None]:
        names = [one for one, _ in self.files]
        for one in names[names.index(name) :]:
            try:
                yield from batches_of(self._folder.path / one, self._heads[one], 4)
            except OSError as error:
                raise self._folder.cannot(error, one) from error

    def type_at(self, name: str, offset: int) -> int | None:
        try:
            with open_regular(self._folder.path / name) as file:
                file.seek(offset)
                start = file.read(header.HEADER_SIZE)
                size = int.from_bytes(start[9:13], "little")
                log_pos = int.from_bytes(start[13:17], "little")
                if len(start) < header.HEADER_SIZE or log_pos != (offset + size) & 0xFFFF_FFFF:
                    return None
                event = start + file.read(size - len(start))
        except OSError as error:
            raise self._folder.cannot(error, name) from error
        if len(event) < size or size < header.HEADER_SIZE:
            return None
        if self._heads[name].format.checksum:
            said = int.from_bytes(event[-header.CHECKSUM_SIZE :], "little")
            if zlib.crc32(event[: -header.CHECKSUM_SIZE]) != said:
                return None
        return event[4]
