"""A folder of binlog files: which files it contains, how each file begins, and where the log ends.

The files of one log are `prefix.000001`, `prefix.000002` ... without a gap. The module does not need the server's index
file, which copies of a log seldom contain. A relay log in the same folder, and the numbered files of InnoDB and Aria,
are recognised by their first bytes.

A file's *head* is everything before its first transaction: FORMAT_DESCRIPTION, the GTIDs of the files before it
(PREVIOUS_GTIDS, MariaDB's GTID_LIST), and whether the rest is encrypted. The heads are sufficient to find the mode of
the log, and the file in which a dump from a GTID set begins. So only the newest file is scanned whole, and later scans
of this file read only the bytes that were added.

Symbolic links in the folder are refused, wherever they lead: a user who may write to the folder could otherwise make
the daemon read any file of the machine. For the same reason no message shows bytes of a file that is not a binlog.

All functions here block. Sources: MySQL source, sql/binlog.cc (generate_new_name, MYSQL_BIN_LOG::open_binlog),
sql/log_event.h (LOG_EVENT_RELAY_LOG_F); MariaDB sql/log.cc.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from dispatcher.binlog.event import header
from dispatcher.binlog.event.gtid import parse_previous
from dispatcher.binlog.event.header import FormatDescription
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.values.executed_position import BatchGtids, Gtids, Mode
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import file_number
from dispatcher.source.start_search import NOT_NUMBERED, NUMBERED
from dispatcher.stream.batch import OPEN, Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter

CHUNK_BYTES = 1 << 20
_ENCRYPTED = b"\xfdbin"  # MySQL's binlog_encryption: this magic, then an encryption header
_RELAY_LOG_F = 0x40  # this flag of the first FORMAT_DESCRIPTION marks a relay log
_FORMAT_BYTES_MAX = 4096
# Six digits, or more without leading zeros: `aria_log.00000001` is not a binlog.
_NAME = re.compile(r"(?P<prefix>[^.].*)\.(?P<number>\d{6}|[1-9]\d{6,})\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the log. `size`: in bytes, when the folder was listed."""

    name: str
    size: int
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class FileHead:
    """What a file holds before its first transaction.

    `format`: the FORMAT_DESCRIPTION with the flag "in use" cleared, as a server sends it. `previous_gtids`: the GTIDs
    of the files before this one, None if the file does not contain them. `first`: how the first transaction is
    numbered, "" if there is no transaction yet. `first_offset`: where the first transaction begins.
    """

    format: FormatDescription
    start: int  # offset after the FORMAT_DESCRIPTION
    previous_gtids: Gtids | None
    first: str  # "gtid", "anonymous", ""
    first_offset: int

    @property
    def created(self) -> int:
        return self.format.created


@dataclass(frozen=True, slots=True)
class Tip:
    """The end of a scan: the place after the last complete transaction, and the GTIDs that are executed at this place.

    `open`: `gtids`, with the GTID of the incomplete transaction if the scan ends inside a transaction.
    """

    file: str
    offset: int
    gtids: Gtids
    open: Gtids


