"""The bodies of requests and answers, and the interfaces that the routes call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from dispatcher.dispatch.queue.reader_sessions import ReaderSessions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.leadership.role import Role
from dispatcher.model import position
from dispatcher.settings.model import StartSettings

INTEGER_MAX = 2**63 - 1
Natural = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
# The name of a binlog file as in SHOW BINARY LOGS: no folder, a number at the end. "" = unknown.
_FILE = r"^(?:[^/\x00-\x1f\x7f]+\.[0-9]{1,18})?$"
POLL_MAX_MS = 60_000
SLICES_MAX = 1024


def printable_text(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it contains a character that is not printable")
    return text


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PositionBody(RequestBody):
    """A position between two transactions. Pass it back unchanged."""

    server: Annotated[str, Field(max_length=position.SERVER_MAX, pattern=r"^[\x21-\x7e]*$")]
    gtid: Annotated[str, Field(max_length=position.GTID_MAX, pattern=r"^[0-9A-Za-z_:, -]*$")]
    file: Annotated[
        str, Field(max_length=position.FILE_MAX, pattern=_FILE), AfterValidator(printable_text)
    ]
    offset: Natural
    seq: Natural
    epoch: Annotated[int, Field(ge=0, le=position.EPOCH_MAX)]

    def value(self) -> position.Position:
        return position.Position(
            self.server, self.gtid, self.file, self.offset, self.seq, self.epoch
        )


class _ReaderRequest(RequestBody):
    """`unknown_definitions`: True if the reader understands TABLE_MAP events with the field 0xBF, which says that the
    table's definition is not known. The consumer then does not fail at such a table. A session that is opened without
    it ends this."""

    unknown_definitions: bool = False


class SessionRequest(_ReaderRequest):
    after: PositionBody | None = None
    read_only: bool = False


class ToGtid(RequestBody):
    """Just after this executed GTID set; MariaDB: domain-server-sequence per domain."""

    gtid: str = Field(max_length=1 << 20)


class ToFile(RequestBody):
    """A position in a binlog file at which a transaction begins."""

    file: str = Field(min_length=1, max_length=255)
    offset: Natural


class ToTimestamp(RequestBody):
    """The first transaction that was committed at this time or later. The time is in ISO 8601, and in UTC if it has no
    offset."""

    timestamp: str = Field(max_length=64)


class StartRequest(RequestBody):
    """`to`: a place in the server's log."""

    to: Literal["earliest", "latest"] | ToGtid | ToFile | ToTimestamp

    @field_validator("to")
    @classmethod
    def _is_a_start(cls, value: str | BaseModel) -> str | BaseModel:
        checked_start(value)
        return value

    @property
    def start(self) -> StartSettings:
        return checked_start(self.to)


def checked_start(to: str | BaseModel) -> StartSettings:
    """Raises ValueError."""
    return StartSettings.parse(to if isinstance(to, str) else to.model_dump())


class ResolveRequest(StartRequest):
    """The place whose position is wanted."""


class ResolvedAnswer(BaseModel):
    """`position`: the position of the place, in the consumer's present epoch."""

    position: PositionBody


class SessionAnswer(BaseModel):
    """`gap`: True if the server purged transactions after `after`; the consumer continues after these transactions.
    `lower_case_table_names`: the setting of the server, null until the daemon has logged in."""

    session: int
    position: PositionBody
    head: PositionBody
    max_bytes_in_binlog_queue: int
    gap: bool
    lower_case_table_names: int | None


class PollRequest(_ReaderRequest):
    """`max_bytes` and `max_transactions` limit the range. `min_bytes`: the poll waits up to `wait_ms` until the range
    has this many bytes."""

    session: Natural
    after: PositionBody
    max_bytes: Natural | None = None
    wait_ms: Annotated[int, Field(ge=0, le=POLL_MAX_MS)] = 0
    markers: bool = False
    min_bytes: Natural = 0
    max_transactions: Annotated[int, Field(ge=1, le=INTEGER_MAX)] | None = None


class PollAnswer(BaseModel):
    """`gap`: True if the server purged transactions after `after`; the consumer continues at `end`. `paused`: True if
    an administrator has paused the delivery; until an administrator resumes it, `end` is equal to `after`.

    `lag_...`: how far `end` is behind the end of the server's log. `lag_transactions`: transactions of the whole log,
    null without MySQL's GTIDs; `lag_bytes`: bytes of the log, null if not known; `lag_seconds`: age of the consumer's
    first transaction after the range.
    """

    end: PositionBody
    head: PositionBody
    bytes: int
    transactions: int
    gap: bool
    paused: bool
    lag_transactions: int | None
    lag_bytes: int | None
    lag_seconds: float


class EventBody(RequestBody):
    """A point inside of the transaction that ends at the position beside it. Pass it back unchanged.

    `index`: the index of the event after the point, in the transaction as the daemon delivers it; `offset`: the number
    of bytes of the events before the point.
    """

    index: Natural
    offset: Natural

    def value(self) -> position.EventPoint:
        return position.EventPoint(self.index, self.offset)


class _PositionRange(RequestBody):
    session: Natural
    start: PositionBody
    end: PositionBody


class RangeRequest(_PositionRange, _ReaderRequest):
    start_event: EventBody | None = None
    end_event: EventBody | None = None


class SlicesRequest(_PositionRange):
    """`inside`: True if large transactions may be divided, too."""

    n: Annotated[int, Field(ge=1, le=SLICES_MAX)]
    inside: bool = False


