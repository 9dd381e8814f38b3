"""The file `<store>.newest`: the newest acknowledged position of each consumer, beside the state store.

SQLite ends its recovery at the first damaged frame of the write-ahead log, and does not notice that a log was removed.
In both cases the store opens with older positions and without an error. The same happens when a person restores a
backup. This file reveals the loss: `compare` returns the consumers whose stored position is older than the newest known
position.

* A record is written after its transaction is on disk, and before the acknowledgement is answered. So a record that is
  newer than the store shows that the store has lost a position. If a position goes back on purpose (a seek), the
  consumer's record is cleared before the transaction that stores this position.
* A record overwrites the consumer's former record with one small write per acknowledgement, without a sync. The record
  survives a kill of the process. After a loss of power the record may be older than the store; `compare` does not
  report such a record. `sync` is called with each checkpoint.
* If a record cannot be read, the consumer's newest position counts as unknown.

The file is text: the installation id of the store, then one line per consumer with the name as JSON, the epoch and the
seq in fixed width, and a checksum.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dispatcher.state.private import FILE_MODE

_HEADER = b"installation "
_UNKNOWN = "-"
_WIDTH = 20  # the width of the largest 64-bit number


@dataclass(frozen=True, slots=True, order=True)
class EpochSeq:
    """The fields of a position that order it among the positions of its consumer."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"seq {self.seq}, epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Loss:
    """A consumer whose newest acknowledged position is not in the store. `stored`: the position in the store, None if
    the store has none; `new_store`: True if the newest position was acknowledged in another store."""

    consumer: str
    newest: EpochSeq
    stored: EpochSeq | None
    new_store: bool

    def __str__(self) -> str:
        """Returns a text: what happened, and what this means for the reader."""
        if self.new_store:
            return (
                f"{self.newest} was acknowledged in another state store, which this one has replaced: the consumer"
                " begins at its start in a new epoch, unless its reader passes a position"
            )
        if self.stored is None:
            return (
                f"{self.newest} was acknowledged, and the state store has no position: its -wal was damaged or removed,"
                " or a backup was restored; the consumer fails instead of beginning at its start, which could skip rows"
            )
        return (
            f"{self.newest} was acknowledged, and the state store has {self.stored}: its -wal was damaged or removed,"
            " or a backup was restored; what lies between is delivered again, unless the reader passes a newer position"
        )


def log_losses(losses: Iterable[Loss], unreadable: int, log: Callable[..., object]) -> None:
    """Log the losses and the unreadable lines that a store has found at its opening. `log`: a function of a level, an
    event and fields."""
    if unreadable:
        error = f"{unreadable} lines of the file cannot be read, so lost positions may go unnoticed"
        log(logging.ERROR, "newest positions cannot be read", error=error)
    for loss in losses:
        log(
            logging.ERROR,
            "state store is older than what was acknowledged",
            consumer=loss.consumer,
            error=str(loss),
        )


