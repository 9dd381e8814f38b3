"""PyMySQL's connection, with bounds on what a server may answer.

PyMySQL reads an answer whole before anybody sees a row of it, and takes the sizes that the server claims on trust. Each
command, and the login, therefore has an account of the memory that its answer may take; a server that exceeds it loses
the connection. The charge for a packet is estimated before the packet is read: its bytes, and what Python's objects for
its columns take.

A dump is read past this class (`net.dump`, `net.connection`), by limits of its own.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, TypeAlias

import pymysql
from pymysql.constants import CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

# PyMySQL's class takes a parameter in its stubs only, so the name is for annotations.
Connection: TypeAlias = "pymysql.connections.Connection[Any]"

ANSWER_BYTES_MAX = 32 << 20  # SHOW BINARY LOGS of 70,000 files, a GTID set of 30 MB
_PACKET_COST, _COLUMN_COST, _CELL_COST = 128, 1024, 80

if TYPE_CHECKING:
    _Base = pymysql.connections.Connection[Any]
else:
    _Base = pymysql.connections.Connection


class Driver(_Base):
    """`where`: what messages call the server, `user@host:port`."""

    where = ""
    _left = ANSWER_BYTES_MAX
    _columns = 0

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._left, self._columns = ANSWER_BYTES_MAX, 0
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        if packet_type is FieldDescriptorPacket:
            self._columns += 1
            self._charge(_COLUMN_COST)
        else:
            self._charge(_CELL_COST * self._columns)
        return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Called for the header of each packet and for its payload."""
        self._charge(num_bytes + _PACKET_COST // 2)
        data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
        return data

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self._force_close()  # type: ignore[attr-defined]
            what = f"the server's answer takes more than {ANSWER_BYTES_MAX >> 20} MiB"
            raise pymysql.err.OperationalError(CR.CR_NET_PACKET_TOO_LARGE, what)

    def close(self) -> None:
        """May be called again, and after the connection was lost."""
        if not self._closed:  # type: ignore[attr-defined]
            super().close()

    def _create_ssl_ctx(self, given: ssl.SSLContext | dict[str, Any]) -> ssl.SSLContext:
        """PyMySQL's own, where it is preferred only, would load authorities that it does not ask."""
        return given if isinstance(given, ssl.SSLContext) else trusting_context()


def trusting_context() -> ssl.SSLContext:
    """One that takes any certificate, and so does not load the system's authorities: that takes some 50 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
