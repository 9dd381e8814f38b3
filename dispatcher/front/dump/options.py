"""What a client has asked for, as `relay` needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dispatcher.model.gtid import GtidSet, MariadbGtids


class Checksum(Enum):
    """What a client has said about checksums (@source_binlog_checksum).

    UNSET: the client knows no checksums, so they are stripped. (Servers refuse such a client if their logs have
    checksums.) NONE, CRC32: the client obeys the FORMAT_DESCRIPTION, so events keep the checksums that they have. A
    server does not strip them for NONE either. The value decides only whether the first ROTATE, which precedes the
    FORMAT_DESCRIPTION, has a checksum.
    """

    UNSET = "unset"
    NONE = "none"
    CRC32 = "crc32"


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """What a client has asked for, and what the relay needs to know of the source. `server_id`: of the source, for
    events that the front makes. `annotate`: True if the client gets MariaDB's ANNOTATE_ROWS events.
    `mariadb_capability`: @mariadb_slave_capability; below 4, the client gets BEGIN in place of MariaDB's GTID
    events."""

    server_id: int
    checksum: Checksum
    heartbeat_v2: bool = False
    annotate: bool = True
    mariadb: bool = False
    mariadb_capability: int = 0


@dataclass(frozen=True, slots=True)
class AfterPlace:
    """A dump by file. The client has what is before this offset."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class AfterGtids:
    """A dump by GTID. The client has these transactions. They must contain all transactions before the first range."""

    gtids: GtidSet | MariadbGtids


Resume = AfterPlace | AfterGtids | None