class NewestPositions:
    """The open file with the newest positions. Every method may raise OSError."""

    def __init__(self, path: Path, installation: str) -> None:
        """`installation`: the id of the store that is open. `unreadable`: how many lines could not be read."""
        self._path = path
        self._header = b"%s%s\n" % (_HEADER, installation.encode())
        self._fd = -1
        self._dirty = False
        self._places: dict[str, tuple[int, bytes]] = {}  # offset of the line, name as JSON
        header, self.marks, self.unreadable = _read(path)
        self._of_other_store = header != self._header
        usable = not self._of_other_store and not self.unreadable
        if usable:
            self._open()

    def compare(self, stored: Mapping[str, EpochSeq | None]) -> tuple[Loss, ...]:
        """Return the consumers of the file whose stored position is older or missing, in the order of their names."""
        return tuple(
            Loss(name, newest, stored.get(name), self._of_other_store)
            for name, newest in sorted(self.marks.items())
            if newest is not None and ((mark := stored.get(name)) is None or mark < newest)
        )

    def clear_before(self, marks: Iterable[tuple[str, EpochSeq]]) -> None:
        """Clear the record of each consumer whose position goes back. Called before the transaction that stores these
        positions."""
        for name, mark in marks:
            known = self.marks.get(name)
            if known is not None and mark < known:
                self.clear(name)

    def clear(self, name: str) -> None:
        """Mark a consumer's record as unknown, and sync the file. Called before the transaction that deletes the
        consumer."""
        if self.marks.get(name) is not None:
            self._write(name, None)
            self.sync()

    def record(self, marks: Iterable[tuple[str, EpochSeq]]) -> bool:
        """Write the records of stored positions. Called after the transaction. Returns True if a consumer had no record
        before."""
        added = False
        for name, mark in marks:
            added |= self.marks.get(name) is None
            self._write(name, mark)
        return added

    def renew(self) -> None:
        """Write the file again if it was deleted."""
        if self._fd >= 0 and not _is_open_file(self._fd, self._path):
            self._rewrite()

    def sync(self) -> None:
        if self._dirty:
            os.fsync(self._fd)
            self._dirty = False

    def close(self) -> None:
        """May be called again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _write(self, name: str, mark: EpochSeq | None) -> None:
        if self._fd < 0:  # no file, a file of another store, or a file with unreadable lines
            if self._of_other_store:
                self.marks, self._of_other_store = {}, False
            self._rewrite()
        if name not in self._places:
            self._places[name] = (os.fstat(self._fd).st_size, json.dumps(name).encode())
        offset, prefix = self._places[name]
        line = _line(prefix, mark)
        self._dirty = True
        written = os.pwrite(self._fd, line, offset)
        if written < len(line):  # a full disk; a part of a line would make the next line unreadable
            if offset + written == os.fstat(self._fd).st_size:
                os.ftruncate(self._fd, offset)
                del self._places[name]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.marks[name] = mark

    def _rewrite(self) -> None:
        self.close()
        fresh = self._path.with_name(self._path.name + ".new")
        lines = [_line(json.dumps(name).encode(), mark) for name, mark in self.marks.items()]
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(b"".join((self._header, *lines)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._open()

    def _open(self) -> None:
        """Open the file for writing, and note where the line of each known name begins."""
        self._fd = os.open(self._path, os.O_RDWR)
        self._places, offset = {}, len(self._header)
        for name in self.marks:
            prefix = json.dumps(name).encode()
            self._places[name] = offset, prefix
            offset += len(_line(prefix, None))


def _line(prefix: bytes, mark: EpochSeq | None) -> bytes:
    epoch, seq = (_UNKNOWN, _UNKNOWN) if mark is None else (str(mark.epoch), str(mark.seq))
    body = b"%s %s %s" % (prefix, epoch.rjust(_WIDTH).encode(), seq.rjust(_WIDTH).encode())
    return b"%s %08x\n" % (body, zlib.crc32(body))


def _read(path: Path) -> tuple[bytes, dict[str, EpochSeq | None], int]:
    """Returns the first line, the records in the order of the file, and how many lines are unreadable."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return b"", {}, 0
    header = lines[0] if lines else b""
    marks: dict[str, EpochSeq | None] = {}
    for line in lines[1:]:
        with suppress(ValueError):  # counted below
            name, mark = _parse(line)
            marks[name] = mark
    unreadable = len(lines) - 1 - len(marks) if header.startswith(_HEADER) else len(lines) or 1
    return header, marks, unreadable


def _parse(line: bytes) -> tuple[str, EpochSeq | None]:
    """Raises ValueError."""
    body, _, checksum = line.rpartition(b" ")
    if not line.endswith(b"\n") or int(checksum, 16) != zlib.crc32(body):
        raise ValueError(line)
    numbers = body[-2 * _WIDTH - 1 :].split()
    name = json.loads(body[: -2 * _WIDTH - 2])
    if numbers == [_UNKNOWN.encode()] * 2:
        return name, None
    return name, EpochSeq(*map(int, numbers))


def _is_open_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
