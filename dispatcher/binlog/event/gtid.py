"""GTID events of MySQL and MariaDB, and the events that contain whole GTID sets.

GTID and ANONYMOUS_GTID have a fixed beginning and a tail that is longer in newer versions: 5.6 ends the event after the
number, 5.7 adds the logical clock, and 8.0 adds commit times, length and versions. MySQL 8.3 writes GTID_TAGGED with
its serialization library: a format version, a size, and fields with ids, some of which are optional. MariaDB's GTID
event has its own format.

Sources: MySQL source, libs/mysql/binlog/event/control_events.h and .cpp, libs/mysql/serialization/readme.md; MariaDB,
sql/log_event.cc, Gtid_log_event; both were checked against events that servers wrote.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from dispatcher.binlog.event.cursor import ByteCursor, malformed
from dispatcher.binlog.event.query import AlterPhase
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GNO_MAX, TAG, GtidSet, MariadbGtids

_HEAD = struct.Struct("<B16sq")  # flags, UUID, number
_CLOCKS = struct.Struct("<Bqq")  # type code, last committed, sequence number
_CLOCK = 2  # LOGICAL_TIMESTAMP_TYPECODE
_TIME_BITS = 55
_VERSION_BITS = 31
_TAGGED = type_name(EventType.GTID_TAGGED)


class Gtid(NamedTuple):
    """A MySQL GTID event. An anonymous GTID has `source` "" and `gno` 0. Times are microseconds since 1970 UTC; the
    length is the size of the whole transaction in bytes, including the GTID event. Fields that the server did not write
    are None."""

    source: str  # uuid
    tag: str
    gno: int
    flags: int
    last_committed: int | None = None
    sequence_number: int | None = None
    immediate_commit_us: int | None = None
    original_commit_us: int | None = None
    transaction_length: int | None = None
    immediate_version: int | None = None
    original_version: int | None = None
    commit_group_ticket: int | None = None

    @property
    def name(self) -> str:
        """The source of the GTID: `uuid` or `uuid:tag`."""
        return f"{self.source}:{self.tag}" if self.tag else self.source

    def __str__(self) -> str:
        return f"{self.name}:{self.gno}" if self.source else "ANONYMOUS"


@lru_cache(64)
def uuid_text(raw: bytes) -> str:
    return str(UUID(bytes=raw))


def parse_gtid_event(kind: int, body: bytes) -> Gtid:
    """Parse a GTID, ANONYMOUS_GTID or GTID_TAGGED event. Raises `BinlogError` MALFORMED_EVENT."""
    if kind == EventType.GTID_TAGGED:
        return _tagged(body)
    cursor = ByteCursor(type_name(kind), body)
    flags, raw, gno = _HEAD.unpack(cursor.read(_HEAD.size))
    source = uuid_text(raw)
    if kind == EventType.ANONYMOUS_GTID:
        source, gno = "", 0
    elif not 1 <= gno < GNO_MAX:
        raise malformed(cursor.name, f"has the number {gno}")
    if len(cursor) < _CLOCKS.size:
        return Gtid(source, "", gno, flags)
    clock, last_committed, sequence_number = _CLOCKS.unpack(cursor.read(_CLOCKS.size))
    if clock != _CLOCK:
        return Gtid(source, "", gno, flags)
    if len(cursor) < 7:
        return Gtid(source, "", gno, flags, last_committed, sequence_number)
    immediate = original = cursor.number(7)
    if immediate >> _TIME_BITS:
        immediate, original = immediate & ((1 << _TIME_BITS) - 1), cursor.number(7)
    length = cursor.packed_number() if len(cursor) else None
    version = older = ticket = None
    if len(cursor) >= 4:
        version = older = cursor.number(4)
        if version >> _VERSION_BITS:
            version, older = version & ((1 << _VERSION_BITS) - 1), cursor.number(4)
        ticket = cursor.number(8) if len(cursor) >= 8 else None
    return Gtid(
        source, "", gno, flags, last_committed, sequence_number, immediate, original, length, version, older, ticket
    )  # fmt: skip


def _tagged(body: bytes) -> Gtid:
    """Parse `version, size, last mandatory field`, and then `id, value` of each field, with ascending ids.

    The UUID is an array of 16 integers, so a byte above 127 takes two bytes. The tag is a size and the characters.
    """
    cursor = ByteCursor(_TAGGED, body)
    if (version := cursor.varint()) != 1:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT, f"{_TAGGED} of serialization version {version}"
        )
    if cursor.varint() != len(body):
        raise malformed(_TAGGED, "names a size that is not its own")
    mandatory = cursor.varint()
    if mandatory > 12:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{_TAGGED} with a field {mandatory - 1} of a later version",
        )
    fields: dict[int, int] = {}
    source = tag = ""
    last = -1
    while len(cursor) and last < 11:
        field = cursor.varint()
        if field <= last:
            raise malformed(_TAGGED, f"has field {field} after field {last}")
        last = field
        if field == 1:
            source = uuid_text(bytes(_byte(cursor) for _ in range(16)))
        elif field == 3:
            tag = cursor.text(cursor.varint())
        elif field in (2, 4, 5):
            fields[field] = cursor.signed_varint()
        elif field > 11:
            break  # an optional field of a later version; all fields after it are of later versions, too
        else:
            fields[field] = cursor.varint()
    gno = fields.get(2, 0)
    if not source or not 1 <= gno < GNO_MAX or (tag and not TAG.match(tag)):
        raise malformed(_TAGGED, f"names {source or 'no source'}, {tag[:40]!r}, {gno}")
    return Gtid(
        source, tag, gno, fields.get(0, 0), fields.get(4), fields.get(5), fields.get(6), fields.get(7, fields.get(6)),
        fields.get(8), fields.get(9), fields.get(10, fields.get(9)), fields.get(11),
    )  # fmt: skip


def _byte(cursor: ByteCursor) -> int:
    if (value := cursor.varint()) > 255:
        raise malformed(_TAGGED, f"has {value} for a byte of its UUID")
    return value


def parse_previous_gtids(body: bytes) -> GtidSet:
    """Parse a PREVIOUS_GTIDS event, with tags or without. Returns the GTIDs in the files before the event's file."""
    try:
        return GtidSet.decode(body)
    except UserError as error:
        raise malformed("PREVIOUS_GTIDS_EVENT", f"is damaged: {error.what}") from None


