"""Maps MySQL and MariaDB error numbers, and the texts of error 1236, to kinds of errors.

Servers send error 1236 for a dozen different problems, so the text of the error decides its kind. The fragments below
are the parts of the messages that are the same in MySQL 5.6 to 9.7 and MariaDB 10.5 to 11.8 (in between, "master"
became "source" and "slave" became "replica"). The fragments were compared with all messages in these servers' binaries.
Sources: sql/rpl_binlog_sender.cc, sql/binlog.cc and share/messages_to_clients.txt (MySQL), sql/sql_repl.cc (MariaDB).

After an error that is not listed, the daemon retries, because an unknown error must neither fail a consumer permanently
nor move its position.
"""

from __future__ import annotations

import ssl

import pymysql

from dispatcher.model.errors import BinlogError, ErrorKind

FATAL_READING_LOG = 1236
# Lower-case fragments of texts of error 1236 that are about the server's state, not about the requested place. Sources:
# sql/rpl_binlog_sender.cc, sql/binlog_istream.h.
STATE_OF_SERVER = (
    "memory allocation", "i/o error", "unknown error", "not open", "could not open",
)  # fmt: skip
_TEXT_MAX = 1000  # how many characters of a server's text a message contains

_DAMAGED = (
    "look for the file and offset in the server's error log and with mysqlbinlog; if the file is damaged, PURGE it and"
    " start the consumer behind it, or read from another host"
)

# The kind of each error number, and a remedy if the remedy of the kind is not specific enough.
_BY_NUMBER: dict[int, tuple[ErrorKind, str | None]] = {
    # connecting
    1040: (
        ErrorKind.CONNECT_FAILED,
        "raise max_connections on the server, or close connections",
    ),  # too many connections
    1047: (
        ErrorKind.CONNECT_FAILED,
        "connect to the server itself, not to a proxy without dumps; a cluster's node may not be ready yet",
    ),  # unknown command: a node of a cluster that is not ready, or a proxy
    1129: (
        ErrorKind.CONNECT_FAILED,
        "run FLUSH HOSTS on the server, and find out which program on this machine fails to connect",
    ),  # host is blocked
    1203: (
        ErrorKind.CONNECT_FAILED,
        "raise max_user_connections, or give the consumers fewer connection keys",
    ),  # max_user_connections
    1226: (
        ErrorKind.CONNECT_FAILED,
        "raise the account's resource limits (ALTER USER ... WITH MAX_USER_CONNECTIONS)",
    ),  # account's resource limit
    2002: (ErrorKind.CONNECT_FAILED, None),
    2003: (ErrorKind.CONNECT_FAILED, None),
    2005: (ErrorKind.CONNECT_FAILED, None),
    2012: (ErrorKind.CONNECT_FAILED, None),  # error in server handshake
    2020: (
        ErrorKind.CONNECT_FAILED,
        "connect to the server itself if a proxy answers; a server with so many binlog files has to purge some",
    ),  # an answer larger than the driver accepts
    2026: (ErrorKind.CONNECT_FAILED, None),  # TLS
    2059: (ErrorKind.CONNECT_FAILED, None),  # authentication plugin cannot be loaded
    2061: (ErrorKind.CONNECT_FAILED, None),  # authentication plugin's error
    3032: (ErrorKind.CONNECT_FAILED, "SET GLOBAL offline_mode = OFF on the server"),  # offline_mode
    3159: (
        ErrorKind.CONNECT_FAILED,
        "the server accepts TLS only: set the consumer's tls.mode to preferred or stricter",
    ),  # require_secure_transport
    # the account
    1044: (ErrorKind.ACCESS_DENIED, None),
    1045: (ErrorKind.ACCESS_DENIED, None),
    1130: (ErrorKind.ACCESS_DENIED, None),  # no account for this host
    1251: (ErrorKind.ACCESS_DENIED, None),  # client lacks the authentication protocol
    1524: (
        ErrorKind.ACCESS_DENIED,
        "load the account's authentication plugin, or alter the account to caching_sha2_password",
    ),  # the account's plugin is not loaded
    1698: (
        ErrorKind.ACCESS_DENIED,
        "give the account a password; it can only log in by unix_socket now",
    ),  # no password login (unix_socket)
    1820: (
        ErrorKind.ACCESS_DENIED,
        "set a new password: ALTER USER",
    ),  # password must be changed first
    1862: (ErrorKind.ACCESS_DENIED, "set a new password: ALTER USER"),  # password has expired
    3118: (
        ErrorKind.ACCESS_DENIED,
        "unlock the account: ALTER USER ... ACCOUNT UNLOCK",
    ),  # account is locked
    3955: (ErrorKind.ACCESS_DENIED, None),  # account is locked for a while: failed logins
    4151: (
        ErrorKind.ACCESS_DENIED,
        "unlock the account: ALTER USER ... ACCOUNT UNLOCK",
    ),  # account is locked (MariaDB)
    1142: (ErrorKind.GRANT_MISSING, None),
    1143: (ErrorKind.GRANT_MISSING, None),
    1227: (ErrorKind.GRANT_MISSING, None),
    # replication
    29: (ErrorKind.SERVER_LOG, _DAMAGED),  # MariaDB: a file of the log is missing
    1372: (ErrorKind.HISTORY_DIFFERS, None),  # no such position in the log
    1373: (ErrorKind.POSITION_PURGED, None),  # unknown log file
    1381: (ErrorKind.SERVER_SETTING, "start the server with --log-bin"),  # log_bin=OFF
    1789: (ErrorKind.POSITION_PURGED, None),
    3546: (ErrorKind.HISTORY_DIFFERS, None),
    1950: (ErrorKind.HISTORY_DIFFERS, None),  # MariaDB: out-of-order GTID in strict mode
    1945: (ErrorKind.HISTORY_DIFFERS, None),  # MariaDB: GTID not in the log
    1955: (ErrorKind.HISTORY_DIFFERS, None),  # MariaDB: GTID not in the log, higher ones are
    4052: (ErrorKind.DUPLICATE_SERVER_UUID, None),  # MariaDB
    # errors in what the daemon sends
    1064: (ErrorKind.INTERNAL, None),
    1193: (ErrorKind.INTERNAL, None),
    1835: (ErrorKind.INTERNAL, None),  # malformed packet
}

