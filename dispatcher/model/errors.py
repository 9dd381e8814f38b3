"""The exception class of the project, and the policy for each kind of fault.

Code reacts to the *kind* of a fault, never to its text. So the kinds are an enum, and `POLICY` maps each kind to an
action and to a remedy for people. Callers catch only `BinlogError`. Its subclass `UserError` marks invalid input from
the command line, the settings or an HTTP request. A `UserError` leads to exit code 2 or a 4xx answer, any other
`BinlogError` of a command to exit code 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatcher.model.printable import printable


class Action(StrEnum):
    """The reaction to a fault."""

    RETRY = "retry"  # the daemon reconnects with backoff
    OPERATOR = "operator"  # a person must act; the daemon keeps trying slowly
    FATAL = "fatal"  # a person must act; the consumer stays failed until its settings change or the daemon restarts
    REFUSE = "refuse"  # the caller must act; its request is answered with the error, and nothing else changes


class ErrorKind(StrEnum):
    """Every kind of fault."""

    # faults of the bytes of a log
    MALFORMED_EVENT = "malformed event"
    CHECKSUM_MISMATCH = "checksum mismatch"
    UNSUPPORTED_EVENT = "unsupported event"
    UNSUPPORTED_TYPE = "unsupported column type"
    METADATA_MISSING = "table metadata missing"
    ROW_IMAGE = "row image incomplete"
    STATEMENT_FORMAT = "statement in a row-format log"
    PREPARED = "prepared XA transaction"
    INVALID_VALUE = "value that the target cannot hold"
    # faults of the server
    CONNECT_FAILED = "cannot connect"
    CONNECTION_LOST = "connection lost"
    ACCESS_DENIED = "access denied"
    GRANT_MISSING = "grant missing"
    SERVER_SETTING = "server setting"
    SERVER_LOG = "server cannot read its log"
    POSITION_PURGED = "position purged"
    HISTORY_DIFFERS = "server history differs"
    DUPLICATE_SERVER_UUID = "another replica with the same identity"
    FILES = "binlog files"
    # faults in requests of readers
    UNKNOWN_CONSUMER = "unknown consumer"
    CONSUMER_EXISTS = "consumer exists"
    UNKNOWN_TABLE = "unknown table"
    SESSION_FENCED = "session fenced"
    POSITION_UNKNOWN = "position unknown"
    RANGE_UNAVAILABLE = "range not available yet"
    NOT_LEADER = "not the leader"
    OTHER_LAYOUT = "rows of another layout"
    UNAUTHORIZED = "not authorized"
    FORBIDDEN = "not allowed"
    TOO_MANY_REQUESTS = "too many requests"
    REQUEST = "request"
    # faults of the daemon itself, or of the Spark sink
    SETTINGS = "settings"
    STATE_STORE = "state store"
    STORED_POSITION = "stored position unreadable"
    SPILL = "spill"
    UNSUPPORTED_CHANGE = "table change that the mirror cannot apply"
    TARGET_FILES = "files of the mirror's target"
    INTERNAL = "internal error"


@dataclass(frozen=True, slots=True)
class Policy:
    """The reaction to a kind of fault, and the remedy for people."""

    action: Action
    remedy: str


# Commands in remedies. In the library, `BinlogClient.forget` corresponds to FORGET.
SEEK = "binlog-dispatcher consumers seek NAME --to POSITION"
FORGET = "binlog-dispatcher consumers forget NAME"


def full_metadata(mariadb: bool | None = None) -> str:
    """Return the remedy for a log that does not name columns. `mariadb`: None if the kind of the server is not known.
    MariaDB has no SET PERSIST."""
    if mariadb is None:
        return (
            "set binlog_row_metadata=FULL on the server (MySQL 8.0.14 or newer: by SET PERSIST; MariaDB 10.5 or newer:"
            " by SET GLOBAL and in its option file)"
        )
    if mariadb:
        return "SET GLOBAL binlog_row_metadata=FULL and the same in the server's option file (MariaDB 10.5 or newer)"
    return "SET PERSIST binlog_row_metadata=FULL on the server (MySQL 8.0.14 or newer)"


def with_name(text: str, consumer: str) -> str:
    """Return a remedy with the consumer's name in place of NAME in its commands."""
    for command in (SEEK, FORGET):
        text = text.replace(command, command.replace("NAME", consumer))
    return text


