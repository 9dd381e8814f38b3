"""Encodes the answers to commands: OK, EOF, and result sets of the text protocol.

Source: page_protocol_basic_ok_packet, page_protocol_basic_eof_packet and page_protocol_com_query_response of MySQL's
source code documentation. The front uses neither session tracking nor multiple results.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from dispatcher.front.wire.packets import Capability, ServerStatus, lenenc_int, lenenc_text

Cell = str | bytes | int | None

_UTF8MB4, _BINARY = 45, 63  # collations: utf8mb4_general_ci, binary
_BINARY_FLAG, _UNSIGNED_FLAG = 128, 32
_NULL = b"\xfb"


class ColumnKind(Enum):
    """Type code (include/field_types.h), collation, longest value in bytes, flags of a column."""

    TEXT = (253, _UTF8MB4, 4 * 65535, 0)  # VAR_STRING
    BYTES = (253, _BINARY, 65535, _BINARY_FLAG)
    INTEGER = (8, _BINARY, 20, _BINARY_FLAG)  # LONGLONG
    UNSIGNED = (8, _BINARY, 20, _BINARY_FLAG | _UNSIGNED_FLAG)


class AnswerColumn(NamedTuple):
    """A column of a result set."""

    name: str
    kind: ColumnKind = ColumnKind.TEXT


def ok_packet(
    *, affected_rows: int = 0, status: ServerStatus = ServerStatus.AUTOCOMMIT, info: str = ""
) -> bytes:
    """The payload of an OK packet."""
    return b"\0" + _ok_fields(affected_rows, status) + info.encode()


def eof_packet(status: ServerStatus = ServerStatus.AUTOCOMMIT) -> bytes:
    """The payload of an EOF packet. A dump also ends with this packet if its client asked for a dump up to the end of
    the log."""
    return b"\xfe\0\0" + status.to_bytes(2, "little")


def text_result_set(
    columns: Sequence[AnswerColumn],
    rows: Sequence[Sequence[Cell]],
    capabilities: int,
    status: ServerStatus = ServerStatus.AUTOCOMMIT,
    *,
    begins: bool = True,
    ends: bool = True,
) -> list[bytes]:
    """The payloads of a result set, in order. Each row has a cell for each column; None is NULL. `capabilities`: the
    client's capabilities. `begins`, `ends`: False if other calls return the payloads before or after these rows."""
    short = bool(capabilities & Capability.DEPRECATE_EOF)
    payloads = []
    if begins:
        payloads += [lenenc_int(len(columns)), *map(_definition, columns)]
        if not short:
            payloads.append(eof_packet(status))
    payloads += [b"".join(map(_cell, row)) for row in rows]
    if ends:
        payloads.append(b"\xfe" + _ok_fields(0, status) if short else eof_packet(status))
    return payloads


def _ok_fields(affected_rows: int, status: ServerStatus) -> bytes:
    """Encode the fields of an OK packet: affected rows, last insert id, status, number of warnings."""
    return lenenc_int(affected_rows) + b"\0" + status.to_bytes(2, "little") + b"\0\0"


def _definition(column: AnswerColumn) -> bytes:
    code, collation, size, flags = column.kind.value
    name = lenenc_text(column.name.encode())
    # catalog, schema, table, original table; name, original name; 12 bytes of fixed length follow
    return b"".join(
        (
            b"\x03def\0\0\0",
            name,
            b"\0\x0c",
            collation.to_bytes(2, "little"),
            size.to_bytes(4, "little"),
            bytes((code,)),
            flags.to_bytes(2, "little"),
            b"\0\0\0",  # decimals, filler
        )
    )


def _cell(value: Cell) -> bytes:
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        return lenenc_text(value)
    return lenenc_text(str(value).encode())