class Folder:
    """The files `prefix.NNNNNN` of one folder. `prefix`: None if the folder holds only one log."""

    def __init__(self, path: Path, prefix: str | None) -> None:
        self.path = path
        self.label = f"files:{path}" if prefix is None else f"files:{path / prefix}"
        self._prefix = prefix
        self._heads: dict[str, tuple[bytes, FileHead]] = {}
        # The newest scanned file, its head, and the end of its scan.
        self._scanned: tuple[str, FileHead, Tip] | None = None

    # -- which files -----------------------------------------------------------------------------------------

    def files(self) -> list[File]:
        """Return the files, oldest first. Raises BinlogError (FILES) unless they are exactly one log without a gap."""
        files = self._list()
        if _gap(files):
            files = self._list()  # the server may have purged files while the folder was read
        if missing := _gap(files):
            raise self.fault(
                f"{missing} is missing between {files[0].name} and {files[-1].name}",
                "copy the missing files too, or remove the files before the gap",
            )
        return files

    def _list(self) -> list[File]:
        by_prefix: dict[str, list[File]] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if match := _NAME.match(entry.name):
                        _add(by_prefix.setdefault(match["prefix"], []), entry)
        except OSError as error:
            raise self.read_error(error, "") from error
        logs = {prefix: sorted(files, key=_number) for prefix, files in by_prefix.items() if files}
        if self._prefix is not None:
            logs = {p: files for p, files in logs.items() if p == self._prefix}
        elif len(logs) > 1:
            logs = {p: files for p, files in logs.items() if self._is_binlog(files)}
        if len(logs) > 1:
            names = ", ".join(sorted(logs))
            raise self.fault(f"it holds several logs: {names}", "set files.prefix to one of them")
        if not logs:
            name = f"{self._prefix or 'binlog'}.000001"
            raise self.fault(
                f"it holds no binlog files, named like {name}",
                "compare files.path and files.prefix",
            )
        (files,) = logs.values()
        if link := next((file.name for file in files if file.is_link), None):
            raise self._link(link)
        return files

    def _is_binlog(self, files: list[File]) -> bool:
        """True if the files are a server's binlog, rather than a relay log or other numbered files."""
        if files[0].is_link:
            return False
        try:
            with open_regular(self.path / files[0].name) as file:
                start = file.read(4 + header.HEADER_SIZE)
        except FileNotFoundError:  # purged meanwhile
            return False
        except OSError as error:
            raise self.read_error(error, files[0].name) from error
        flags = int.from_bytes(start[21:23], "little")
        return start[:4] == _ENCRYPTED or (start[:4] == header.MAGIC and not flags & _RELAY_LOG_F)

    # -- how they begin --------------------------------------------------------------------------------------

    def head(self, name: str) -> FileHead | None:
        """Return a file's head, None while the server writes it. Raises BinlogError (FILES) if the file is not a
        binlog."""
        try:
            with open_regular(self.path / name) as file:
                # If these bytes (creation time, server id, sizes) are unchanged, the rest of the head is unchanged,
                # too.
                start = _not_in_use(os.pread(file.fileno(), 4 + header.HEADER_SIZE, 0), 4)
                cached = self._heads.get(name)
                if cached and cached[0] == start:
                    return cached[1]
                head = self._read_head(name, file.fileno())
        except OSError as error:
            raise self.read_error(error, name) from error
        if head is not None and head.first:
            self._heads[name] = start, head
        return head

    def forget(self, files: list[File]) -> None:
        """Drop the cached heads of all files but `files`."""
        names = {file.name for file in files}
        self._heads = {name: head for name, head in self._heads.items() if name in names}

    def in_use(self, name: str) -> bool:
        """True if a server has the file open or has never closed it, or if the file is a copy of such a file."""
        try:
            with open_regular(self.path / name) as file:
                flags = os.pread(file.fileno(), 2, 4 + 17)
        except OSError as error:
            raise self.read_error(error, name) from error
        return bool(int.from_bytes(flags, "little") & header.FLAG_IN_USE)

    def _read_head(self, name: str, fd: int) -> FileHead | None:
        start = os.pread(fd, 4 + _FORMAT_BYTES_MAX, 0)
        if start[:4] == _ENCRYPTED:
            raise self._encrypted(name)
        if start[:4] != header.MAGIC[: len(start)]:
            raise self.fault(
                f"{name} is not a binlog: its first bytes are of another kind of file",
                "remove it from the folder",
            )
        size = int.from_bytes(start[13:17], "little")
        if len(start) < 4 + header.HEADER_SIZE or len(start) < 4 + size <= 4 + _FORMAT_BYTES_MAX:
            return None
        raw = start[4 : 4 + size]
        if not header.HEADER_SIZE <= size == len(raw) or raw[4] != EventType.FORMAT_DESCRIPTION:
            raise self.fault(
                f"{name} does not begin with a FORMAT_DESCRIPTION_EVENT",
                "logs of MySQL 5.0 and later are read",
            )
        if int.from_bytes(raw[17:19], "little") & _RELAY_LOG_F:
            raise self.fault(
                f"{name} is a relay log", "set files.prefix to the prefix of the binlog"
            )
        try:
            format_ = header.parse_format_description(_not_in_use(raw, 0))
        except BinlogError as error:
            raise self._damaged(name, 4, error) from None
        return self._rest_of_head(name, fd, format_, 4 + size)

    def _rest_of_head(self, name: str, fd: int, format_: FormatDescription, start: int) -> FileHead:
        previous: Gtids | None = None
        at, end = start, os.fstat(fd).st_size
        while len(raw := os.pread(fd, header.HEADER_SIZE, at)) == header.HEADER_SIZE:
            code, size = raw[4], int.from_bytes(raw[9:13], "little")
            if code in NUMBERED or code in NOT_NUMBERED:
                first = "gtid" if code in NUMBERED else "anonymous"
                return FileHead(format_, start, previous, first, at)
            if code == EventType.MARIADB_START_ENCRYPTION:
                raise self._encrypted(name)
            if size < header.HEADER_SIZE or at + size > end:
                break
            if code in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
                event = os.pread(fd, size - header.CHECKSUM_SIZE * format_.checksum, at)
                try:
                    previous = parse_previous(code, event[header.HEADER_SIZE :])
                except BinlogError as error:
                    raise self._damaged(name, at, error) from None
            at += size
        return FileHead(format_, start, previous, "", at)

    # -- where the log ends ----------------------------------------------------------------------------------

    def mode(self, heads: dict[str, FileHead]) -> Mode:
        """Return how the transactions of these files are numbered. Raises BinlogError (FILES) if the files contain no
        transaction yet."""
        newest = next(reversed(heads.values()), None)
        if newest is not None and newest.format.mariadb:
            return Mode.MARIADB
        begun = [head for head in heads.values() if head.first]
        if not begun:
            raise self.fault(
                "there is no transaction in the files yet, so it is unknown whether they have GTIDs",
                "nothing to do if the server is about to write some",
            )
        numbered = all(head.first == "gtid" and head.previous_gtids is not None for head in begun)
        return Mode.GTID if numbered else Mode.FILE

    def tip(self, names: list[str], heads: dict[str, FileHead]) -> Tip:
        """Returns the end of the log, or the place of the first damage. A consumer that reaches this place fails with
        the error that describes the damage."""
        first = len(names) - 1
        while first > 0 and (head := heads[names[first]]).previous_gtids is None and not head.first:
            first -= 1
        tip: Tip | None = None
        for name in names[first:]:
            tip = self._scan_newest(name, heads[name], tip)
        assert tip is not None, "a log without files"
        return tip

    def _scan_newest(self, name: str, head: FileHead, before: Tip | None) -> Tip:
        """Scan a file, from where its previous scan ended. `before`: the end of the previous file, if that file was
        scanned."""
        cached: Tip | None = None
        if self._scanned and self._scanned[:2] == (name, head):
            cached = self._scanned[2]
        try:
            if cached and cached.file != name:
                return cached  # the file ends in a ROTATE, so the file does not grow
            if cached and cached.offset <= (self.path / name).stat().st_size:
                tip = self.scan(name, head, cached.offset, cached.gtids)
            else:
                known = (
                    before.gtids if head.previous_gtids is None and before else head.previous_gtids
                )
                tip = self.scan(name, head, head.start, no_gtids(head) if known is None else known)
        except OSError as error:
            raise self.read_error(error, name) from error
        self._scanned = name, head, tip
        return tip

    def scan(self, name: str, head: FileHead, offset: int, gtids: Gtids) -> Tip:
        """Read a file from an offset between two transactions to its end, or up to damage."""
        file = name
        open_ = gtids
        for batch in _readable(batches_of(self.path / name, head, offset)):
            steps = BatchGtids.of(batch)
            if steps.ended.any():
                gtids = steps.after(gtids, len(steps.source))
            open_ = gtids
            in_transaction = len(batch.tx.flags) and bool(batch.tx.flags[-1] & OPEN)
            if not in_transaction:
                file, offset = batch.file, batch.offset
            else:
                if steps.ended.any():
                    file, offset = batch.file, int(steps.end[steps.ended][-1])
                if steps.source[-1] >= 0:
                    open_ = gtids.add(steps.sources[steps.source[-1]], int(steps.gno[-1]))
        return Tip(file, offset, gtids, open_)

    # -- errors --------------------------------------------------------------------------------------------

    def fault(self, what: str, remedy: str | None = None) -> BinlogError:
        return BinlogError(ErrorKind.FILES, what, where=self.label, remedy=remedy)

    def read_error(self, error: OSError, name: str) -> BinlogError:
        """Return the error for an OSError of a file, or of the folder if `name` is ""."""
        if name and error.errno == errno.ELOOP:
            return self._link(name)
        what = f"{name or 'the folder'} cannot be read: {error.strerror or error}"
        return self.fault(
            what, "set files.path to a folder that the daemon's user may read, with its files"
        )

    def _link(self, name: str) -> BinlogError:
        return self.fault(
            f"{name} is a symbolic link, and links are not followed",
            "put the file itself into the folder, or set files.path to the folder that holds it",
        )

    def _damaged(self, name: str, at: int, error: BinlogError) -> BinlogError:
        return self.fault(f"{name} is damaged at {at}: {error.kind}: {error.what}", "copy it again")

    def _encrypted(self, name: str) -> BinlogError:
        return self.fault(
            f"{name} is encrypted", "read the log through the server, which decrypts it: mysql:"
        )


