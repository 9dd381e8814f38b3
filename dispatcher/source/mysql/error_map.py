"""What a server's error means: MySQL and MariaDB error numbers, and the texts of 1236, to kinds of
faults.

Error 1236 is a dozen different problems with one number, so its text decides. The fragments below are the stable parts
of the messages of MySQL 5.6 to 9.7 and MariaDB 10.5 to 11.8 ("master" became "source", "slave" became "replica" on the
way); all that these servers' binaries hold were compared. Sources: sql/rpl_binlog_sender.cc, sql/binlog.cc and
share/messages_to_clients.txt (MySQL), sql/sql_repl.cc (MariaDB).

What is not listed is retried: an unknown fault must neither end a consumer for good nor move its
position.
"""

from __future__ import annotations

import ssl

import pymysql

from dispatcher.model.errors import BinlogError, ErrorKind

FATAL_READING_LOG = 1236
_TEXT_MAX = 1000  # characters of a server's text that are passed on

_KIND_BY_NUMBER = {
    # the way to the server
    1040: ErrorKind.CONNECT_FAILED,  # too many connections
    1047: ErrorKind.CONNECT_FAILED,  # unknown command: a node of a cluster that is not ready, or a proxy
    1129: ErrorKind.CONNECT_FAILED,  # host is blocked
    1203: ErrorKind.CONNECT_FAILED,  # max_user_connections
    1226: ErrorKind.CONNECT_FAILED,  # account's resource limit
    2002: ErrorKind.CONNECT_FAILED,
    2003: ErrorKind.CONNECT_FAILED,
    2005: ErrorKind.CONNECT_FAILED,
    2012: ErrorKind.CONNECT_FAILED,  # error in server handshake
    2020: ErrorKind.CONNECT_FAILED,  # an answer that is larger than ours are
    2026: ErrorKind.CONNECT_FAILED,  # TLS
    2059: ErrorKind.CONNECT_FAILED,  # authentication plugin cannot be loaded
    2061: ErrorKind.CONNECT_FAILED,  # authentication plugin's error
    3032: ErrorKind.CONNECT_FAILED,  # offline_mode
    3159: ErrorKind.CONNECT_FAILED,  # require_secure_transport
    # the account
    1044: ErrorKind.ACCESS_DENIED,
    1045: ErrorKind.ACCESS_DENIED,
    1130: ErrorKind.ACCESS_DENIED,  # no account for this host
    1251: ErrorKind.ACCESS_DENIED,  # client lacks the authentication protocol
    1524: ErrorKind.ACCESS_DENIED,  # the account's plugin is not loaded
    1698: ErrorKind.ACCESS_DENIED,  # no password login (unix_socket)
    1820: ErrorKind.ACCESS_DENIED,  # password must be changed first
    1862: ErrorKind.ACCESS_DENIED,  # password has expired
    3118: ErrorKind.ACCESS_DENIED,  # account is locked
    3955: ErrorKind.ACCESS_DENIED,  # account is locked for a while: failed logins
    4151: ErrorKind.ACCESS_DENIED,  # account is locked (MariaDB)
    1142: ErrorKind.GRANT_MISSING,
    1143: ErrorKind.GRANT_MISSING,
    1227: ErrorKind.GRANT_MISSING,
    # replication
    29: ErrorKind.SERVER_LOG,  # MariaDB: a file is not there
    1372: ErrorKind.HISTORY_DIFFERS,  # no such position in the log
    1373: ErrorKind.POSITION_PURGED,  # unknown log file
    1381: ErrorKind.SERVER_SETTING,  # log_bin=OFF
    1789: ErrorKind.POSITION_PURGED,
    3546: ErrorKind.HISTORY_DIFFERS,
    1950: ErrorKind.HISTORY_DIFFERS,  # MariaDB: out-of-order GTID in strict mode
    1945: ErrorKind.HISTORY_DIFFERS,  # MariaDB: GTID not in the log
    1955: ErrorKind.HISTORY_DIFFERS,  # MariaDB: GTID not in the log, higher ones are
    4052: ErrorKind.DUPLICATE_SERVER_UUID,  # MariaDB
    # ours
    1064: ErrorKind.INTERNAL,
    1193: ErrorKind.INTERNAL,
    1835: ErrorKind.INTERNAL,  # malformed packet
}