_NO_GTID = (
    "the log holds transactions from before gtid_mode=ON: start the consumer behind them, at latest or at a GTID"
    " set from SHOW BINARY LOG STATUS"
)
_SENDS_NO_GTIDS = (
    "the log holds transactions with GTIDs, which a server with gtid_mode=OFF does not send: set gtid_mode to"
    " OFF_PERMISSIVE or higher, or start the consumer behind them"
)

# Lower-case fragments of the texts of error 1236. The first fragment that occurs in a text decides.
_LOG_ERRORS: tuple[tuple[ErrorKind, str | None, tuple[str, ...]], ...] = (
    (ErrorKind.DUPLICATE_SERVER_UUID, None, ("same server_uuid", "same server_id")),
    (
        ErrorKind.POSITION_PURGED,
        None,
        (
            "purged required binary logs",
            "has purged binary logs containing gtids",
            "required binlog files have been purged",
            "could not find first log file name",
            "could not find next log",
        ),
    ),
    (
        ErrorKind.HISTORY_DIFFERS,
        None,
        (
            "more gtids than the",
            "is not in the master's binlog",
            "binlog on the master is missing the gtid",
            "slave gtid state not found in binlog",
            "position > file size",
            "impossible position",
            "incorrect position in master binlog",
        ),
    ),
    (
        ErrorKind.SERVER_SETTING,
        "start the server with --log-bin",
        ("binary log is not open",),
    ),
    (
        ErrorKind.SERVER_SETTING,
        "give the server a server_id other than 0",
        ("server id was not set", "server_id was not set"),
    ),
    (
        ErrorKind.SERVER_SETTING,
        "leave gtid_mode at ON while consumers hold GTID positions",
        ("cannot start in auto_position mode",),
    ),
    (ErrorKind.SERVER_SETTING, _SENDS_NO_GTIDS, ("cannot replicate gtid-transaction",)),
    (ErrorKind.UNSUPPORTED_EVENT, _NO_GTID, ("cannot replicate anonymous transaction",)),
    (ErrorKind.CHECKSUM_MISMATCH, _DAMAGED, ("crc check",)),
    (
        ErrorKind.SERVER_LOG,
        _DAMAGED,
        (
            # A dump's max_allowed_packet is 1 GiB, larger than any event, so the size in the log is wrong.
            "exceeded max_allowed_packet",
            "truncated in the middle of event",
            "bogus data in log event",
            "reading log event",
            "could not find format_description_event",
            "corrupt binlog",
            "error reading header of binary log",
            "failed to read the binary log index",
            "could not open log file",
            "bad magic number",
            "reading the header from the binary log",
        ),
    ),
    (
        ErrorKind.SERVER_LOG,
        "give the server its keyring back: it cannot decrypt its binlog",
        ("failed to decrypt",),
    ),
    # The daemon sent a request that no server accepts.
    (ErrorKind.INTERNAL, None, ("checksum that", "position < 4", "malformed slave request")),
)


