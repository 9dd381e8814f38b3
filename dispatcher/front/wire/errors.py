"""The errors that the front sends, with the error numbers and SQLSTATEs of a MySQL server.

A client reacts to the error number. So each error has the number that a MySQL server uses in the same case. The text
says what is wrong and, if possible, how to correct it. Source: share/messages_to_clients.txt of MySQL.
"""

from __future__ import annotations

from typing import Final

from dispatcher.front.wire.packets import Capability
from dispatcher.model.printable import printable

_GENERAL: Final = "HY000"

SQLSTATES: Final[dict[int, str]] = {
    1040: "08004",  # ER_CON_COUNT_ERROR
    1043: "08S01",  # ER_HANDSHAKE_ERROR
    1044: "42000",  # ER_DBACCESS_DENIED_ERROR
    1045: "28000",  # ER_ACCESS_DENIED_ERROR
    1046: "3D000",  # ER_NO_DB_ERROR
    1047: "08S01",  # ER_UNKNOWN_COM_ERROR
    1049: "42000",  # ER_BAD_DB_ERROR
    1053: "08S01",  # ER_SERVER_SHUTDOWN
    1064: "42000",  # ER_PARSE_ERROR
    1105: _GENERAL,  # ER_UNKNOWN_ERROR
    1142: "42000",  # ER_TABLEACCESS_DENIED_ERROR
    1146: "42S02",  # ER_NO_SUCH_TABLE
    1153: "08S01",  # ER_NET_PACKET_TOO_LARGE
    1156: "08S01",  # ER_NET_PACKETS_OUT_OF_ORDER
    1193: _GENERAL,  # ER_UNKNOWN_SYSTEM_VARIABLE
    1203: "42000",  # ER_TOO_MANY_USER_CONNECTIONS
    1227: "42000",  # ER_SPECIFIC_ACCESS_DENIED_ERROR
    1235: "42000",  # ER_NOT_SUPPORTED_YET
    1236: _GENERAL,  # ER_MASTER_FATAL_ERROR_READING_BINLOG
    1251: "08004",  # ER_NOT_SUPPORTED_AUTH_MODE
    3159: _GENERAL,  # ER_SECURE_TRANSPORT_REQUIRED
}
"""The SQLSTATE of each number that the front uses."""


class WireError(Exception):
    """An error that the front sends to a client. `sqlstate`: five characters; the default is the SQLSTATE of the
    number.

    The message may quote the client's text, so unprintable characters in it are escaped.
    """

    def __init__(self, number: int, message: str, sqlstate: str = "") -> None:
        self.number = number
        self.message = printable(message)
        self.sqlstate = sqlstate or SQLSTATES.get(number, _GENERAL)
        super().__init__(f"{number} ({self.sqlstate}): {self.message}")


def error_packet(error: WireError, capabilities: int) -> bytes:
    """The payload of an ERR packet. `capabilities`: the client's capabilities; 0 before the greeting, when a client
    does not expect a SQLSTATE."""
    state = b"#" + error.sqlstate.encode() if capabilities & Capability.PROTOCOL_41 else b""
    return b"\xff" + error.number.to_bytes(2, "little") + state + error.message.encode()


def fatal_reading(message: str) -> WireError:
    """The error for a dump that cannot begin or continue (ER_SOURCE_FATAL_ERROR_READING_BINLOG). A replica stops after
    this error."""
    return WireError(1236, message)


def bad_handshake() -> WireError:
    return WireError(1043, "Bad handshake")


def too_large(bytes_max: int) -> WireError:
    """The error for a payload that is larger than `bytes_max`."""
    return WireError(1153, f"Got a packet bigger than {bytes_max} bytes")


def out_of_order() -> WireError:
    return WireError(1156, "Got packets out of order")


def unknown_command() -> WireError:
    """The error for commands that the front does not support, such as COM_CHANGE_USER."""
    return WireError(1047, "Unknown command")


def too_many_connections() -> WireError:
    return WireError(1040, "Too many connections")


def too_many_user_connections(kind: str, user: str, count: int) -> WireError:
    """The error for a login of a consumer or token (`kind`) that already has its full share of connections."""
    return WireError(
        1203,
        f"User {user} already has more than its share of connections: its {kind} has {count}",
    )


def internal_fault() -> WireError:
    """The error for a fault of the front itself. The daemon's log has the details."""
    return WireError(1105, "Unknown error; the log of binlog-dispatcher has the details")