POLICY: dict[ErrorKind, Policy] = {
    ErrorKind.MALFORMED_EVENT: Policy(
        Action.FATAL,
        "the log is damaged or of an unknown version; inspect the position with mysqlbinlog, then move the consumer"
        f" past it: {SEEK}",
    ),
    ErrorKind.CHECKSUM_MISMATCH: Policy(
        Action.RETRY,
        "bytes were damaged in transit or on disk; if it repeats at one position, the file is damaged",
    ),
    ErrorKind.UNSUPPORTED_EVENT: Policy(
        Action.FATAL,
        "disable the server feature that writes this event, then move the consumer past the event:"
        f" {SEEK}",
    ),
    ErrorKind.UNSUPPORTED_TYPE: Policy(
        Action.FATAL, "leave the table out of the consumer's tables, or change the column's type"
    ),
    ErrorKind.METADATA_MISSING: Policy(Action.FATAL, full_metadata()),
    ErrorKind.ROW_IMAGE: Policy(
        Action.FATAL,
        "SET PERSIST binlog_row_image=FULL on the server and for every session, copy the table afresh, then move the"
        f" consumer to the copy's position: {SEEK}",
    ),
    ErrorKind.STATEMENT_FORMAT: Policy(
        Action.FATAL,
        "set binlog_format=ROW on the server and for every session, then move the consumer past the statement:"
        f" {SEEK}",
    ),
    ErrorKind.PREPARED: Policy(
        Action.FATAL,
        "the daemon does not have the rows of a prepared XA transaction: move the consumer before its XA PREPARE:"
        f" {SEEK}",
    ),
    ErrorKind.INVALID_VALUE: Policy(
        Action.FATAL, "correct the value on the server or leave the table out"
    ),
    ErrorKind.CONNECT_FAILED: Policy(
        Action.RETRY, "check host, port and firewall, and that the server is running"
    ),
    ErrorKind.CONNECTION_LOST: Policy(
        Action.RETRY, "nothing to do; the daemon reconnects and continues where it stopped"
    ),
    ErrorKind.ACCESS_DENIED: Policy(
        Action.OPERATOR, "check user, password and the account's host part"
    ),
    ErrorKind.GRANT_MISSING: Policy(
        Action.OPERATOR, "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO the user"
    ),
    ErrorKind.SERVER_SETTING: Policy(
        Action.OPERATOR, "change the server's setting as the message says"
    ),
    ErrorKind.SERVER_LOG: Policy(
        Action.OPERATOR, "read the server's error log: its binlog files or their disk are damaged"
    ),
    ErrorKind.POSITION_PURGED: Policy(
        Action.FATAL,
        "the server no longer has the log from this position: copy the tables afresh, then move the consumer to the"
        f" copy's position: {SEEK}; keep binlogs longer (binlog_expire_logs_seconds)",
    ),
    ErrorKind.HISTORY_DIFFERS: Policy(
        Action.FATAL,
        "the server's log is not the one that this consumer has read (RESET, restore or another server): copy the"
        f" tables afresh, then move the consumer to the copy's position: {SEEK}; or to its start: {FORGET}",
    ),
    ErrorKind.DUPLICATE_SERVER_UUID: Policy(
        Action.OPERATOR,
        "stop the other daemon: it runs with a copy of this state store",
    ),
    ErrorKind.FILES: Policy(
        Action.OPERATOR,
        "put whole binlog files into the folder, without gaps between the first and the last",
    ),
    ErrorKind.UNKNOWN_CONSUMER: Policy(
        Action.REFUSE,
        "declare the consumer in the daemon's settings; binlog-dispatcher binlogs lists those that it has",
    ),
    ErrorKind.CONSUMER_EXISTS: Policy(
        Action.REFUSE,
        "declare it as it is, choose another name, or delete it first (DELETE /v1/consumers/NAME)",
    ),
    ErrorKind.UNKNOWN_TABLE: Policy(
        Action.REFUSE,
        "compare the names (case-sensitive) with the consumer's databases and tables, and GRANT SELECT on the table",
    ),
    ErrorKind.SESSION_FENCED: Policy(
        Action.REFUSE,
        "a newer session reads this consumer; declare a second consumer for a second reader",
    ),
    ErrorKind.POSITION_UNKNOWN: Policy(
        Action.REFUSE,
        "pass a position that this consumer returned and that is not older than the acknowledged one",
    ),
    ErrorKind.RANGE_UNAVAILABLE: Policy(
        Action.RETRY, "try again; the daemon is reading the range from the server"
    ),
    ErrorKind.NOT_LEADER: Policy(
        Action.RETRY,
        "send the request to the leader; if there is none, a standby takes over when the lease has expired",
    ),
    ErrorKind.OTHER_LAYOUT: Policy(
        Action.FATAL, "start the query again: it then has the table's present columns"
    ),
    ErrorKind.UNAUTHORIZED: Policy(
        Action.REFUSE, "send 'Authorization: Bearer <token>' with a token for this consumer"
    ),
    ErrorKind.FORBIDDEN: Policy(
        Action.REFUSE,
        "use a token that has the scope; the daemon's api.tokens name each token's scopes",
    ),
    ErrorKind.TOO_MANY_REQUESTS: Policy(
        Action.REFUSE, "try again after the seconds of Retry-After, with fewer requests at a time"
    ),
    ErrorKind.REQUEST: Policy(
        Action.REFUSE, "correct the request; /docs and docs/http-api.md show its form"
    ),
    ErrorKind.SETTINGS: Policy(Action.REFUSE, "correct the settings"),
    ErrorKind.STATE_STORE: Policy(
        Action.OPERATOR, "check the state directory: owner, free space, file system"
    ),
    ErrorKind.STORED_POSITION: Policy(
        Action.FATAL,
        f"open a session at a position that the reader has stored, or move the consumer: {SEEK}; or to its start:"
        f" {FORGET}",
    ),
    ErrorKind.SPILL: Policy(
        Action.OPERATOR,
        "free space for the whole transaction on the disk of the state directory, or raise the consumer's"
        " max_bytes_in_binlog_queue above it and reload; the daemon tries again",
    ),
    ErrorKind.UNSUPPORTED_CHANGE: Policy(
        Action.FATAL,
        "apply the change to the mirrored table by hand, or drop the mirrored table to copy it afresh",
    ),
    ErrorKind.TARGET_FILES: Policy(
        Action.FATAL, "put the files back as they were, or copy the tables that need them again"
    ),
    ErrorKind.INTERNAL: Policy(
        Action.FATAL, "this is a bug in binlog-dispatcher; please report it with the log"
    ),
}


