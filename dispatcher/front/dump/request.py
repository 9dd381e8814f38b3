"""The commands by which a replica registers and asks for a log.

COM_BINLOG_DUMP names a file and an offset, COM_BINLOG_DUMP_GTID also a GTID set in the binary form. A MariaDB replica
that uses GTIDs sends COM_BINLOG_DUMP, after it has set @slave_connect_state.

Sources: MySQL manual, "COM_BINLOG_DUMP", "COM_BINLOG_DUMP_GTID", "COM_REGISTER_SLAVE"; sql/rpl_source.cc
(com_binlog_dump, com_binlog_dump_gtid, register_replica); MariaDB, sql/sql_parse.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.event.header import FILE_NAME_BYTES_MAX
from dispatcher.front.wire.errors import WireError, fatal_reading
from dispatcher.front.wire.packets import Command
from dispatcher.model.errors import UserError
from dispatcher.model.gtid import GtidSet

GTID_BYTES_MAX = 128 << 10  # the largest set: 3,276 UUIDs, or 8,190 gaps
_MALFORMED_PACKET = 1835  # ER_MALFORMED_PACKET

_NON_BLOCKING = 0x01  # BINLOG_DUMP_NON_BLOCK
# The same bit means different things: USE_HEARTBEAT_EVENT_V2 of MySQL, BINLOG_SEND_ANNOTATE_ROWS_EVENT of MariaDB.
_HEARTBEAT_V2 = _ANNOTATE_ROWS = 0x02


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What a client asks for. `file`: "" = the first file. `offset`: in bytes, 0 or more; a server refuses an offset
    below 4. `gtids`: the set that the client has executed; None in a dump by file. `server_id`: the server id of the
    client."""

    file: str
    offset: int
    gtids: GtidSet | None
    flags: int
    server_id: int

    @property
    def non_blocking(self) -> bool:
        """True if the dump ends at the end of the log."""
        return bool(self.flags & _NON_BLOCKING)

    @property
    def heartbeat_v2(self) -> bool:
        """True if a client of MySQL wants HEARTBEAT_V2 events."""
        return bool(self.flags & _HEARTBEAT_V2)

    @property
    def annotate(self) -> bool:
        """True if a client of MariaDB wants ANNOTATE_ROWS events."""
        return bool(self.flags & _ANNOTATE_ROWS)


@dataclass(frozen=True, slots=True)
class Registration:
    """How a replica registers. Its password is not kept."""

    server_id: int
    host: str
    user: str
    port: int


def parse_dump(command: int, payload: bytes | memoryview) -> DumpRequest:
    """Parse COM_BINLOG_DUMP or COM_BINLOG_DUMP_GTID.

    `payload`: the packet without the command's byte. Raises `WireError`: 1835 if the packet is malformed, 1236 if the
    file's name or the GTID set is malformed, or the set is too large.
    """
    fields = _Fields(payload)
    if command == Command.BINLOG_DUMP:
        offset, flags, server_id = fields.number(4), fields.number(2), fields.number(4)
        return DumpRequest(_file_name(fields.rest()), offset, None, flags, server_id)
    if command != Command.BINLOG_DUMP_GTID:
        raise _malformed()
    flags, server_id = fields.number(2), fields.number(4)
    name = fields.read(fields.number(4))
    offset = fields.number(8)
    encoded = fields.read(fields.number(4))
    if len(encoded) > GTID_BYTES_MAX:
        text = f"a GTID set of {len(encoded)} bytes; binlog-dispatcher accepts at most {GTID_BYTES_MAX}"
        raise fatal_reading(text)
    try:
        gtids = GtidSet.decode(encoded)
    except UserError as error:
        raise fatal_reading(f"the request holds {error.what}") from None
    return DumpRequest(_file_name(name), offset, gtids, flags, server_id)


def parse_register(payload: bytes | memoryview) -> Registration:
    """Parse COM_REGISTER_SLAVE. `payload`: the packet without the command's byte. Raises `WireError` 1835."""
    fields = _Fields(payload)
    server_id = fields.number(4)
    host, user = fields.text(), fields.text()
    fields.read(fields.number(1))  # the password
    port = fields.number(2)
    fields.read(8)  # rank and source id
    return Registration(server_id, host, user, port)


def _file_name(name: bytes) -> str:
    name = name.partition(b"\0")[0]
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = "\0"
    if len(name) > FILE_NAME_BYTES_MAX or not (text.isprintable() or not text):
        raise fatal_reading("Could not find first log file name in binary log index file")
    return text


class _Fields:
    """Reads a packet field by field. Raises `WireError` for a field that reaches past the end."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self._payload = bytes(payload)
        self._at = 0

    def read(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._at > len(self._payload):
            raise _malformed()
        return self._payload[at : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.read(size), "little")

    def text(self) -> str:
        return self.read(self.number(1)).decode("utf-8", "replace")

    def rest(self) -> bytes:
        return self.read(len(self._payload) - self._at)


def _malformed() -> WireError:
    return WireError(_MALFORMED_PACKET, "Malformed communication packet.")
