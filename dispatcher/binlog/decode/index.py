"""One pass over delivered binlog bytes: framing, checksums, and where everything is.

The result is arrays, a line per event that matters here (rows events, and queries other than BEGIN and COMMIT), per
transaction, per distinct TABLE_MAP and per FORMAT_DESCRIPTION. Nothing is copied, unless MariaDB compressed events:
then all are made plain first. No row is read. An event that could carry data and is not understood is an error, never
skipped (an unknown one with the ignorable flag may be).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.decode import index_kernels as kernels
from dispatcher.binlog.event.header import MAGIC, parse_format_description
from dispatcher.binlog.event.mariadb_compressed import plain_log
from dispatcher.binlog.event.record import RECORD_VERSION
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.model.errors import BinlogError, ErrorKind


@dataclass(frozen=True, slots=True)
class Index:
    """Where everything is in `buf`. Columns of `events` stand in `rows`, those of `txns` and `versions` in
    `index_kernels`; `formats`: offsets; `files`: names that `txns` refers to."""

    buf: U8
    events: I64
    txns: I64
    versions: I64
    formats: I64
    files: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes) -> Index:
        """Raises `BinlogError` with the offset: MALFORMED_EVENT, CHECKSUM_MISMATCH, UNSUPPORTED_EVENT."""
        if data[:4] != MAGIC:
            raise BinlogError(
                ErrorKind.MALFORMED_EVENT, f"not a binlog: it begins with {bytes(data[:4])!r}"
            )
        buf, counts = _framed(data)
        if counts[kernels.COMPRESSED]:  # so that nobody behind knows of them
            buf, counts = _framed(plain_log(data))
        arrays = kernels.Arrays.for_counts(counts)
        code, at = kernels.index(buf, arrays)
        used = arrays.state
        formats = arrays.formats[: used[kernels.N_FORMATS]]
        for offset in formats.tolist():
            _check_format(buf, offset)
        if code != kernels.OK:
            raise _error(buf, code, at)
        names = arrays.files[: used[kernels.N_FILES]].tolist()
        return cls(
            buf,
            arrays.events[: used[kernels.N_EVENTS]],
            arrays.txns[: used[kernels.N_TXNS]],
            arrays.versions[: used[kernels.N_VERSIONS]],
            formats,
            tuple(_name(buf, at, size) for at, size in names),
        )


def _framed(data: bytes) -> tuple[U8, I64]:
    """The bytes as an array, and how many events of each action there are."""
    buf: U8 = np.frombuffer(data, dtype=np.uint8)
    buf.flags.writeable = False  # one kind of array, so that each kernel has one signature
    counts = np.zeros(kernels.ACTIONS_COUNT, dtype=np.int64)
    if (at := kernels.frame(buf, counts)) >= 0:
        raise _error(buf, kernels.CUT, at)
    return buf, counts


def _check_format(buf: U8, at: int) -> None:
    size = int.from_bytes(buf[at + 9 : at + 13].tobytes(), "little")
    try:
        parse_format_description(buf[at : at + size].tobytes())
    except BinlogError as error:
        raise error.at(f"offset {at}") from None


def _name(buf: U8, at: int, size: int) -> str:
    try:
        return buf[at : at + size].tobytes().decode()
    except UnicodeDecodeError:
        why = "record with a file name that is not UTF-8"
        raise BinlogError(ErrorKind.MALFORMED_EVENT, why, where=f"offset {at}") from None


def _error(buf: U8, code: int, at: int) -> BinlogError:
    where = f"offset {at}"
    if code == kernels.CUT:
        why = "an event reaches past the end or is shorter than its header"
        return BinlogError(ErrorKind.MALFORMED_EVENT, why, where=where)
    kind = int(buf[at + 4])
    name = type_name(kind)
    if code == kernels.CHECKSUM:
        return BinlogError(ErrorKind.CHECKSUM_MISMATCH, name, where=where)
    if code == kernels.UNSUPPORTED:
        return BinlogError(ErrorKind.UNSUPPORTED_EVENT, name, where=where, remedy=_remedy(kind))
    if code == kernels.RECORD_DIFFERS:
        return BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"record of version {int(buf[at + 21])}, this reader knows {RECORD_VERSION}",
            where=where,
            remedy="install the same version of binlog-dispatcher on both sides",
        )
    why = {
        kernels.NO_RECORD: "outside a transaction: no record stands before it",
        kernels.NO_MAP: "without a TABLE_MAP in its transaction",
    }.get(code, "is cut short, or no FORMAT_DESCRIPTION_EVENT stands before it")
    return BinlogError(ErrorKind.MALFORMED_EVENT, f"{name} {why}", where=where)


def _remedy(kind: int) -> str | None:
    if kind == EventType.TRANSACTION_PAYLOAD:
        return "read the log through a daemon, or SET PERSIST binlog_transaction_compression=OFF on the server"
    return None