_DAMAGED = (
    "look for the file and offset in the server's error log and with mysqlbinlog; if the disk is sound the file is not:"
    " PURGE it, and start the consumer behind it, or read from another host"
)
_REMEDY_BY_NUMBER = {
    29: _DAMAGED,
    1040: "raise max_connections on the server, or close connections",
    1047: "connect to the server itself, not to a proxy that passes no dumps on; a cluster's node may not be ready yet",
    1129: "run FLUSH HOSTS on the server and find out what fails to connect from here",
    1203: "raise max_user_connections, or give the consumers fewer connection keys",
    1226: "raise the account's resource limits (ALTER USER ... WITH MAX_USER_CONNECTIONS)",
    1381: "start the server with --log-bin",
    1524: "load the account's authentication plugin, or alter the account to caching_sha2_password",
    1698: "give the account a password; it can only log in by unix_socket now",
    1820: "set a new password: ALTER USER",
    1862: "set a new password: ALTER USER",
    2020: "connect to the server itself, if a proxy answers; a server with so many binlog files has to purge some",
    3032: "SET GLOBAL offline_mode = OFF on the server",
    3118: "unlock the account: ALTER USER ... ACCOUNT UNLOCK",
    3159: "the server accepts TLS only: set the consumer's tls.mode to preferred or stricter",
    4151: "unlock the account: ALTER USER ... ACCOUNT UNLOCK",
}

_SERVER_ID = "give the server a server_id other than 0"
_NO_GTID = (
    "the log holds transactions from before gtid_mode=ON: start the consumer behind them, at latest or at a GTID"
    " set from SHOW BINARY LOG STATUS"
)

# Lower-case fragments of 1236's texts; the first that occurs decides.
_LOG_FAULTS: tuple[tuple[str, ErrorKind, str | None], ...] = (
    ("same server_uuid", ErrorKind.DUPLICATE_SERVER_UUID, None),
    ("same server_id", ErrorKind.DUPLICATE_SERVER_UUID, None),
    # What the position needs is gone.
    ("purged required binary logs", ErrorKind.POSITION_PURGED, None),
    ("has purged binary logs containing gtids", ErrorKind.POSITION_PURGED, None),
    ("required binlog files have been purged", ErrorKind.POSITION_PURGED, None),
    ("could not find first log file name", ErrorKind.POSITION_PURGED, None),
    ("could not find next log", ErrorKind.POSITION_PURGED, None),
    # The position is not of this log.
    ("more gtids than the", ErrorKind.HISTORY_DIFFERS, None),
    ("is not in the master's binlog", ErrorKind.HISTORY_DIFFERS, None),
    ("binlog on the master is missing the gtid", ErrorKind.HISTORY_DIFFERS, None),
    ("slave gtid state not found in binlog", ErrorKind.HISTORY_DIFFERS, None),
    ("position > file size", ErrorKind.HISTORY_DIFFERS, None),
    ("impossible position", ErrorKind.HISTORY_DIFFERS, None),
    ("incorrect position in master binlog", ErrorKind.HISTORY_DIFFERS, None),
    # The server is not set up for it.
    ("binary log is not open", ErrorKind.SERVER_SETTING, "start the server with --log-bin"),
    ("server id was not set", ErrorKind.SERVER_SETTING, _SERVER_ID),
    ("server_id was not set", ErrorKind.SERVER_SETTING, _SERVER_ID),
    (
        "cannot start in auto_position mode",
        ErrorKind.SERVER_SETTING,
        "leave gtid_mode at ON while consumers hold GTID positions",
    ),
    (
        "cannot replicate gtid-transaction",
        ErrorKind.SERVER_SETTING,
        "the log holds transactions with GTIDs, which a server with gtid_mode=OFF does not send: set gtid_mode to"
        " OFF_PERMISSIVE or higher, or start the consumer behind them",
    ),
    ("cannot replicate anonymous transaction", ErrorKind.UNSUPPORTED_EVENT, _NO_GTID),
    # The server cannot read its own log.
    ("crc check", ErrorKind.CHECKSUM_MISMATCH, _DAMAGED),
    # A dump's own limit is 1 GiB, larger than any event: a size beyond it is none.
    ("exceeded max_allowed_packet", ErrorKind.SERVER_LOG, _DAMAGED),
    ("truncated in the middle of event", ErrorKind.SERVER_LOG, _DAMAGED),
    ("bogus data in log event", ErrorKind.SERVER_LOG, _DAMAGED),
    ("reading log event", ErrorKind.SERVER_LOG, _DAMAGED),
    ("could not find format_description_event", ErrorKind.SERVER_LOG, _DAMAGED),
    ("corrupt binlog", ErrorKind.SERVER_LOG, _DAMAGED),
    ("error reading header of binary log", ErrorKind.SERVER_LOG, _DAMAGED),
    ("failed to read the binary log index", ErrorKind.SERVER_LOG, _DAMAGED),
    ("could not open log file", ErrorKind.SERVER_LOG, _DAMAGED),
    ("bad magic number", ErrorKind.SERVER_LOG, _DAMAGED),
    ("reading the header from the binary log", ErrorKind.SERVER_LOG, _DAMAGED),
    (
        "failed to decrypt",
        ErrorKind.SERVER_LOG,
        "give the server its keyring back: it cannot decrypt its binlog",
    ),
    # We asked in a way that no server understands.
    ("checksum that", ErrorKind.INTERNAL, None),
    ("position < 4", ErrorKind.INTERNAL, None),
    ("malformed slave request", ErrorKind.INTERNAL, None),
)


