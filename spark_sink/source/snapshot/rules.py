"""The rules of a stream that begins with the rows that exist. Pure.

The stream has a position P: it has delivered, or left out, every change up to P. A batch moves the stream in one of two
ways:

- *Changes* move P on. A change is left out if the row that it changes is not read yet, since the row will be read later
  in a state that contains the change.
- *Rows* are the rows of one chunk, a range of a table's key, in their state at P. The server shows them in a later
  state E. So the rows that have changed between P and E are left out: their changes lie behind P, and are delivered.

So each row is delivered once, in the state at some P, and each later change of it is delivered once, in order. Reading
a chunk again gives the same rows in the same state, except for those that have changed meanwhile: whatever attempt a
sink keeps, its rows are older than the changes that follow. The rules need full row images.

A chunk that was planned before a process was killed may be impossible to read later, because the changes between P and
E no longer fit into the consumer's queue. Then its batch gets no rows, and the chunk is read again at a later P. So a
chunk is *settled* only by the batch behind it. Until then changes of its rows are delivered, because the sink may have
these rows.

Tables are read in the order of their names. An offset holds the name of one table and two keys, however many tables and
chunks there are.
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
"""A key, as one literal per column; see `spark_sink.table_rows.chunks`."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of a table's key. `type`: the name of its type, as `key_order.key_parts` writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """The chunk behind the rows that were read: up to and including `upper`; None: the rest of the table.

    `attempt`: how often it was planned; `session`: the number of the session in which it was planned last.
    """

    upper: Bound | None
    attempt: int
    session: int


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """How far a snapshot is. It is a part of the offset.

    `table`: the table that is being read, None before the first; `key`: its key when its first chunk was planned;
    `after`: its rows up to this key are read, None: none of them; `whole`: True if all its rows are read; `chunk`: the
    chunk behind `after` that is planned and not settled; `rows`: True if the batch that ends here consists of the rows
    of `chunk`; `until`: set when all tables are read: the snapshot ends when the stream is at this place.
    """

    table: TableName | None = None
    key: tuple[KeyPart, ...] = ()
    after: Bound | None = None
    whole: bool = False
    chunk: ChunkEnd | None = None
    rows: bool = False
    until: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the state as JSON, without the fields that have their defaults."""
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
        """Raises `UserError` for a value that `as_json` does not make."""
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
    """What the next batch is."""

    CHANGES = auto()
    ROWS = auto()


@dataclass(frozen=True, slots=True)
class Backlog:
    """What lies behind a position. `changes`: True if there are changes that can be read now; `servable`: True if the
    queue can hold all changes up to the server's newest position, with room for those of the near future; `quiet_to`: a
    position up to which there are no changes."""

    changes: bool
    servable: bool
    quiet_to: Position


def next_step(state: SnapshotState, backlog: Backlog, *, due: bool) -> Step:
    """Returns what follows. `due`: False if the limit of rows per second does not allow a chunk now.

    A chunk needs the changes that are committed while it is read. Between two chunks the stream goes on, so that the
    queue does not fill.
    """
    if state.until is not None or not backlog.servable or not due:
        return Step.CHANGES
    return Step.CHANGES if state.rows and backlog.changes else Step.ROWS


def is_settled(state: SnapshotState, session: int, read_here: bool | None) -> bool:
    """True if the rows of the state's chunk are known to be delivered. The batch that ends with `state` is committed.

    `read_here`: whether this process has planned that batch with its rows; None if it has not planned the batch.
    `session`: the number of this process's session. Each process opens one session. So if this number is the next
    after the chunk's, no other process can have planned the batch without its rows.
    """
    if read_here is not None or state.chunk is None:
        return bool(read_here)
    return session == state.chunk.session + 1