def preamble(name: str, head: FileHead, offset: int, *, checksum: bool) -> bytes:
    """Return what a server sends before a file's events: a ROTATE with the file and offset, and FORMAT_DESCRIPTION.

    `checksum`: True if the events before the ROTATE end in a checksum. In a dump from the middle of a file, the
    FORMAT_DESCRIPTION has `log_pos` 0.
    """
    body = offset.to_bytes(8, "little") + name.encode()
    size = header.HEADER_SIZE + len(body) + header.CHECKSUM_SIZE * checksum
    rotate = header.HEADER.pack(0, EventType.ROTATE, 0, size, 0, header.FLAG_ARTIFICIAL) + body
    if checksum:
        rotate += zlib.crc32(rotate).to_bytes(4, "little")
    raw = head.format.raw
    if offset > head.start:
        raw = raw[:13] + bytes(4) + raw[17:]
        # Since MySQL 5.6.1 the event ends in the checksum algorithm and a checksum, even if the algorithm is "none".
        if len(raw) == header.HEADER_SIZE + 57 + len(head.format.post_headers) + 5:
            raw = raw[:-4] + zlib.crc32(raw[:-4]).to_bytes(4, "little")
    return rotate + raw


def no_gtids(head: FileHead) -> Gtids:
    return MariadbGtids() if head.format.mariadb else GtidSet()


