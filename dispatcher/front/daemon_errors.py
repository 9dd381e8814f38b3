"""Converts errors of the daemon to errors of a MySQL server, so that clients react as they do to a server.

After error 1236 a replica stops and shows the error in its status. After error 1053 it connects again, as after the
loss of a connection.
"""

from __future__ import annotations

from dispatcher.front.wire.errors import WireError, fatal_reading
from dispatcher.model.errors import Action, BinlogError, ErrorKind

_SHUTDOWN = 1053  # ER_SERVER_SHUTDOWN
_ACCESS_DENIED = 1045  # ER_ACCESS_DENIED_ERROR
_MESSAGE_MAX = 500  # bytes; a server's own messages have at most 512

_TRANSIENT = frozenset(
    {
        ErrorKind.NOT_LEADER,
        ErrorKind.RANGE_UNAVAILABLE,
        ErrorKind.STATE_STORE,
        ErrorKind.TOO_MANY_REQUESTS,
    }
)


def not_reached() -> WireError:
    """The error for a client that connects before the daemon has reached a server."""
    what = "the daemon had not reached a server before this connection; connect again"
    return WireError(_SHUTDOWN, f"Server shutdown in progress: {what}")


def wire_error(error: BinlogError) -> WireError:
    """Return the error that the front sends to the client."""
    text = str(error).encode()[:_MESSAGE_MAX].decode("utf-8", "ignore")
    if error.kind in (ErrorKind.UNKNOWN_CONSUMER, ErrorKind.UNAUTHORIZED, ErrorKind.FORBIDDEN):
        return WireError(_ACCESS_DENIED, text)
    if error.kind in _TRANSIENT or error.action is Action.RETRY:
        return WireError(_SHUTDOWN, f"Server shutdown in progress: {text}")
    return fatal_reading(text)
