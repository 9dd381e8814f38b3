"""Indexes a delivered binlog: frames the events, verifies checksums and records offsets.

The index consists of arrays. The array `events` has a line for each rows event and each query except BEGIN and COMMIT.
The arrays `txns`, `versions` and `formats` have a line for each transaction, each distinct TABLE_MAP and each
FORMAT_DESCRIPTION. No row is read. No byte is copied, except that MariaDB's compressed events are decompressed first.
An unknown event without the ignorable flag is an error, because it may contain data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.decode.events import index_kernels as kernels
from dispatcher.binlog.event.header import (
    HEADER_SIZE,
    MAGIC,
    TYPE_AT,
    EventHeader,
    parse_format_description,
)
from dispatcher.binlog.event.mariadb_compressed import plain_log
from dispatcher.binlog.event.record import RECORD_VERSION, VERSION_AT
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.model.errors import BinlogError, ErrorKind


@dataclass(frozen=True, slots=True)
class Index:
    """The arrays of the index, with offsets in `buf`. `row_walk` defines the columns of `events`; `index_kernels`
    defines the columns of `txns` and `versions`. `formats`: offsets of FORMAT_DESCRIPTION events. `files`: the file
    names that `txns` refers to."""

    buf: U8
    events: I64
    txns: I64
    versions: I64
    formats: I64
    files: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes | memoryview) -> Index:
        """Index delivered bytes.

        Raises `BinlogError` with the offset: MALFORMED_EVENT, CHECKSUM_MISMATCH, UNSUPPORTED_EVENT.
        """
        if data[:4] != MAGIC:
            raise BinlogError(
                ErrorKind.MALFORMED_EVENT, f"not a binlog: it begins with {bytes(data[:4])!r}"
            )
        buf, counts = _framed(data)
        if counts[kernels.COMPRESSED]:  # decompress here, so that no later step sees such events
            buf, counts = _framed(plain_log(data))
        arrays = kernels.Arrays.for_counts(counts)
        code, at = kernels.index(buf, arrays)
        state = arrays.state
        formats = arrays.formats[: state[kernels.N_FORMATS]]
        for offset in formats.tolist():
            _check_format(buf, offset)
        if code != kernels.OK:
            raise _error(buf, code, at)
        names = arrays.files[: state[kernels.N_FILES]].tolist()
        return cls(
            buf,
            arrays.events[: state[kernels.N_EVENTS]],
            arrays.txns[: state[kernels.N_TXNS]],
            arrays.versions[: state[kernels.N_VERSIONS]],
            formats,
            tuple(_name(buf, at, size) for at, size in names),
        )

    def lower_case_table_names(self, txn: int) -> int:
        """Returns the setting of the server from which the transaction with this number comes."""
        return int(self.txns[txn, kernels.LOWER_CASE])


def _framed(data: bytes | memoryview) -> tuple[U8, I64]:
    """Return the bytes as an array, and the number of events by action. Raises `BinlogError` for a truncated event."""
    buf: U8 = np.frombuffer(data, dtype=np.uint8)
    # `buf` is always read-only, so that each kernel is compiled for one signature.
    buf.flags.writeable = False
    counts = np.zeros(kernels.ACTIONS_COUNT, dtype=np.int64)
    if (at := kernels.frame(buf, counts)) >= 0:
        raise _error(buf, kernels.CUT, at)
    return buf, counts


def _check_format(buf: U8, at: int) -> None:
    size = EventHeader.read(buf[at : at + HEADER_SIZE].tobytes()).size
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
    kind = int(buf[at + TYPE_AT])
    name = type_name(kind)
    if code == kernels.CHECKSUM:
        return BinlogError(ErrorKind.CHECKSUM_MISMATCH, name, where=where)
    if code == kernels.UNSUPPORTED:
        return BinlogError(ErrorKind.UNSUPPORTED_EVENT, name, where=where, remedy=_remedy(kind))
    if code == kernels.RECORD_DIFFERS:
        return BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"record of version {int(buf[at + VERSION_AT])}, this reader knows {RECORD_VERSION}",
            where=where,
            remedy="install the same version of binlog-dispatcher on both sides",
        )
    why = {
        kernels.NO_RECORD: "outside a transaction: no record precedes it",
        kernels.NO_MAP: "without a TABLE_MAP in its transaction",
    }.get(code, "is cut short, or no FORMAT_DESCRIPTION_EVENT precedes it")
    return BinlogError(ErrorKind.MALFORMED_EVENT, f"{name} {why}", where=where)


def _remedy(kind: int) -> str | None:
    if kind == EventType.TRANSACTION_PAYLOAD:
        return "read the log through a daemon, or SET PERSIST binlog_transaction_compression=OFF on the server"
    return None
