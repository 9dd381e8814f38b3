"""The rules of a stream that begins with the existing rows of the tables. Pure.

The stream has a position P: for every change up to P, it has delivered the change or omitted it on purpose. There are
two kinds of batches:

- *Changes* move P forward. The stream omits a change if the changed row is not read yet, because it will read this row
  later in a state that contains the change.
- *Rows* are the rows of one chunk, a range of a table's key, in their state at P. The server returns the rows in their
  state at a later position E. So the stream omits the rows that have changed between P and E. The changes of these rows
  lie after P, and later batches deliver them.

So the stream delivers each row once, in its state at some P, and each later change of this row once, in order. If a
chunk is read again, the attempt delivers the same rows in the same state, except the rows that have changed meanwhile.
So a sink may keep the rows of any attempt: they are older than all changes that the stream delivers later. The rules
need full row images.

If a process is killed after it has planned a chunk, the next process may be unable to read the chunk, because the
changes between P and E no longer fit into the consumer's queue. Then the chunk's batch gets no rows, and the chunk is
read again at a later P. So a chunk is *settled* only when the batch after it is planned. Until then, the stream also
delivers changes of the chunk's rows, because the sink may already have these rows.

The stream reads tables in the order of their names. So an offset contains only one table name and two keys, for any
number of tables and chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import Position

TableName = tuple[str, str]
Bound = tuple[str, ...]
"""A key, as one literal per column; see `spark_sink.source.table_rows.chunks`."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of a table's key. `type`: the name of its type, as `key_order.key_parts` writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """The end of the chunk that begins after the rows that were read. The chunk ends with the key `upper`; if `upper`
    is None, with the last row of the table.

    `attempt`: how often the chunk was planned; `session`: the number of the session of the last attempt.
    """

    upper: Bound | None
    attempt: int
    session: int


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The progress of a snapshot. The state is a part of the offset.

    `table`: the table that is being read, None before the first table; `key`: the table's key when its first chunk was
    planned; `after`: the table's rows up to this key are read, None if no row is read; `whole`: True if all rows of the
    table are read; `chunk`: the chunk that begins after `after`, None unless it is planned and not settled; `rows`:
    True if the batch that ends with this state consists of the rows of `chunk`; `until`: when all tables are read, the
    place at which the snapshot ends.
    """

    table: TableName | None = None
    key: tuple[KeyPart, ...] = ()
    after: Bound | None = None
    whole: bool = False
    chunk: ChunkEnd | None = None
    rows: bool = False
    until: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the state as JSON. Fields that have their default values are left out."""
        value: dict[str, Any] = {}
        if self.table is not None:
            value["table"] = list(self.table)
            value["key"] = [[part.name, part.type] for part in self.key]
        if self.after is not None:
            value["after"] = list(self.after)
        if self.chunk is not None:
            upper, chunk = self.chunk.upper, self.chunk
            value["chunk"] = {
                "upper": None if upper is None else list(upper),
                "attempt": chunk.attempt,
                "session": chunk.session,
            }
        if self.until is not None:
            value["until"] = list(self.until)
        return value | {name: True for name in ("whole", "rows") if getattr(self, name)}

    @classmethod
    def of_json(cls, value: Any) -> SnapshotState:
        """Returns the state that `as_json` has converted. Raises `UserError` for any other value."""
        match value:
            case dict():
                try:
                    state = cls._parsed(value)
                except (LookupError, TypeError, ValueError, AttributeError):
                    pass
                else:
                    if state.as_json() == value:
                        return state
        raise UserError(
            ErrorKind.POSITION_UNKNOWN,
            "not an offset of a snapshot",
            remedy="use the checkpoint with the version that wrote it, or begin with a new checkpoint",
        )

    @classmethod
    def _parsed(cls, value: Mapping[str, Any]) -> SnapshotState:
        table, after, chunk, until = (
            value.get(name) for name in ("table", "after", "chunk", "until")
        )
        return cls(
            table=None if table is None else (str(table[0]), str(table[1])),
            key=tuple(KeyPart(str(name), str(kind)) for name, kind in value.get("key", ())),
            after=None if after is None else tuple(map(str, after)),
            whole=value.get("whole", False),
            chunk=None
            if chunk is None
            else ChunkEnd(
                None if chunk["upper"] is None else tuple(map(str, chunk["upper"])),
                int(chunk["attempt"]),
                int(chunk["session"]),
            ),
            rows=value.get("rows", False),
            until=None if until is None else (int(until[0]), int(until[1])),
        )


class Step(Enum):
    """The kind of the next batch."""

    CHANGES = auto()
    ROWS = auto()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The log after a position. `changes`: True if there are changes that can be read now; `servable`: True if the
    queue can hold all changes up to the server's newest position and would still have room for new changes; `quiet_to`:
    a position up to which the log has no changes for the stream."""

    changes: bool
    servable: bool
    quiet_to: Position


def next_step(state: SnapshotState, backlog: Backlog, *, due: bool) -> Step:
    """Returns the kind of the next batch. `due`: False if the limit of rows per second does not allow a chunk now.

    The changes that are committed while a chunk is read must fit into the queue. So the stream reads changes between
    two chunks, which keeps the queue from filling up.
    """
    if state.until is not None or not backlog.servable or not due:
        return Step.CHANGES
    return Step.CHANGES if state.rows and backlog.changes else Step.ROWS


