"""The states of a mirrored table, and their JSON. Each state is a class with exactly the values that this state needs.
Pure.

    Creating ──▶ Copying ──▶ Copied ──▶ Replaying ──▶ CatchingUp ──▶ Live
                                                          ▲           │ ▲
                                              a request   │           ▼ │
                                                          └──────  Stopped          Dropped      LeftOut

In every state except `LeftOut`, a DROP TABLE leads to `Dropped`. A TRUNCATE, or a CREATE TABLE that makes a new table,
leads to `Live`. While the settings exclude a table that exists, it is in the state `LeftOut`.

People and programs see one of the six words of `TableState`. The column `state` of the control table contains this
word. The column `detail` contains the state as JSON. An *lsn* is the number of an entry (rows of a table, or a
statement) of the mirror's log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, cast

from dispatcher.model.position import Position

FORMAT = 1  # the format of the JSON
Json = Mapping[str, Any]


class TableState(StrEnum):
    """The state of a mirrored table in one word, for people and programs."""

    CREATING = "creating"  # a copy is asked for and has not begun
    COPYING = "copying"  # its rows are being copied, or the log is being replayed on the copy
    COMPLETE = "complete"  # equal to the server's table as of its applied lsn
    PARTIAL = "partial"  # rows are missing; a policy or a person has permitted this
    STOPPED = "stopped"  # `reason` says why; its entries wait in the log
    DROPPED = "dropped"


# The words for tables to which the queues apply entries.
LIVE = (TableState.COMPLETE, TableState.PARTIAL)


@dataclass(frozen=True, slots=True)
class Failing:
    """Steps of the table fail and are repeated. `lsn`: the lsn of the failing step; `reason_before`: the record's
    reason before the first failure."""

    lsn: int
    reason_before: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """The table's queue applies its entries, in the order of the log.

    `complete`: True if no rows are missing; `exact_from`: an lsn at which the table was equal to the server's table,
    None if no such lsn is known (if a later entry inserts a row, this row is not in the table yet); `new_column`: the
    lsn of an ALTER TABLE whose new columns the mirror adds together with the next rows, see `with_new_column`.
    """

    complete: bool = True
    exact_from: int | None = None
    new_column: int | None = None
    failing: Failing | None = None

    @property
    def word(self) -> TableState:
        return TableState.COMPLETE if self.complete else TableState.PARTIAL


@dataclass(frozen=True, slots=True)
class Creating:
    """A copy is requested and has not begun. `as_it_is`: only for a history: True if it begins with the rows that its
    table has now, False if it begins with the rows that the table had when it became live."""

    as_it_is: bool = False

    @property
    def word(self) -> TableState:
        return TableState.CREATING


@dataclass(frozen=True, slots=True)
class Copying:
    """The copier copies the table's rows into the copy's folder. `begin`: S, the log's end when the copy began. The
    table's entries after S are left in the log."""

    begin: Position

    @property
    def word(self) -> TableState:
        return TableState.COPYING


@dataclass(frozen=True, slots=True)
class Copied:
    """All rows are copied. `begin`: S; `executed`: R, the position that the server had executed after the last row was
    read; `exact`: True if the rows show exactly the transactions up to R, so that the replay must not apply these
    again."""

    begin: Position
    executed: Position
    exact: bool = False

    @property
    def word(self) -> TableState:
        return TableState.COPYING


@dataclass(frozen=True, slots=True)
class Replaying:
    """The log is replayed on the copy, which is still in the copy's folder. `begin`, `executed`, `exact`: see `Copied`;
    `passed`: the lsn of the first entry of the log at or after R; `goal`: the state of the table after the replay."""

    begin: Position
    executed: Position
    exact: bool
    passed: int
    goal: Live = field(default_factory=Live)

    @property
    def word(self) -> TableState:
        return TableState.COPYING


@dataclass(frozen=True, slots=True)
class Stopped:
    """No entries are applied until a person resolves the stop. The record's `reason` contains the cause, and what a
    person can do.

    `failed`: the last lsn that could not be applied; `was`: the state to which the table returns; `lost`: the last lsn
    of entries that the log has lost, if any; `copy`: the replay that the stop interrupted, if any; `differs`: True if
    the table is stopped because its rows differ from the server's; `ahead`: True if the Delta table shows some of the
    entries that the log has lost, so that it may have other columns than the record says.
    """

    failed: int
    was: Live
    lost: int | None = None
    copy: Replaying | None = None
    differs: bool = False
    ahead: bool = False

    @property
    def word(self) -> TableState:
        return TableState.STOPPED


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """A replay applies the entries that were left in the log to the table in its own folder, until no entry is left.
    While the record names a move, the replay waits until the move has ended.

    `goal`: the state after the replay; `passed`: after a copy, see `Replaying`; `stopped`: the stop that a person has
    resolved; `reason_before`: the record's earlier reason, while its present reason is that the table's place is taken;
    otherwise None.
    """

    goal: Live
    passed: int | None = None
    stopped: Stopped | None = None
    reason_before: str | None = None

    @property
    def word(self) -> TableState:
        return TableState.STOPPED if self.passed is None else TableState.COPYING


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The consumer's `include` and `exclude` leave the table out, so its rows do not change. `since`: the table's
    entries after this lsn are left out."""

    since: int

    @property
    def word(self) -> TableState:
        return TableState.PARTIAL


@dataclass(frozen=True, slots=True)
class Dropped:
    """The server has no such table, or another consumer mirrors the table. `unsure`: True if changes after the drop are
    missing (purged, lost, or left out by the settings), so that the server may have a new table with the name."""

    unsure: bool = False

    @property
    def word(self) -> TableState:
        return TableState.DROPPED


State = (
    Live | Creating | Copying | Copied | Replaying | Stopped | CatchingUp | LeftOut | Dropped
)  # fmt: skip

# States that a copy task or a replay task ends. While a table is in such a state, the queues do not apply entries to
# it.
COPIED_ASIDE = (Creating, Copying, Copied)
REPLAYED = (Replaying, CatchingUp)

_CLASSES = (Live, Creating, Copying, Copied, Replaying, Stopped, CatchingUp, LeftOut, Dropped)
_NAMES: dict[type, str] = {cls: cls.__name__.lower() for cls in (*_CLASSES, Failing)}
_BY_NAME: dict[str, Any] = {name: cls for cls, name in _NAMES.items()}


def state_json(state: State) -> dict[str, Any]:
    """Returns the JSON object of a state."""
    return cast("dict[str, Any]", _json(state))


def state_from(value: Json) -> State:
    """Returns the state for a JSON object that `state_json` returned."""
    return cast("State", _value(value))


def _json(value: object) -> Any:
    if isinstance(value, Position):
        return value.as_dict()
    if (name := _NAMES.get(type(value))) is None:
        return value
    held = {f.name: getattr(value, f.name) for f in fields(cast("Any", value))}
    defaults = {f.name: f.default for f in fields(cast("Any", value)) if f.default is not MISSING}
    defaults |= {"goal": Live()} if isinstance(value, Replaying) else {}
    changed = {n: v for n, v in held.items() if n not in defaults or v != defaults[n]}
    return {"is": name} | {n: _json(v) for n, v in changed.items()}


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "is" not in value:
        return Position.from_dict(value)
    held = {name: _value(v) for name, v in value.items() if name != "is"}
    return _BY_NAME[value["is"]](**held)
