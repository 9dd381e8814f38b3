"""What goes into a client's `step`: one frozen class per thing that can happen."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.binlog.stream.batch import Batch
from dispatcher.dispatch.effects import FetchSchema
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import ConsumerSpec, Progress, Start
from dispatcher.dispatch.versions import FetchedDefinition, Touched
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position


@dataclass(frozen=True, slots=True)
class LoggedIn:
    dispatcher: int
    view: ServerView


@dataclass(frozen=True, slots=True)
class BatchReceived:
    """A batch of a dispatcher's connection; `created`: creation time of its file."""

    dispatcher: int
    batch: Batch
    created: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A dispatcher's connection, or the attempt to make one, ended."""

    dispatcher: int
    error: BinlogError


@dataclass(frozen=True, slots=True)
class Ended:
    """The log has come to its end, and nothing will follow, as in a folder of files that is not followed."""

    dispatcher: int


@dataclass(frozen=True, slots=True)
class ServerPolled:
    """What the source says of itself now, asked for now and then beside its dispatchers: where its log ends, its files,
    and (`expire_s`, None = never by age) after how many seconds it purges one that is closed."""

    view: ServerView
    expire_s: int | None


@dataclass(frozen=True, slots=True)
class Added:
    """A consumer is declared. `progress`: what is stored of it, or why that cannot be read."""

    spec: ConsumerSpec
    progress: Progress | BinlogError | None


@dataclass(frozen=True, slots=True)
class Removed:
    """A consumer is declared no longer. One that is changed is removed, and added as it is now."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A reader's acknowledgement that is stored already, with how far nothing of the consumer's own lies."""

    consumer: str
    position: Position
    covered: Position


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """A reader brings a position of its own. `view`: what the server said of itself after that, with the results of the
    searches that `seeking.starts` asks for; `fresh`: True if no session was opened yet under this state store."""

    consumer: str
    after: Position
    view: ServerView
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RelocationRequested:
    """An administrator moves a consumer to a start. `view`: what the server said of itself after that, with the start's
    place where the log has to be searched for it; `epoch_min`: of the new epoch, which is after the present one."""

    consumer: str
    start: Start
    view: ServerView
    epoch_min: int


@dataclass(frozen=True, slots=True)
class SchemaFetched:
    """The answer to a `FetchSchema`: what was found of each table, and every statement between `order.start` and there
    that may have altered one."""

    order: FetchSchema  # names the dispatcher
    found: tuple[FetchedDefinition, ...]
    touches: tuple[Touched, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    pass


OfDispatcher = LoggedIn | BatchReceived | Lost | Ended | SchemaFetched
Input = (
    OfDispatcher
    | ServerPolled
    | Added
    | Removed
    | Acknowledged
    | SeekRequested
    | RelocationRequested
    | Tick
)