def is_settled(state: SnapshotState, session: int, read_here: bool | None) -> bool:
    """True if the rows of the state's chunk are known to be delivered. To be called only after Spark has committed the
    batch that ends with `state`.

    `read_here`: True if this process has planned that batch with its rows, False if this process has planned it without
    its rows; None if another process has planned it. `session`: the number of this process's session. Each process
    opens one session. So if `session` is the number after the chunk's session, there was no process between the two
    that could have planned the batch without its rows.
    """
    if read_here is not None or state.chunk is None:
        return bool(read_here)
    return session == state.chunk.session + 1


def settled(state: SnapshotState, *, read: bool) -> SnapshotState:
    """Returns the state after a committed batch. `read`: for a batch of rows, True if the rows of its chunk are known
    to be delivered; ignored for a batch of changes. If `read` is False, the chunk stays in the state, and is read
    again."""
    if not state.rows or state.chunk is None or not read:
        return state
    upper = state.chunk.upper
    return replace(state, after=upper, whole=upper is None, chunk=None)


def next_table(state: SnapshotState, names: Iterable[TableName]) -> TableName | None:
    """Returns the table that follows the state's table; None if the state's table is the last one. `names`: the
    server's present tables that the stream selects.

    A table that was created during the snapshot may have a smaller name than the state's table. The stream then has
    delivered all changes of this table, and needs no rows of it.
    """
    return min((name for name in names if state.table is None or name > state.table), default=None)


def with_table(state: SnapshotState, table: TableName, key: tuple[KeyPart, ...]) -> SnapshotState:
    """Returns the state at the beginning of a table: no row of it is read."""
    return SnapshotState(table=table, key=key, rows=state.rows)


def with_chunk(state: SnapshotState, upper: Bound | None, session: int) -> SnapshotState:
    """Returns the state at the end of a batch with the rows of the next chunk. `upper`: the chunk's end. If the state
    already has a chunk, this chunk is read again, and `upper` is ignored."""
    chunk = state.chunk
    if chunk is None:
        return replace(state, chunk=ChunkEnd(upper, 1, session), rows=True)
    return replace(state, chunk=ChunkEnd(chunk.upper, chunk.attempt + 1, session), rows=True)


def without_rest(state: SnapshotState) -> SnapshotState:
    """Returns the state in which the state's table counts as read, because the options no longer select the table."""
    return replace(state, whole=True, chunk=None)


def with_changes(state: SnapshotState) -> SnapshotState:
    """Returns the state at the end of a batch of changes."""
    return replace(state, rows=False)


def all_read(state: SnapshotState, head: tuple[int, int]) -> SnapshotState:
    """Returns the state in which all tables are read. `head`: the server's newest place, asked for after the tables
    were listed.

    The snapshot ends only at `head`, because a RENAME before `head` would show that the stream has missed a table.
    """
    return SnapshotState(table=state.table, key=state.key, whole=True, until=head)


def is_over(state: SnapshotState, order: tuple[int, int]) -> bool:
    """True if a stream at this place no longer needs the state."""
    return state.until is not None and order >= state.until


class Delivers(Enum):
    """Which changes of a table a stream delivers, if this does not depend on the keys of the rows."""

    NONE = auto()
    ALL = auto()


def delivered(state: SnapshotState, table: TableName) -> Delivers | Bound:
    """Returns which changes of a table a batch that ends with `state` delivers: all changes, no change, or the changes
    of the rows whose key is not after the returned bound.

    Rows of a chunk that is not settled count as read, because a sink may have these rows. If the chunk is read again, a
    change that was delivered before does no harm, because the rows then have a later state.
    """
    if state.until is not None:
        return Delivers.ALL
    if state.table is None or table > state.table:
        return Delivers.NONE
    if table < state.table or state.whole:
        return Delivers.ALL
    if state.chunk is not None:
        return Delivers.ALL if state.chunk.upper is None else state.chunk.upper
    return Delivers.NONE if state.after is None else state.after


class DeliveredPart(Enum):
    """The part of a change that is delivered."""

    NOTHING = auto()
    WHOLE = auto()
    DELETE = auto()
    INSERT = auto()


def delivered_part(before: bool | None, after: bool | None) -> DeliveredPart:
    """Returns the part of a change that is delivered. `before`, `after`: True if the row with the key of this image
    counts as read; None if the change has no such image.

    An UPDATE of the key may move a row from the rows that are read to the rows that are not read; the stream delivers
    such an UPDATE as a DELETE. It delivers the opposite case as an INSERT.
    """
    if not before and not after:
        return DeliveredPart.NOTHING
    if before is False:
        return DeliveredPart.INSERT
    return DeliveredPart.DELETE if after is False else DeliveredPart.WHOLE


def unchanged(keys: Sequence[Any], changed: frozenset[Any]) -> list[bool]:
    """Returns, for each row of a chunk, True if the row has not changed since the chunk's position. `changed`: the keys
    in all images of the changes from the chunk's position up to a position that covers everything that the server had
    executed when the rows were read."""
    return [key not in changed for key in keys]


def check_key(state: SnapshotState, key: tuple[KeyPart, ...]) -> None:
    """Raise `BinlogError` if the key of the table that is being read has changed, because it is then unknown which rows
    are read."""
    if key != state.key:
        raise snapshot_failure(state.table, "its key was changed while its rows were read")


def snapshot_failure(table: TableName | None, why: str) -> BinlogError:
    """Returns the error that ends a snapshot, which cannot be continued."""
    label = ".".join(table or ("", ""))
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"the snapshot cannot continue at table {label}: {why}",
        remedy="begin the snapshot again: start the query with a new checkpoint, and empty what it has written",
    )
