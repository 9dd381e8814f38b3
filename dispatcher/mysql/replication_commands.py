"""The commands by which a replica asks for a log, and the errors with which a server refuses them.

The daemon acts as a replica: it sets session variables that declare what the daemon understands, and sends
COM_BINLOG_DUMP or COM_BINLOG_DUMP_GTID. After that only the server sends. PyMySQL has no functions for these commands,
so this module uses its private names.

Sources: MySQL manual, "COM_BINLOG_DUMP", "COM_BINLOG_DUMP_GTID", "COM_REGISTER_SLAVE"; sql/rpl_source.cc,
sql/rpl_binlog_sender.cc; MariaDB knowledge base, "Replication protocol".
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import cast
from uuid import UUID, uuid4, uuid5

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID, COM_REGISTER_SLAVE

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import Row, ask, conversing, fetch, number_value, optional_text
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import client_error
from dispatcher.mysql.server_facts import says_replica

NON_BLOCKING = 0x01  # BINLOG_DUMP_NON_BLOCK: the server ends the dump at the end of its log
_ANNOTATE_ROWS = 0x02  # BINLOG_SEND_ANNOTATE_ROWS_EVENT: without it MariaDB omits statements' texts
_THROUGH_GTID = 0x04  # BINLOG_THROUGH_GTID
_CAPABILITY_GTID = 4  # MARIA_SLAVE_CAPABILITY_GTID: understands MariaDB's GTID events
_NET_WRITE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that a replica reports to the server. If two replicas have the same identity, the server ends the
    dump of the replica that connected first. MySQL compares the uuid, MariaDB compares the id."""

    server_uuid: UUID
    server_id: int

    @classmethod
    def of(cls, installation: UUID, name: str, number: int) -> Identity:
        """Return a dispatcher's identity. After a reconnect the dispatcher has the same identity, so the server ends
        the dump of the dead former connection."""
        return cls._from(uuid5(installation, f"{name}#{number}"))

    @classmethod
    def for_once(cls) -> Identity:
        """Return a new identity for a short dump, which must not end another dump."""
        return cls._from(uuid4())

    @classmethod
    def _from(cls, server_uuid: UUID) -> Identity:
        # People give small ids to servers, so the daemon uses ids of 2^31 and above.
        return cls(server_uuid, 0x8000_0000 | server_uuid.int & 0x7FFF_FFFF)


def introduce(
    connection: Connection,
    identity: Identity,
    *,
    mariadb: bool,
    checksum: bool,
    heartbeat_s: float = 0,
) -> None:
    """Set the session variables that declare what a replica understands. Servers ignore variables that they do not
    know.

    `checksum`: True to get events as they are in their files. If False, the server strips checksums, or refuses to send
    an event that has a checksum. Raises `BinlogError`.
    """
    algorithm = "CRC32" if checksum else "NONE"
    settings: dict[str, str | int] = {
        "@master_binlog_checksum": algorithm,
        "@source_binlog_checksum": algorithm,
        "@slave_uuid": str(identity.server_uuid),
        "@replica_uuid": str(identity.server_uuid),
        "net_write_timeout": _NET_WRITE_TIMEOUT_S,
    }
    if period := int(heartbeat_s * 1e9):
        settings |= {"@master_heartbeat_period": period, "@source_heartbeat_period": period}
    if mariadb:
        settings["@mariadb_slave_capability"] = _CAPABILITY_GTID
    statement = "SET " + ", ".join(f"{name} = %s" for name in settings)
    fetch(connection, statement, tuple(settings.values()))


def duplicate_replicas(connection: Connection, identity: Identity, version: str) -> list[str]:
    """Return the hosts of the registered replicas with this identity. One of these replicas may be this daemon's own
    dead connection. Raises BinlogError."""

    def replica(row: Row) -> tuple[int, str, bool]:
        own = str(identity.server_uuid) in row[4:]
        return number_value(row[0]), optional_text(row[1]) or "", own

    statement = f"SHOW {'REPLICAS' if says_replica(version) else 'SLAVE HOSTS'}"
    try:
        replicas = ask(connection, statement, replica)
    except BinlogError as error:
        if error.kind is ErrorKind.GRANT_MISSING:  # MariaDB answers administrators only
            return []
        raise
    return [
        host or "a host without a name"
        for server_id, host, own_uuid in replicas
        if server_id == identity.server_id or own_uuid
    ]


