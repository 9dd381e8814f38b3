"""The inputs of `Client.step`: one frozen class per kind of event. The table lists the effects that each event
itself causes, without Notes.

| event | effects that it causes |
|---|---|
| LoggedIn | StartDump and Wake; Store for a consumer that begins or skips a gap; Close and Connect if a replica lags |
| BatchReceived | Wake; Pause with FetchSchema or PollServer, to ask the server; Close and Connect to log in again |
| Lost | Connect, which includes a backoff, and Wake; none if the connection was closed on purpose |
| Ended | Wake |
| ServerPolled | Close and Connect, if the server's history differs; the effects of the held batch |
| SchemaFetched | StoreVersions; the effects of the held batch |
| LookUpDelayed | none; but `settle` may return a Connect, if the connection of the held batch was closed |
| SeekRequested, RelocationRequested | Store; none if the reader's position lies in the queue |
| Tick | Store and StoreVersions, at most once a second |
| DeliveryChanged | Wake |
| ReaderDeclared | Wake, if a failed consumer continues |
| Added, Removed | none |
| Acknowledged | none; Store if the queue was evicted while the position was being stored |

After these effects, every step may return those of `DispatcherSet.settle`: Pause, Resume, Close, Connect, Retire, Wake.
A LoggedIn or ServerPolled may also cause a Close and a Connect for other dispatchers.
An event that fails a consumer also causes a Note and a Wake.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.dispatch.messages.effects import FetchSchema
from dispatcher.dispatch.tables.statements import AlteringStatement
from dispatcher.dispatch.tables.versions import FetchedDefinition
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ConsumerSpec, Progress, Start
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class LoggedIn:
    dispatcher: int
    view: ServerView


@dataclass(frozen=True, slots=True)
class BatchReceived:
    """A dispatcher's connection has delivered a batch. `created`: creation time of the batch's file, s since 1970."""

    dispatcher: int
    batch: Batch
    created: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A dispatcher's connection, or the attempt to open one, has failed."""

    dispatcher: int
    error: BinlogError


@dataclass(frozen=True, slots=True)
class Ended:
    """A dispatcher has read the whole log, and nothing will be added to it. This happens for a folder of binlog files
    that is not followed."""

    dispatcher: int


@dataclass(frozen=True, slots=True)
class ServerPolled:
    """The source has described its present state, over a connection that is not that of a dispatcher. `expire_s`: the
    server purges a file this many seconds after it closed the file; None if it never purges by age."""

    view: ServerView
    expire_s: int | None


@dataclass(frozen=True, slots=True)
class Added:
    """A new consumer is declared, in the settings or over the API. `progress`: the consumer's stored progress, None if
    none is stored, or the error if the progress cannot be read."""

    spec: ConsumerSpec
    progress: Progress | BinlogError | None
    delivery_paused: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """A consumer is no longer declared, or is declared with other settings.

    `changed`: True if the consumer is declared with other settings. Then an `Added` with the new settings follows at
    once.
    """

    consumer: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A reader has acknowledged `position`, and the `Progress` that `Client.progress_after` returned for this position
    is stored. `covered`: the covered position in that `Progress`."""

    consumer: str
    position: Position
    covered: Position


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """A reader asks for a position outside its consumer's queue.

    `view`: the server's view, taken after the request, with the results of the searches that `seeking.seek_starts`
    requires; `fresh`: True if this state store has recorded no session of the consumer yet.
    """

    consumer: str
    after: Position
    view: ServerView
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RelocationRequested:
    """An administrator moves a consumer to a start.

    `view`: the server's view, taken after the request, with the result of the search for the start; `epoch_min`: the
    lowest number that the new epoch may have. The new epoch is also higher than the consumer's present epoch.
    """

    consumer: str
    start: Start
    view: ServerView
    epoch_min: int


@dataclass(frozen=True, slots=True)
class DeliveryChanged:
    """An administrator pauses the delivery to a consumer's reader, or resumes it."""

    consumer: str
    paused: bool


@dataclass(frozen=True, slots=True)
class ReaderDeclared:
    """The reader of a consumer's newest session has declared whether it understands TABLE_MAPs that are marked as
    unknown."""

    consumer: str
    takes_unknown: bool


@dataclass(frozen=True, slots=True)
class SchemaFetched:
    """The answer to a `FetchSchema`: the definitions of the tables, and every statement that may have altered one of
    the tables between `request.start` and the points of the definitions."""

    request: FetchSchema  # contains the number of the dispatcher
    definitions: tuple[FetchedDefinition, ...]
    statements: tuple[AlteringStatement, ...]


@dataclass(frozen=True, slots=True)
class LookUpDelayed:
    """The server could not answer a `FetchSchema`. The runtime asks again, as long as `awaits_look_up` is True."""

    request: FetchSchema
    error: BinlogError


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `Client.next_wakeup` returned has come."""


OfDispatcher = LoggedIn | BatchReceived | Lost | Ended | SchemaFetched | LookUpDelayed
Input = (
    OfDispatcher
    | ServerPolled
    | Added
    | Removed
    | Acknowledged
    | SeekRequested
    | RelocationRequested
    | DeliveryChanged
    | ReaderDeclared
    | Tick
)