def next_name(name: str) -> str:
    """`binlog.000009` -> `binlog.000010`."""
    return f"{name.rpartition('.')[0]}.{file_number(name) + 1:06}"


def open_descriptor(path: Path) -> int:
    """Open a file of the folder for reading, and return its descriptor. Raises OSError: ELOOP for a symbolic link,
    EINVAL for anything else that is not a regular file (opening a FIFO would block)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def open_regular(path: Path) -> BinaryIO:
    """Open a file of the folder, unbuffered; see `open_descriptor`."""
    return os.fdopen(open_descriptor(path), "rb", buffering=0)


def batches_of(path: Path, head: FileHead, offset: int) -> Iterator[Batch]:
    """Yield a file's batches, beginning at `offset`, which must lie between two transactions. The batches have their
    own routes, not those of a client.

    Each batch is valid until the caller asks for the next one. Raises BinlogError where the file is damaged, OSError
    where it cannot be read.
    """
    splitter = Splitter(Routes(), packets=False, checksum=False, buffer_bytes=CHUNK_BYTES)
    splitter.prepared = None
    at = max(offset, head.start)
    start = preamble(path.name, head, at, checksum=False)
    splitter.room()[: len(start)] = start
    splitter.wrote(len(start))
    with open_regular(path) as file:
        while True:
            size = 1
            if not splitter.full:
                size = os.preadv(file.fileno(), [splitter.room()[:CHUNK_BYTES]], at)
                splitter.wrote(size)
                at += size
            yield from (batch for batch in splitter.split() if isinstance(batch, Batch))
            splitter.compact()
            if not size:
                return


def _readable(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches before the first damage."""
    try:
        yield from batches
    except BinlogError:
        return


def _not_in_use(raw: bytes, at: int) -> bytes:
    """Return the bytes with the flag "in use" of the event at offset `at` cleared."""
    flags = int.from_bytes(raw[at + 17 : at + 19], "little") & ~header.FLAG_IN_USE
    return raw[: at + 17] + flags.to_bytes(2, "little") + raw[at + 19 :]


def _add(files: list[File], entry: os.DirEntry[str]) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # purged meanwhile
        return
    is_link = stat.S_ISLNK(status.st_mode)
    if stat.S_ISREG(status.st_mode) or is_link:
        files.append(File(entry.name, status.st_size, is_link))


def _number(file: File) -> int:
    return file_number(file.name)


def _gap(files: list[File]) -> str:
    """Return the name of the first missing file, "" if there is none."""
    for file, following in pairwise(files):
        if _number(following) != _number(file) + 1:
            return next_name(file.name)
    return ""
