"""What goes into a client's `step`, and the effects that come out of it.

Effects are executed in the order they stand in. Plain frozen values, one class per thing that can happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dispatcher.binlog.batch import Batch
from dispatcher.dispatch.history import Mode, Place
from dispatcher.dispatch.versions import Found, Kept, Mark, Name, Touched
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer without a stored position begins: `earliest`, `latest`, a GTID set (`gtid`), a file and offset
    (`file`), or the first transaction that was committed at or after a moment (`timestamp`)."""

    at: str = "latest"
    gtid: str = ""
    file: str = ""
    offset: int = 4
    timestamp_us: int = 0  # microseconds since 1970 UTC


class OnQueueFull(StrEnum):
    """What is done about a consumer whose queue stays full while others ride on its dispatcher."""

    DETACH = "detach"  # wait for it on its budget, then go on without it
    WAIT = "wait"  # everybody waits, without limit


class OnPurged(StrEnum):
    """What is done about a consumer whose place the server has purged."""

    FAIL = "fail"
    LATEST = "latest"  # go on at the end of the log, in a new epoch


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """`wait_max_s`: the largest budget of waiting for its full queue."""

    name: str
    databases: tuple[str, ...]
    tables: tuple[tuple[str, str], ...] | None
    queue_bytes_max: int
    start: Start = field(default_factory=Start)
    # Take a table's current definition where the log does not tell that of its time.
    assume_current_schema: bool = False
    wait_max_s: float = 10.0
    on_queue_full: OnQueueFull = OnQueueFull.DETACH
    on_purged: OnPurged = OnPurged.FAIL


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What belongs to a connection key. `merge_bytes_max`: consumers this far apart, in bytes of binlog, ride together;
    `queues_bytes_max`: memory of all its queues, 0 = only their own limits; `failover_wait_s`: how long another server
    may take to come to where the consumers are."""

    merge_bytes_max: int = 1 << 20
    queues_bytes_max: int = 0
    failover_wait_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What the state store knows of a consumer. `created`: creation time of `covered.file`, 0 = unknown; negative where
    transactions of `covered` may lie behind its file and offset (see `Queue.is_anchored`)."""

    acknowledged: Position
    covered: Position
    created: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a server's log has at an offset of a file. `whole`: an event begins there, or the file ends there; `gtid`:
    source and number of the transaction that begins there, None where none begins or it has no MySQL GTID."""

    whole: bool
    gtid: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """What a server says of itself before a dump. `created`: creation times of the files that were asked for;
    `knows_tables`: can it be asked for the definition of a table? `boundaries`: of the files and offsets that were
    asked for, as far as the server could be asked."""

    server: str
    mode: Mode
    executed: str
    purged: str
    files: tuple[tuple[str, int], ...]
    file: str
    offset: int
    created: Mapping[str, int]
    knows_tables: bool = True
    # What starts that the log was searched for mean here; an error where one means nothing, such as an offset inside a
    # transaction.
    starts: Mapping[Start, Place | BinlogError] = field(default_factory=dict)
    boundaries: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)


# -- inputs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoggedIn:
    dispatcher: int
    view: ServerView


@dataclass(frozen=True, slots=True)
class Arrived:
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
class Surveyed:
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
class Sought:
    """A reader brings a position of its own. `view`: what the server said of itself after that, with the results of the
    searches that `seeking.starts` asks for; `fresh`: True if no session was opened yet under this state store."""

    consumer: str
    after: Position
    view: ServerView
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Relocated:
    """An administrator moves a consumer to a start. `view`: what the server said of itself after that, with the start's
    place where the log has to be searched for it; `epoch_min`: of the new epoch, which is after the present one."""

    consumer: str
    start: Start
    view: ServerView
    epoch_min: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The answer to a `LookUp`: what was found of each table, and every statement between there and `order.start` that
    may have altered one."""

    order: LookUp  # names the dispatcher
    found: tuple[Found, ...]
    touches: tuple[Touched, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    pass


# -- effects --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a dispatcher's connection; wait before it about `after_s` seconds (the executor adds jitter).

    A number that is not known begins a new dispatcher. A dispatcher has one connection, or attempt to make one, at a
    time: Connect comes first of all for it, and then after each Lost, Ended or Close.
    """

    dispatcher: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Dump:
    """Ask the connection that logged in for the log from here on."""

    dispatcher: int
    mode: Mode
    place: Place


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
class LookUp:
    """Ask the server for the definitions of tables, and read the log from `start` to there for statements that may
    alter them, or (`all_tables`) any table. Each is answered by a `LookedUp`, unless a newer one of its dispatcher has
    come, or that is no more."""

    dispatcher: int
    number: int
    tables: tuple[Name, ...]
    start: Mark
    all_tables: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """Ask the source what it holds, now; answered by a `Surveyed`. Asked again until one has come."""


@dataclass(frozen=True, slots=True)
class StoreVersions:
    """Make durable how far the log was read (`mark`), or (`kept`) that and all that is known of tables."""

    mark: Mark
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
    | Dump
    | Close
    | Retire
    | Pause
    | Resume
    | Store
    | LookUp
    | StoreVersions
    | Survey
    | Wake
    | Note
)
OfDispatcher = LoggedIn | Arrived | Lost | Ended | LookedUp
Input = OfDispatcher | Surveyed | Added | Removed | Acknowledged | Sought | Relocated | Tick