def settled(state: SnapshotState, *, read: bool) -> SnapshotState:
    """Returns the state behind a committed batch. `read`: whether the rows of its chunk are known to be delivered; it
    counts for a batch of rows only. If they are not, the chunk stays, and is read again."""
    if not state.rows or state.chunk is None or not read:
        return state
    upper = state.chunk.upper
    return replace(state, after=upper, whole=upper is None, chunk=None)


def next_table(state: SnapshotState, names: Iterable[TableName]) -> TableName | None:
    """Returns the table that follows the state's table, None if that is the last one. `names`: the tables that the
    server has now and the stream selects.

    A table that was created during the snapshot may have a smaller name than the state's table. Then the stream has
    delivered all its changes.
    """
    return min((name for name in names if state.table is None or name > state.table), default=None)


def with_table(state: SnapshotState, table: TableName, key: tuple[KeyPart, ...]) -> SnapshotState:
    """Returns the state in which no row of a table is read."""
    return SnapshotState(table=table, key=key, rows=state.rows)


def with_chunk(state: SnapshotState, upper: Bound | None, session: int) -> SnapshotState:
    """Returns the state at the end of a batch with the rows of the next chunk. `upper`: the chunk's end; not used if
    the state has a chunk, which is then read again."""
    chunk = state.chunk
    if chunk is None:
        return replace(state, chunk=ChunkEnd(upper, 1, session), rows=True)
    return replace(state, chunk=ChunkEnd(chunk.upper, chunk.attempt + 1, session), rows=True)


def with_changes(state: SnapshotState) -> SnapshotState:
    """Returns the state at the end of a batch of changes."""
    return replace(state, rows=False)


def all_read(state: SnapshotState, head: tuple[int, int]) -> SnapshotState:
    """Returns the state in which all tables are read. `head`: the server's newest place, asked for after the tables
    were listed.

    The snapshot goes on up to there, because a RENAME before it would show that a table was missed.
    """
    return SnapshotState(table=state.table, key=state.key, whole=True, until=head)


def is_over(state: SnapshotState, order: tuple[int, int]) -> bool:
    """True if a stream at this place no longer needs the state."""
    return state.until is not None and order >= state.until


class Delivers(Enum):
    """Which changes of a table a stream delivers, where no key divides them."""

    NONE = auto()
    ALL = auto()


def delivered(state: SnapshotState, table: TableName) -> Delivers | Bound:
    """Returns which changes of a table a batch delivers that ends with `state`: all, none, or those of rows whose key
    is not behind a bound.

    Rows of a chunk that is not settled count as read: a sink may have them, and a change that it gets too early does no
    harm, since the rows are then read in a later state.
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
    """Returns the part of a change that is delivered. `before`, `after`: whether the row with the image's key counts as
    read; None if the change has no such image.

    An UPDATE of the key may move a row from the rows that are read to those that are not, or back. The stream delivers
    it as a DELETE or an INSERT.
    """
    if not before and not after:
        return DeliveredPart.NOTHING
    if before is False:
        return DeliveredPart.INSERT
    return DeliveredPart.DELETE if after is False else DeliveredPart.WHOLE


def unchanged(keys: Sequence[Any], changed: frozenset[Any]) -> list[bool]:
    """Returns which rows of a chunk are in their state at the chunk's position. `changed`: the keys in all images of
    the changes from that position up to one that covers what the server had executed when it showed the rows."""
    return [key not in changed for key in keys]


def check_key(state: SnapshotState, key: tuple[KeyPart, ...]) -> None:
    """Raise `BinlogError` if the key of the table that is being read has changed: it is then unknown which of its rows
    are read."""
    if key != state.key:
        raise snapshot_failure(state.table, "its key was changed while its rows were read")


def snapshot_failure(table: TableName | None, why: str) -> BinlogError:
    """Returns the error that ends a snapshot for good."""
    label = ".".join(table or ("", ""))
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"the snapshot cannot go on at table {label}: {why}",
        remedy="begin the snapshot again: start the query with a new checkpoint, and empty what it has written",
    )