# -- MariaDB --------------------------------------------------------------------------------------------------

STANDALONE = 0x01  # the group is one statement, without a COMMIT
GROUP_COMMIT_ID = 0x02
DDL = 0x20
PREPARED_XA = 0x40  # the event implies XA START; the group ends with XA_PREPARE
COMPLETED_XA = 0x80  # XA COMMIT or XA ROLLBACK
_XID = re.compile(r"\bX'((?:[0-9a-fA-F]{2})*)',X'((?:[0-9a-fA-F]{2})*)',(\d{1,20})\s*$")


def parse_previous(code: int, body: bytes) -> GtidSet | MariadbGtids:
    """Parse a PREVIOUS_GTIDS event or MariaDB's GTID_LIST. Returns the GTIDs in the files before the event's file."""
    if code == EventType.PREVIOUS_GTIDS:
        return parse_previous_gtids(body)
    listed = parse_mariadb_gtid_list(body)
    return MariadbGtids({gtid.domain: (gtid.server, gtid.sequence) for gtid in listed})


@dataclass(frozen=True, slots=True)
class Xid:
    """A global transaction id of XA."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        """The xid as servers write it into statements: `X'6131',X'62',1`."""
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id & 0xFFFFFFFF}"

    @classmethod
    def parse(cls, statement: str) -> Xid | None:
        """Return the xid of an XA statement; None if the xid does not have the form in which servers log it."""
        match = _XID.search(statement)
        if match is None:
            return None
        return cls(int(match[3]) & 0xFFFFFFFF, bytes.fromhex(match[1]), bytes.fromhex(match[2]))


@dataclass(frozen=True, slots=True)
class MariadbGtid:
    """A MariaDB GTID event. `flags`: STANDALONE and the flags that this module defines after it. `commit_id`: the id of
    the group commit. `xid`: set with PREPARED_XA and COMPLETED_XA. `alter_of`: the sequence number of the START ALTER
    that this event ends; `alter_phase`: NONE if the event is not of a DDL that is logged in two transactions. Any other
    field that the event does not have is None."""

    domain: int
    server: int
    sequence: int
    flags: int
    commit_id: int | None = None
    xid: Xid | None = None
    alter_of: int | None = None
    alter_phase: AlterPhase = AlterPhase.NONE

    @property
    def name(self) -> str:
        """The source of the GTID: `domain-server`."""
        return f"{self.domain}-{self.server}"

    def __str__(self) -> str:
        return f"{self.name}-{self.sequence}"


def parse_mariadb_gtid(body: bytes, server_id: int) -> MariadbGtid:
    """Parse a MariaDB GTID event. `server_id`: the server id in its header. Raises `BinlogError` MALFORMED_EVENT."""
    cursor = ByteCursor(type_name(EventType.MARIADB_GTID), body)
    sequence, domain, flags = cursor.number(8), cursor.number(4), cursor.number(1)
    commit_id = cursor.number(8) if flags & GROUP_COMMIT_ID else None
    xid = alter_of = None
    phase = AlterPhase.NONE
    if flags & (PREPARED_XA | COMPLETED_XA):
        format_id, gtrid, bqual = cursor.number(4), cursor.number(1), cursor.number(1)
        xid = Xid(format_id, cursor.read(gtrid), cursor.read(bqual))
    if len(cursor):
        extra = cursor.number(1)
        if extra & 1:  # several storage engines take part; the count of engines follows
            cursor.number(1)
        phase = AlterPhase.of(extra)
        if phase & AlterPhase.ENDS:
            alter_of = cursor.number(8)
    return MariadbGtid(domain, server_id, sequence, flags, commit_id, xid, alter_of, phase)


def parse_mariadb_gtid_list(body: bytes) -> tuple[MariadbGtid, ...]:
    """Parse a MariaDB GTID_LIST event. Returns the last GTID of each domain and server in the files before this one,
    with flags 0. The last entry of a domain is the domain's newest GTID."""
    cursor = ByteCursor(type_name(EventType.MARIADB_GTID_LIST), body)
    count = cursor.number(4) & 0x0FFFFFFF  # the other bits are flags
    gtids = []
    for _ in range(count):
        domain, server, sequence = cursor.number(4), cursor.number(4), cursor.number(8)
        gtids.append(MariadbGtid(domain, server, sequence, 0))
    return tuple(gtids)