def server_error(number: int, text: str, *, where: str = "") -> BinlogError:
    """The fault that a server's error packet (or PyMySQL's own number above 2000) stands for."""
    what = f"{text.strip()[:_TEXT_MAX].rstrip('.')} (MySQL error {number})"
    if number == FATAL_READING_LOG:
        lower = text.lower()
        for fragment, kind, remedy in _LOG_FAULTS:
            if fragment in lower:
                return BinlogError(kind, what, where=where, remedy=remedy)
    kind = _KIND_BY_NUMBER.get(number, ErrorKind.CONNECTION_LOST)
    return BinlogError(kind, what, where=where, remedy=_REMEDY_BY_NUMBER.get(number))


def client_error(error: pymysql.Error, *, where: str = "") -> BinlogError:
    """The same for an exception of PyMySQL, which keeps the exception as its cause."""
    cause = getattr(error, "original_exception", None)
    arguments = error.args
    if isinstance(cause, ssl.SSLError):
        fault = _tls_fault(cause, where)
    elif isinstance(cause, OSError):
        what = cause.strerror or str(cause) or type(cause).__name__
        fault = BinlogError(ErrorKind.CONNECT_FAILED, what, where=where)
    elif arguments and isinstance(arguments[0], int):
        fault = server_error(
            arguments[0], str(arguments[1]) if len(arguments) > 1 else "", where=where
        )
    else:
        fault = BinlogError(
            ErrorKind.CONNECTION_LOST, str(error) or type(error).__name__, where=where
        )
    fault.__cause__ = error
    return fault


def number_of(error: BinlogError) -> int:
    """The MySQL or MariaDB error that a fault stands for, as its cause tells; 0 where there is none."""
    cause = error.__cause__
    if isinstance(cause, pymysql.Error) and cause.args and isinstance(cause.args[0], int):
        return cause.args[0]
    return 0


def _tls_fault(error: ssl.SSLError, where: str) -> BinlogError:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the server's certificate is not trusted: {error.verify_message}"
        remedy = "point tls.ca at the CA that signed it, and connect by a host name that it names"
    else:
        what = f"no TLS connection: {getattr(error, 'reason', '') or error}"
        remedy = (
            "compare the server's tls_version and certificates with the consumer's tls settings"
        )
    return BinlogError(ErrorKind.CONNECT_FAILED, what, where=where, remedy=remedy)
