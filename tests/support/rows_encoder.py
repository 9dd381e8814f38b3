"""Encoders for everything that the decoders read: TABLE_MAP and rows events, cells, and delivered binlogs of these
events.

The encoders are based on the format's description, not on the decoders. They are plain Python code that encodes one
cell at a time.
"""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.table_map.column_types import (
    CHARACTER_TYPES,
    DIGIT_BYTES,
    SIGNED_TYPES,
    Type,
)
from tests.support import jsonb_encoder

SERVER = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


@dataclass(frozen=True)
class Spec:
    """A column to encode: its type code, its metadata bytes in the event, and its optional metadata."""

    name: str
    type: int
    meta: bytes = b""
    unsigned: bool = False
    charset: int = 0
    labels: tuple[str, ...] = ()
    nullable: bool = True
    declared: str = ""
    geometry: int = 0
    dimensions: int = 0
    visible: bool = True


def packed(n: int) -> bytes:
    if n < 251:
        return bytes((n,))
    if n < 1 << 16:
        return b"\xfc" + n.to_bytes(2, "little")
    if n < 1 << 24:
        return b"\xfd" + n.to_bytes(3, "little")
    return b"\xfe" + n.to_bytes(8, "little")


def msb_bits(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        if bit:
            out[i // 8] |= 0x80 >> (i % 8)
    return bytes(out)


def lsb_bits(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        if bit:
            out[i // 8] |= 1 << (i % 8)
    return bytes(out)


def optional(code: int, value: bytes) -> bytes:
    return bytes((code,)) + packed(len(value)) + value


def table_map(  # noqa: C901 - one branch per optional field
    columns: Sequence[Spec],
    *,
    database: str = "shop",
    table: str = "orders",
    table_id: int = 77,
    key: Sequence[int] = (0,),
    full: bool = True,
    extra: bytes = b"",
) -> bytes:
    """Returns the body of a TABLE_MAP event. `full=False` omits all optional fields; `extra`: bytes that are appended
    to the optional fields."""
    meta = b"".join(column.meta for column in columns)
    out = table_id.to_bytes(6, "little") + b"\1\0"
    for name in (database, table):
        out += bytes((len(name.encode()),)) + name.encode() + b"\0"
    out += packed(len(columns)) + bytes(
        column.type if column.type not in (247, 248) else 254 for column in columns
    )
    out += packed(len(meta)) + meta + lsb_bits([column.nullable for column in columns])
    if full:
        numeric = [column.unsigned for column in columns if column.type in SIGNED_TYPES]
        if numeric:
            out += optional(1, msb_bits(numeric))
        texts = [column.charset for column in columns if column.type in CHARACTER_TYPES]
        if texts:
            out += optional(3, b"".join(map(packed, texts)))
        out += optional(
            4, b"".join(packed(len(c.name.encode())) + c.name.encode() for c in columns)
        )
        for code, kind in ((5, 248), (6, 247)):
            of_kind = [column for column in columns if column.type == kind]
            if of_kind:
                out += optional(code, b"".join(map(_labels, of_kind)))
        geometries = [column.geometry for column in columns if column.type == 255]
        if geometries:
            out += optional(7, b"".join(map(packed, geometries)))
        enums = [column.charset for column in columns if column.type in (247, 248)]
        if enums:
            out += optional(11, b"".join(map(packed, enums)))
        if key:
            out += optional(8, b"".join(map(packed, key)))
        if not all(column.visible for column in columns):
            out += optional(12, msb_bits([column.visible for column in columns]))
        dimensions = [column.dimensions for column in columns if column.type == 242]
        if dimensions:
            out += optional(13, b"".join(map(packed, dimensions)))
        if any(column.declared for column in columns):
            declared = [column.declared.encode() for column in columns]
            out += optional(0xBD, b"".join(bytes((len(name),)) + name for name in declared))
    return out + extra


def _labels(column: Spec) -> bytes:
    raw = [label.encode(_encoding(column)) for label in column.labels]
    return packed(len(raw)) + b"".join(packed(len(label)) + label for label in raw)


# -- cells ----------------------------------------------------------------------------------------------------


def decimal(value: Decimal, precision: int, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    text = str(number).rjust(precision, "0")
    whole, part = text[: precision - scale], text[precision - scale :]
    out = b""
    head = len(whole) % 9
    groups = ([whole[:head]] if head else []) + [
        whole[i : i + 9] for i in range(head, len(whole), 9)
    ]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    for group in groups:
        out += int(group).to_bytes(DIGIT_BYTES[len(group)], "big")
    if sign and number:
        out = bytes(byte ^ 0xFF for byte in out)
    return bytes((out[0] ^ 0x80,)) + out[1:]


def fraction(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    return (micros // 10 ** (6 - 2 * size)).to_bytes(size, "big") if size else b""


def datetime2(value: dt.datetime, digits: int) -> bytes:
    return datetime2_parts(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        digits,
    )


def datetime2_parts(
    y: int, mo: int, d: int, h: int, mi: int, s: int, micros: int, digits: int
) -> bytes:
    packed_value = (y * 13 + mo) << 22 | d << 17 | h << 12 | mi << 6 | s
    return (packed_value + 0x8000000000).to_bytes(5, "big") + fraction(micros, digits)


def timestamp2(seconds: int, micros: int, digits: int) -> bytes:
    return seconds.to_bytes(4, "big") + fraction(micros, digits)


def time2(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    seconds, rest = divmod(abs(micros), 1_000_000)
    value = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 8 * size
    value |= int.from_bytes(fraction(rest, digits), "big") if size else 0
    return ((0x800000 << 8 * size) + (value if micros >= 0 else -value)).to_bytes(3 + size, "big")


def date(y: int, m: int, d: int) -> bytes:
    return (y << 9 | m << 5 | d).to_bytes(3, "little")


def text(value: str | bytes, prefix: int, encoding: str = "utf-8") -> bytes:
    raw = value.encode(encoding) if isinstance(value, str) else value
    return len(raw).to_bytes(prefix, "little") + raw


def geometry(srid: int, wkb: bytes) -> bytes:
    return text(srid.to_bytes(4, "little") + wkb, 4)


def vector(values: Sequence[float]) -> bytes:
    return text(struct.pack(f"<{len(values)}f", *values), 4)


def compressed(value: bytes, prefix: int, *, wrap: bool = False, store: bool = False) -> bytes:
    """Returns a cell of one of MariaDB's compressed columns."""
    if not value:
        return text(b"", prefix)
    if store:
        return text(b"\0" + value, prefix)
    size = (len(value).bit_length() + 7) // 8
    packer = zlib.compressobj(wbits=15 if wrap else -15)
    body = packer.compress(value) + packer.flush()
    return text(
        bytes((0x80 | size | (0 if wrap else 8),)) + len(value).to_bytes(size, "big") + body, prefix
    )


def integer(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little", signed=value < 0)


# -- rows events ----------------------------------------------------------------------------------------------

Row = Sequence[bytes | None]


def image(row: Row) -> bytes:
    return lsb_bits([cell is None for cell in row]) + b"".join(
        cell for cell in row if cell is not None
    )


def rows_body(
    kind: int,
    images: Sequence[Row],
    *,
    table_id: int = 77,
    flags: int = 1,
    extra: bytes = b"",
    width: int | None = None,
    present: bytes | None = None,
    present_after: bytes | None = None,
    data: bytes | None = None,
) -> bytes:
    """Returns the body of a rows event of type `kind`. The images of an update are before, after, before, after ...
    `present`: bitmap of the columns in the images; `present_after`: bitmap for the after images of an update, if it
    differs; `data`: all images in encoded form."""
    width = len(images[0]) if width is None else width
    out = table_id.to_bytes(6, "little") + flags.to_bytes(2, "little")
    if kind >= 30:
        out += (2 + len(extra)).to_bytes(2, "little") + extra
    bitmap = lsb_bits([True] * width) if present is None else present
    out += packed(width) + bitmap
    if kind in (24, 31, 39):
        out += bitmap if present_after is None else present_after
    return out + (b"".join(map(image, images)) if data is None else data)


def partial_image(row: Row, diffs: Sequence[bool] | None) -> bytes:
    """Returns the after image of a partial update. `diffs`: for each JSON column of the table, True if its cell is a
    diff; None if the image has no partial bits."""
    options = b"\0" if diffs is None else b"\1" + lsb_bits(diffs)
    return options + image(row)


# -- a delivered binlog -----------------------------------------------------------------------------------------


def fde(*, checksum: bool = True, version: str = "8.0.36", flags: int = 0) -> bytes:
    body = struct.pack("<H50sIB", 4, version.encode(), 0, 19) + bytes(41) + bytes((int(checksum),))
    event = struct.pack("<IBIIIH", 1_700_000_000, 15, 1, 19 + len(body) + 4, 0, 0) + body
    crc = zlib.crc32(event).to_bytes(4, "little")
    return event[:17] + flags.to_bytes(2, "little") + event[19:] + crc


def query_body(query: str | bytes, database: str = "shop", status: bytes = b"") -> bytes:
    raw = query.encode() if isinstance(query, str) else query
    name = database.encode()
    return struct.pack("<IIBHH", 1, 0, len(name), 0, len(status)) + status + name + b"\0" + raw


def gtid_body(number: int) -> bytes:
    return b"\1" + SERVER.bytes + number.to_bytes(8, "little")


@dataclass
class Delivered:
    """Builds a delivered binlog, one transaction after the other."""

    checksum: bool = True
    file: str = "binlog.000007"
    epoch: int = 1
    seq: int = 0
    offset: int = 1000
    lower_case_table_names: int = 0
    out: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.out += b"\xfebin" + fde(checksum=self.checksum)

    def event(self, kind: int, body: bytes, *, flags: int = 0, server_id: int = 1) -> None:
        size = 19 + len(body) + 4 * self.checksum
        event = struct.pack("<IBIIIH", 1_700_000_000, kind, server_id, size, 0, flags) + body
        self.out += event + (zlib.crc32(event).to_bytes(4, "little") if self.checksum else b"")

    def record(self, first_event: int = 0) -> None:
        value = Record(
            self.epoch, self.seq, self.file, self.offset, self.commit_us, first_event,
            self.lower_case_table_names,
        )  # fmt: skip
        self.out += encode_record(value, checksum=self.checksum)

    @property
    def commit_us(self) -> int:
        return 1_700_000_000_000_000 + self.seq

    def transaction(self, *events: tuple[int, bytes], begin: bool = True) -> None:
        """Add a transaction: RECORD, GTID, [BEGIN], the given events, [XID]."""
        self.seq += 1
        self.offset += 500
        self.record()
        self.event(33, gtid_body(self.seq))
        if begin:
            self.event(2, query_body("BEGIN"))
        for kind, body in events:
            self.event(kind, body)
        if begin:
            self.event(16, self.seq.to_bytes(8, "little"))

    def ddl(self, query: str, database: str = "shop") -> None:
        self.transaction((2, query_body(query, database)), begin=False)

    def bytes(self) -> bytes:
        return bytes(self.out)


# -- columns by name, with encoders of Python values ------------------------------------------------------------

UTF8MB4, UTF8MB3, LATIN1, ASCII, BINARY = 255, 33, 8, 11, 63


def encode_cell(spec: Spec, value: Any) -> bytes | None:  # noqa: C901, PLR0911, PLR0912 - one branch per type
    """Returns a Python value as a cell of the column."""
    if value is None:
        return None
    widths = {
        Type.TINY: 1,
        Type.SHORT: 2,
        Type.INT24: 3,
        Type.LONG: 4,
        Type.LONGLONG: 8,
        Type.YEAR: 1,
    }
    if spec.type in widths:
        return integer(value, widths[Type(spec.type)])
    match spec.type:
        case Type.FLOAT:
            return struct.pack("<f", value)
        case Type.DOUBLE:
            return struct.pack("<d", value)
        case Type.NEWDECIMAL:
            return decimal(value, *spec.meta)
        case Type.DATE:
            return date(value.year, value.month, value.day)
        case Type.DATETIME2:
            return datetime2(value, spec.meta[0])
        case Type.TIMESTAMP2:
            micros = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
                microseconds=1
            )
            return timestamp2(micros // 1_000_000, micros % 1_000_000, spec.meta[0])
        case Type.TIME2:
            return time2(value, spec.meta[0])
        case Type.NEWDATE:
            return date(value.year, value.month, value.day)
        case Type.DATETIME_OLD:
            return integer(int(value.strftime("%Y%m%d%H%M%S")), 8)
        case Type.TIMESTAMP_OLD:
            return integer(int(value.timestamp()), 4)
        case Type.TIME_OLD:
            seconds = abs(value) // 1_000_000
            number = seconds // 3600 * 10_000 + seconds // 60 % 60 * 100 + seconds % 60
            return integer(number if value >= 0 else -number, 3)
        case Type.GEOMETRY:
            return geometry(value["srid"], value["wkb"])
        case Type.VECTOR:
            return vector(value)
        case Type.JSON:
            return text(jsonb_encoder.encode(value), 4)
        case Type.MARIADB_BLOB_COMPRESSED:
            raw = value.encode(_encoding(spec)) if isinstance(value, str) else value
            return compressed(raw, spec.meta[0], store=len(raw) < 20)
        case Type.MARIADB_VARCHAR_COMPRESSED:
            raw = value.encode(_encoding(spec)) if isinstance(value, str) else value
            size = 1 if int.from_bytes(spec.meta, "little") < 256 else 2
            return compressed(raw, size, wrap=len(raw) % 2 == 1)
        case Type.ENUM | Type.SET:
            return integer(value, spec.meta[1])
        case Type.BIT:
            return bytes(value)
        case Type.BLOB:
            return text(value, spec.meta[0], _encoding(spec))
        case Type.VARCHAR | Type.VAR_STRING:
            return text(
                value, 1 if int.from_bytes(spec.meta, "little") < 256 else 2, _encoding(spec)
            )
        case Type.STRING:
            raw = value.encode(_encoding(spec)) if isinstance(value, str) else value.rstrip(b"\0")
            return text(raw, 1 if string_length(spec.meta) < 256 else 2)
    raise AssertionError(spec)


_ENCODINGS = {
    LATIN1: "cp1252", 1: "big5", 12: "euc_jp", 13: "shift_jis", 19: "cp949", 28: "gbk", 35: "utf-16-be", 51: "cp1251",
    54: "utf-16-be", 56: "utf-16-le", 60: "utf-32-be", 95: "cp932", 248: "gb18030",
}  # fmt: skip


def _encoding(spec: Spec) -> str:
    return _ENCODINGS.get(spec.charset, "utf-8")


def string_length(meta: bytes) -> int:
    return meta[1] + 256 * (((meta[0] & 0x30) ^ 0x30) >> 4) if meta[0] & 0x30 != 0x30 else meta[1]


def string_meta(length: int) -> bytes:
    return bytes((0xFE ^ (length >> 8) << 4, length & 0xFF))