class SlicesAnswer(BaseModel):
    """`events`: for each cut, the point inside of the transaction that ends at the position, or null if the cut is the
    position itself; `bytes`: the size of the whole range."""

    cuts: list[PositionBody]
    events: list[EventBody | None]
    bytes: int


class AckRequest(RequestBody):
    session: Natural
    position: PositionBody


class AckAnswer(BaseModel):
    acknowledged: PositionBody


class ColumnBody(BaseModel):
    name: str
    mysql_type: str
    nullable: bool
    charset: str | None


class TableAnswer(BaseModel):
    """`key`: the primary key; without a primary key, the first UNIQUE key with only NOT NULL columns; empty if there is
    no such key."""

    database: str
    table: str
    columns: list[ColumnBody]
    key: list[str]


class ConsumerRow(BaseModel):
    """One consumer. `size` counts the events in its queue; the other sizes are in bytes. Fields that end in
    `_timestamp` are in seconds since 1970. `runway_seconds`: null if the server never purges its log by age, or if not
    known.

    `state_store_error` is equal in all rows. It says why the daemon cannot store positions, and therefore refuses
    acknowledgements with 503; null if the daemon can store positions.

    `reader` and the fields after it describe the newest session (0: there was none). An age is null if the session has
    not made such a call since the daemon started.

    `declared_by`: the name of the token that has declared the consumer over the API ("" without tokens); null for a
    consumer of the settings.
    """

    binlog_client_name: str
    name: str
    mysql_binlog_name: str
    mysql_binlog_pos: int
    mysql_binlog_timestamp: int
    mysql_binlog_executed_gtid_set: str
    dispatcher_name: str
    dispatcher_mysql_binlog_name: str
    dispatcher_mysql_binlog_pos: int
    dispatcher_mysql_binlog_timestamp: int
    dispatcher_mysql_binlog_executed_gtid_set: str
    size: int
    bytes: int
    max_bytes: int
    max_waiting_ms: int
    dispatcher_events_read_per_sec: float
    dispatcher_bytes_read_per_sec: float
    dispatcher_events_flush_per_sec: float
    dispatcher_bytes_flush_per_sec: float
    state: str
    lag_seconds: float
    lag_bytes: int | None
    unacknowledged_bytes: int
    acknowledged: PositionBody | None
    covered: PositionBody | None
    runway_seconds: float | None
    detaches: int
    gaps: int
    spilled_bytes: int
    last_error: str | None
    last_error_kind: str | None
    last_error_remedy: str | None
    state_store_error: str | None
    state_store_remedy: str | None
    reader: str
    reader_address: str | None
    reader_user_agent: str | None
    session: int
    session_age_seconds: float | None
    poll_age_seconds: float | None
    acknowledgement_age_seconds: float | None
    delivered_transactions: int
    delivered_bytes: int
    delivered_transactions_per_sec: float
    delivered_bytes_per_sec: float
    declared_by: str | None
    warnings: list[str]


class Problem(BaseModel):
    """A problem document (RFC 9457). `kind` identifies the error, `hint` says what to do.

    `leader`: the address of the leader, null if there is none. Only answers of the kind NOT_LEADER have this field.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    kind: str
    hint: str
    leader: str | None = None


class LeaderAnswer(BaseModel):
    """Which of several daemons with one state store leads. A daemon with its state in a file always leads.

    `role`: the role of this daemon; `term`: grows with each new leader, null for a daemon with its state in a file, or
    if no leader is known; `leader`: the address of the leader, null for a daemon with its state in a file, or if there
    is no leader.
    """

    role: Literal["leader", "standby"]
    term: int | None
    leader: str | None


class ConsumerService(ReaderSessions, Protocol):
    """The methods with which routes read consumers. Every method may raise BinlogError."""

    async def resolve(self, name: str, to: StartSettings) -> dict[str, Any]: ...

    async def slices(
        self,
        name: str,
        number: int,
        start: position.Position,
        end: position.Position,
        n: int,
        inside: bool = False,
    ) -> dict[str, Any]: ...

    async def table(self, name: str, database: str, table: str) -> dict[str, Any]: ...

    def rows(self) -> AsyncIterator[dict[str, Any]]: ...

    def is_newest_session(self, name: str, number: int) -> bool:
        """True if `number` is that of the consumer's newest session; False for a read-only session."""
        ...


Consumers = Callable[[], ConsumerService]
"""Returns the service of the consumers. Raises NotLeaderError if this daemon does not lead."""

RenderMetrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns (text, content type)."""


class Administrator(Protocol):
    """The methods with which routes administer consumers. Every method may raise BinlogError. The methods that move a
    consumer return its new position."""

    async def set_paused(self, name: str, paused: bool) -> None: ...

    async def forget(self, name: str) -> dict[str, Any]: ...

    async def seek(self, name: str, to: StartSettings) -> dict[str, Any]: ...


class Declarer(Protocol):
    """The methods with which routes declare and remove consumers. Every method may raise BinlogError; see
    `runtime.declarations`."""

    async def declare(
        self, wanted: Declaration, permitted: Collection[str] | None
    ) -> tuple[Declaration, bool]: ...

    async def remove(self, name: str, owner: str | None) -> None: ...

    async def table(
        self, source_name: str | None, permitted: Collection[str] | None, database: str, table: str
    ) -> dict[str, Any]: ...


GetRole = Callable[[], Role | None]
"""Returns the role of this daemon; None if its state is in a file."""

GetAdministrator = Callable[[], Administrator]
"""Raises NotLeaderError if this daemon does not lead."""

GetDeclarer = Callable[[], Declarer]
"""Raises NotLeaderError if this daemon does not lead."""
