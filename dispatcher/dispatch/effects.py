"""What comes out of a client's `step`, to be executed in this order: one frozen class per thing to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.dispatch.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.specs import Progress
from dispatcher.dispatch.versions import Kept, LogPosition, Name


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a dispatcher's connection; wait before it about `after_s` seconds (the executor adds jitter).

    A number that is not known begins a new dispatcher. A dispatcher has one connection, or attempt to make one, at a
    time: Connect comes first of all for it, and then after each Lost, Ended or Close.
    """

    dispatcher: int
    after_s: float


@dataclass(frozen=True, slots=True)
class StartDump:
    """Ask the connection that logged in for the log from here on."""

    dispatcher: int
    mode: Mode
    place: ExecutedPosition


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, or give up the attempt to make one; nothing more of it is stepped. A Connect may follow, to
    another host of the source if there is one (`elsewhere`)."""

    dispatcher: int
    reason: str
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Retire:
    """The dispatcher is no more: as Close, and its number may be that of a new one from now on."""

    dispatcher: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Read nothing more until Resume; a new connection is not paused."""

    dispatcher: int


@dataclass(frozen=True, slots=True)
class Resume:
    dispatcher: int


@dataclass(frozen=True, slots=True)
class Store:
    """Make a consumer's progress durable. Nothing is handed to a reader before its first one is."""

    consumer: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class FetchSchema:
    """Ask the server for the definitions of tables, and read the log from `start` to there for statements that may
    alter them, or (`all_tables`) any table. Each is answered by a `LookedUp`, unless a newer one of its dispatcher has
    come, or that is no more."""

    dispatcher: int
    number: int
    tables: tuple[Name, ...]
    start: LogPosition
    all_tables: bool = False


@dataclass(frozen=True, slots=True)
class PollServer:
    """Ask the source what it holds, now; answered by a `Surveyed`. Asked again until one has come."""


@dataclass(frozen=True, slots=True)
class StoreVersions:
    """Make durable how far the log was read (`mark`), or (`kept`) that and all that is known of tables."""

    mark: LogPosition
    kept: Kept | None


@dataclass(frozen=True, slots=True)
class Wake:
    """Somebody may be waiting for this consumer: it has data, or its state changed."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

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