def register_replica(connection: Connection, identity: Identity) -> None:
    """Register for SHOW REPLICAS, with this machine's name. The fields for user and password stay empty, because the
    server only shows them to people."""
    host = socket.gethostname().encode()[:60]
    registration = struct.pack("<I", identity.server_id) + bytes([len(host)]) + host + bytes(2)
    _command(connection, COM_REGISTER_SLAVE, registration + struct.pack("<HII", 0, 0, 0))
    with conversing(connection, "COM_REGISTER_SLAVE"):
        connection._read_ok_packet()  # type: ignore[attr-defined]  # noqa: SLF001


def ask_by_file(
    connection: Connection,
    identity: Identity,
    file: str,
    offset: int,
    *,
    mariadb: bool,
    follow: bool = True,
) -> None:
    """Request a dump by file. `offset`: below 2^32. Without `follow`, the dump ends at the end of the log."""
    flags = (_ANNOTATE_ROWS if mariadb else 0) | (0 if follow else NON_BLOCKING)
    request = struct.pack("<IHI", offset, flags, identity.server_id) + file.encode()
    _command(connection, COM_BINLOG_DUMP, request)


def ask_by_gtids(
    connection: Connection, identity: Identity, executed: bytes, *, follow: bool = True
) -> None:
    """Request a dump of all transactions except those in an encoded GTID set. Without `follow`, the dump ends at the
    end of the log.

    The request contains no file name. With a file name, the server would not check whether it has purged some of these
    transactions.
    """
    flags = _THROUGH_GTID | (0 if follow else NON_BLOCKING)
    request = struct.pack("<HII", flags, identity.server_id, 0)
    _command(
        connection, COM_BINLOG_DUMP_GTID, request + struct.pack("<QI", 4, len(executed)) + executed
    )


def ask_by_domains(
    connection: Connection,
    identity: Identity,
    state: str,
    *,
    strict: bool = True,
    follow: bool = True,
) -> None:
    """Request a dump from MariaDB of all transactions that follow those of `state`, the newest GTID of each domain.

    In each domain, the server sends the transactions that follow this GTID in its log. It refuses a GTID that its log
    does not contain. If `strict` is True (@slave_gtid_strict_mode), it also refuses a GTID that lies between two GTIDs
    of its log. The server would ignore a file and offset in the request. Without `follow`, the dump ends at the end of
    the log.
    """
    settings = (
        "@slave_connect_state = %s, @slave_gtid_strict_mode = %s, @slave_gtid_ignore_duplicates = 0"
    )
    fetch(connection, f"SET {settings}", (state, int(strict)))
    ask_by_file(connection, identity, "", 4, mariadb=True, follow=follow)


def socket_of(connection: Connection) -> socket.socket:
    """Return the connection's socket, which stays open while the connection is referenced."""
    return cast(socket.socket, connection._sock)  # type: ignore[attr-defined]  # noqa: SLF001


def drop(connection: Connection) -> None:
    """Close the connection without COM_QUIT, which a server does not read during a dump."""
    reader = connection._rfile  # type: ignore[attr-defined]  # noqa: SLF001
    connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001
    if reader is not None:  # the reader keeps the descriptor open
        reader.close()


def dump_ended(packet: bytes, label: str) -> BinlogError:
    """Return the error for a packet that is not an event: the end of the dump, a refusal, or an unknown packet."""
    if packet[:1] == b"\xff" and len(packet) >= 3:
        error_number, message = int.from_bytes(packet[1:3], "little"), packet[3:]
        if message[:1] == b"#":
            message = message[6:]
        error = pymysql.err.OperationalError(error_number, message.decode("utf-8", "replace"))
        return client_error(error, where=label)
    if at_end(packet):
        return connection_lost("the server ended the dump", label)
    return connection_lost(f"an unknown packet {packet[:16]!r}", label)


def at_end(packet: bytes) -> bool:
    """True if a packet marks the end of the dump."""
    return packet[:1] == b"\xfe" and len(packet) < 9


def connection_lost(why: str, label: str, remedy: str | None = None) -> BinlogError:
    return BinlogError(ErrorKind.CONNECTION_LOST, why, where=label, remedy=remedy)


def _command(connection: Connection, code: int, argument: bytes) -> None:
    with conversing(connection, f"command {code}"):
        connection._execute_command(code, argument)  # type: ignore[attr-defined]  # noqa: SLF001
