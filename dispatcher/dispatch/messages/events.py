"""The inputs of `Client.step`: one frozen class per kind of event. The table lists the effects of each event, without
Notes.

| event | effects of its own |
|---|---|
| LoggedIn | StartDump, and Store for a new consumer; Close and Connect while a replica lags, or if servers differ |
| BatchReceived | Wake; Pause with FetchSchema or PollServer if the server must be asked first |
| Lost | Connect, after a backoff |
| Ended | Wake |
| ServerPolled | Close and Connect if the server's history differs; the effects of the held batch |
| SchemaFetched | the effects of the held batch, StoreVersions |
| LookUpDelayed | Connect, if the connection of the held batch is closed |
| SeekRequested, RelocationRequested | Store |
| Tick | Store and StoreVersions, at most once a second |
| DeliveryChanged | Wake |
| Added, Removed | none |
| Acknowledged | none; a Store if the queue was evicted before the position was stored |

After that, every step may return the effects of `DispatcherSet.settle`: Pause, Resume, Close, Connect, Retire, Wake.
Any event that fails a consumer adds a Note and a Wake.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.stream.batch import Batch
from dispatcher.dispatch.messages.effects import FetchSchema
from dispatcher.dispatch.tables.versions import AlteringStatement, FetchedDefinition
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ConsumerSpec, Progress, Start
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position


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
    """A dispatcher's connection, or the attempt to make one, has failed."""

    dispatcher: int
    error: BinlogError


@dataclass(frozen=True, slots=True)
class Ended:
    """A dispatcher has read the whole log, and nothing will be added to it. This happens for a folder of binlog files
    that is not followed."""

    dispatcher: int


@dataclass(frozen=True, slots=True)
class ServerPolled:
    """The source has described its present state over another connection than a dispatcher's. `expire_s`: the server
    purges a file this many seconds after it closed the file; None if it never purges by age."""

    view: ServerView
    expire_s: int | None


@dataclass(frozen=True, slots=True)
class Added:
    """The settings declare a new consumer. `progress`: the consumer's stored progress, None if none is stored, or the
    error if the progress cannot be read."""

    spec: ConsumerSpec
    progress: Progress | BinlogError | None
    delivery_paused: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """The settings no longer declare a consumer, or declare it with other settings.

    `changed`: True if its settings have changed. Then an `Added` with the new settings follows at once.
    """

    consumer: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A reader has acknowledged `position`, and the `Progress` that `Client.progress_after` returned for it is
    stored."""

    consumer: str
    position: Position
    covered: Position


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """A reader asks for a position outside its consumer's queue.

    `view`: the server's view, taken after the request, with the results of the searches that `seeking.seek_starts`
    requires; `fresh`: True if no session has been opened yet under this state store.
    """

    consumer: str
    after: Position
    view: ServerView
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RelocationRequested:
    """An administrator moves a consumer to a start.

    `view`: the server's view, taken after the request, with the result of the search for the start; `epoch_min`: the
    lowest number that the new epoch may have. The new epoch also exceeds the present one.
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
    | Tick
)
