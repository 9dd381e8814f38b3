"""The options of a client's dump that `relay` uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dispatcher.model.gtid import GtidSet, MariadbGtids


class Checksum(Enum):
    """What a client has said about checksums (@source_binlog_checksum).

    UNSET: the client does not know checksums, so the front strips the events' checksums. (A server refuses such a
    client if its log has checksums.) NONE, CRC32: the client reads from the FORMAT_DESCRIPTION whether events have
    checksums, so the front leaves the events as they are. A server does not strip checksums for NONE either. The choice
    between NONE and CRC32 decides only whether the first ROTATE, which precedes the FORMAT_DESCRIPTION, has a checksum.
    """

    UNSET = "unset"
    NONE = "none"
    CRC32 = "crc32"


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The options that a client has asked for, and facts about the source. `server_id`: the source's server id, for
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
    """A dump by file. The client has everything before this offset."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class AfterGtids:
    """A dump by GTID. The client has the transactions `gtids`. `gtids` must contain all transactions before the first
    range."""

    gtids: GtidSet | MariadbGtids


Resume = AfterPlace | AfterGtids | None
