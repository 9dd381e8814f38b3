"""What `Client.step` returns: a list of effects, which the runtime executes in this order. Each kind of effect is one
frozen class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.dispatch.tables.versions import LogPosition, Name, StoredVersions
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.values.specs import Progress


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a dispatcher's connection after about `after_s` seconds (the executor adds jitter).

    If the number is not known to the runtime, the dispatcher is new. A dispatcher has at most one connection, or
    attempt to connect, at a time. So its first effect is a Connect, and another Connect follows only after a Lost, an
    Ended or a Close.
    """

    dispatcher: int
    after_s: float


@dataclass(frozen=True, slots=True)
class StartDump:
    """Over the connection that logged in, request the log that follows `executed`."""

    dispatcher: int
    mode: Mode
    executed: ExecutedPosition


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, or stop the attempt to make one. After that, no event of this connection reaches the rules.

    A Connect may follow. `next_host`: True if this Connect must try the next host of a source with several hosts.
    """

    dispatcher: int
    reason: str
    next_host: bool = False


@dataclass(frozen=True, slots=True)
class Retire:
    """Close the connection as `Close` does, and forget the dispatcher. A later dispatcher may get the number of this
    dispatcher."""

    dispatcher: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop reading until `Resume`, or until the dispatcher opens a new connection, which starts unpaused."""

    dispatcher: int


@dataclass(frozen=True, slots=True)
class Resume:
    dispatcher: int


@dataclass(frozen=True, slots=True)
class Store:
    """Store a consumer's progress durably. Until the consumer's first progress is stored, the consumer's readers get
    nothing."""

    consumer: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class FetchSchema:
    """Ask the server for the definitions of tables, and read its log from `start` to the point for which the
    definitions are valid, to find statements that may alter these tables. `all_tables`: True to find the statements
    that may alter any table.

    A `SchemaFetched` answers the request, unless its dispatcher has sent a newer request or was retired.
    """

    dispatcher: int
    number: int
    tables: tuple[Name, ...]
    start: LogPosition
    all_tables: bool = False


@dataclass(frozen=True, slots=True)
class PollServer:
    """Ask the source for its `ServerView` now. If the source does not answer, ask again, until a `ServerPolled` was
    passed to `step`."""


@dataclass(frozen=True, slots=True)
class StoreVersions:
    """Store durably the position up to which the log was read and, unless it is None, `versions`: all known versions of
    tables."""

    position: LogPosition
    versions: StoredVersions | None


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake the readers that wait for this consumer: the consumer has data, or its state changed."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line to the log."""

    level: str
    event: str
    fields: Mapping[str, object]


Effect = (
    Connect
    | StartDump
    | Close
    | Retire
    | Pause
    | Resume
    | Store
    | FetchSchema
    | StoreVersions
    | PollServer
    | Wake
    | Note
)
