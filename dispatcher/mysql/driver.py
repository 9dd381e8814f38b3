"""PyMySQL's connection with limits on answers, and with stricter rules for sending the password.

PyMySQL reads a whole answer before the caller sees a row, and trusts the sizes that the server claims. So each command,
and the login, has a budget for the memory of its answer. Before the driver reads a packet, it subtracts from the budget
the packet's bytes and the estimated size of the Python objects for its columns. If the answer exceeds the budget, the
driver closes the connection.

The server chooses the authentication method, and several methods reveal the password to the server. The clear-text
methods always reveal it. Without TLS, the SHA-256 methods reveal it if they use an RSA key that the server sends,
because any program that answers in place of the server can send such a key. Therefore the clear-text methods require
TLS with a verified certificate. The RSA key comes from the settings; a key that the server sends is accepted only if
the settings allow it, or if the server is on the loopback interface. Over TLS the SHA-256 methods send the password
even if the certificate was not verified, as MySQL's own client does: a refusal would prevent every first login to a
server without a known CA. The command `check` warns about such connections.

`blocking_dump` and `dump_stream` read dumps from the socket, without this class and with their own limits.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import TYPE_CHECKING, Any, TypeAlias

import pymysql
from pymysql.constants import CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from dispatcher.model.errors import BinlogError, ErrorKind

# The class is generic only in PyMySQL's stubs, so this name can be used only in annotations.
Connection: TypeAlias = "pymysql.connections.Connection[Any]"

ANSWER_BYTES_MAX = 32 << 20  # enough for SHOW BINARY LOGS of 70,000 files, or a GTID set of 30 MB
_PACKET_COST, _COLUMN_COST, _CELL_COST = 128, 1024, 80

if TYPE_CHECKING:
    _Base = pymysql.connections.Connection[Any]
else:
    _Base = pymysql.connections.Connection


class Driver(_Base):
    """`where`: the server's name in messages, `user@host:port`. `verified`: True if TLS verifies the certificate.

    `pinned_key`: the server's public RSA key (PEM), None = not known; `accepts_key`: True if a key that the server
    sends is accepted.
    """

    where = ""
    verified = False
    pinned_key: bytes | None = None
    accepts_key = False
    _sent_key: bytes | None = None
    _left = ANSWER_BYTES_MAX
    _columns = 0

    @property
    def server_public_key(self) -> bytes | None:
        """The key with which PyMySQL encrypts the password; if None, PyMySQL asks the server for a key."""
        return self.pinned_key or self._sent_key

    @server_public_key.setter
    def server_public_key(self, key: bytes | None) -> None:
        if key is None or self.pinned_key is not None:
            return
        if not self.accepts_key and not self._on_loopback():
            raise BinlogError(
                ErrorKind.CONNECT_FAILED,
                "without TLS the server sends a public key and asks for the password encrypted with it; another program"
                " that answers in the server's place could read the password",
                where=self.where,
                remedy="set tls.mode to verify_identity or verify_ca, or tls.server_public_key to a file with the"
                " server's key (SHOW STATUS LIKE '%rsa_public_key'), or tls.allow_public_key_retrieval to true where"
                " the network is trusted",
            )
        self._sent_key = key

    def _on_loopback(self) -> bool:
        peer = self._sock.getpeername()  # type: ignore[attr-defined]
        return isinstance(peer, tuple) and is_loopback_peer(peer[0])

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
        """Subtract the bytes from the budget before they are read. PyMySQL calls this for the header and the payload of
        each packet."""
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
        """Close the connection. May be called repeatedly, and after the connection was lost."""
        if not self._closed:  # type: ignore[attr-defined]
            super().close()

    def _create_ssl_ctx(self, given: ssl.SSLContext | dict[str, Any]) -> ssl.SSLContext:
        """Return the context for TLS. For preferred TLS, PyMySQL's own method would load the system's authorities,
        which are then not used."""
        return given if isinstance(given, ssl.SSLContext) else trusting_context()


def greeted_version(connection: Connection) -> str:
    """Return the version in the server's greeting. MariaDB 10 puts "5.5.5-" before its version."""
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


class ClearText:
    """Replaces PyMySQL's authentication methods that send the password in clear text. Sends the password only over TLS
    with a verified certificate."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, _packet: Any) -> Any:
        connection = self._connection
        if not (connection.verified and connection._secure):  # noqa: SLF001 - as PyMySQL's own methods ask
            raise BinlogError(
                ErrorKind.CONNECT_FAILED,
                "the server asks for the password in clear text, and its certificate was not verified",
                where=connection.where,
                remedy="set tls.mode to verify_identity, with tls.ca, or let the account use another method",
            )
        connection.write_packet(connection.password + b"\0")
        answer = connection._read_packet()  # noqa: SLF001
        answer.check_error()
        return answer


def is_loopback_peer(address: str) -> bool:
    """True for a loopback IP address, mapped IPv4 addresses included."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def trusting_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate. It does not load the system's authorities, which takes about 50
    ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