def server_error(number: int, text: str, *, where: str = "") -> BinlogError:
    """Return the error for the number and text of a server's error packet, or of an error of PyMySQL (numbers of 2000
    and above)."""
    what = f"{text.strip()[:_TEXT_MAX].rstrip('.')} (MySQL error {number})"
    if number == FATAL_READING_LOG:
        lower = text.lower()
        for kind, remedy, fragments in _LOG_ERRORS:
            if any(fragment in lower for fragment in fragments):
                return BinlogError(kind, what, where=where, remedy=remedy)
    kind, remedy = _BY_NUMBER.get(number, (ErrorKind.CONNECTION_LOST, None))
    return BinlogError(kind, what, where=where, remedy=remedy)


def client_error(error: pymysql.Error, *, where: str = "") -> BinlogError:
    """Return the error for an exception of PyMySQL, with the exception as its cause."""
    cause = getattr(error, "original_exception", None)
    arguments = error.args
    if isinstance(cause, ssl.SSLError):
        mapped = _tls_error(cause, where)
    elif isinstance(cause, OSError):
        what = cause.strerror or str(cause) or type(cause).__name__
        mapped = BinlogError(ErrorKind.CONNECT_FAILED, what, where=where)
    elif arguments and isinstance(arguments[0], int):
        mapped = server_error(
            arguments[0], str(arguments[1]) if len(arguments) > 1 else "", where=where
        )
    else:
        mapped = BinlogError(
            ErrorKind.CONNECTION_LOST, str(error) or type(error).__name__, where=where
        )
    mapped.__cause__ = error
    return mapped


def number_of(error: BinlogError) -> int:
    """Return the MySQL or MariaDB error number of an error's cause; 0 if the cause has no number."""
    cause = error.__cause__
    if isinstance(cause, pymysql.Error) and cause.args and isinstance(cause.args[0], int):
        return cause.args[0]
    return 0


# PyMySQL's own error numbers, such as that of a lost connection. Other numbers come from the server.
_CLIENT_NUMBERS = range(2000, 2100)


def is_refusal(error: BinlogError) -> bool:
    """True if the server has refused a statement, as for a missing privilege. False for a lost connection."""
    number = number_of(error)
    return number != 0 and number not in _CLIENT_NUMBERS


def _tls_error(error: ssl.SSLError, where: str) -> BinlogError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the server's certificate is not trusted: {error.verify_message}"
        remedy = "point tls.ca at the CA that signed it, and connect by a host name that it names"
    else:
        what = f"no TLS connection: {getattr(error, 'reason', '') or error}"
        remedy = (
            "compare the server's tls_version and certificates with the consumer's tls settings"
        )
    return BinlogError(ErrorKind.CONNECT_FAILED, what, where=where, remedy=remedy)