class BinlogError(Exception):
    """A fault: what happened, where, and the remedy.

    `what`: the details. `where`: consumer, server, file and offset. `remedy`: a more precise remedy that replaces the
    remedy of `POLICY`. `str()` returns the line that is shown to people. Parts of the texts may come from servers,
    files and tables, so the constructor escapes control characters (`dispatcher.model.printable`).
    """

    def __init__(
        self, kind: ErrorKind, what: str, *, where: str = "", remedy: str | None = None
    ) -> None:
        super().__init__(kind, what, where, remedy)
        self.kind = kind
        self.what = self._shown(what)
        self.where = printable(where)
        self.remedy = POLICY[kind].remedy if remedy is None else printable(remedy)

    @staticmethod
    def _shown(what: str) -> str:
        return printable(what)

    @property
    def action(self) -> Action:
        return POLICY[self.kind].action

    def at(self, where: str) -> BinlogError:
        """Return a copy of the fault in which `where` stands before the fault's own place. So the outermost place comes
        first."""
        place = f"{where}, {self.where}" if self.where else where
        error = type(self)(self.kind, self.what, where=place, remedy=self.remedy)
        error.__cause__ = self.__cause__
        return error

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.kind.value}: {self.what}{place}; {self.remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions. The default `__reduce__` would lose the keyword-only arguments.
        return (_rebuild, (type(self), self.kind, self.what, self.where, self.remedy))


class UserError(BinlogError):
    """Invalid input from a person. Leads to exit code 2 or a 4xx answer."""


class NotLeaderError(BinlogError):
    """The daemon is a standby, or is no longer the leader. `leader`: the address of the leader, "" if it is not
    known."""

    leader = ""

    @classmethod
    def of(cls, leader: str) -> NotLeaderError:
        what = f"{leader} leads" if leader else "no daemon leads now"
        error = cls(ErrorKind.NOT_LEADER, what)
        error.leader = leader
        return error


def _rebuild(
    cls: type[BinlogError], kind: ErrorKind, what: str, where: str, remedy: str
) -> BinlogError:
    return cls(kind, what, where=where, remedy=remedy)
