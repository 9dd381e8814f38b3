"""The record of a mirrored table, as the control table keeps it, and small changes of it. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_sink.mirror.rules.states import (
    FORMAT,
    LIVE,
    Dropped,
    Live,
    State,
    TableState,
    state_from,
    state_json,
    state_of_format_1,
)
from spark_sink.mirror.values.names import TableName, table_label


class Wish(StrEnum):
    """What a person asks for about a table."""

    APPLIED = "applied"  # a person has applied the entry that could not be applied
    SKIP = "skip"  # the entry is left out; the table is partial from then on
    RETRY = "retry"  # the entry is tried again
    RECOPY = "recopy"  # the table is copied again, even if a copy is running
    PARTIAL = "partial"  # a table that is older than the mirror goes on without its older rows
    COPY = "copy"  # the table is copied, if it is not being copied already


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is not handled yet. `name`: the label for which a copy was requested, "" if the request is about a
    table's id."""

    id: str
    wish: Wish
    name: str = ""


@dataclass(frozen=True, slots=True)
class FormerName:
    """A name that a table had up to the lsn `until`."""

    until: int
    database: str
    table: str

    @property
    def name(self) -> TableName:
        return self.database, self.table


@dataclass(frozen=True, slots=True)
class Move:
    """The table's folder is being moved to `TableRecord.folder`. `source`: the folder before the move; `step`: in an
    object store, the steps of the move that have ended."""

    source: str
    step: int = 0


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table of the mirror, or the history of one.

    `folder`: path below the target, "" if it has none yet; `server`, `epoch`: the history of the server to which its
    rows belong; `from_lsn`: entries up to this lsn need not be applied, whatever the Delta table records; `signature`:
    its columns as JSON, "" if not known; `reason`: why it is stopped or partial, or the last error; `handled`: id of
    the newest request about its id that was handled; `answered`: ids of requests for copies, by the requested name;
    `names`: former names; `copied_at`: the lsn as of which the table was last copied; for a history, the lsn of the
    copy with which it was last compared; `conflict`: the difference between the log's columns and the table's for which
    the table was copied; `metadata`, `deletion_vectors`: which metadata columns its Delta table has, and whether it has
    deletion vectors; `registered`: its name in the catalog; `refused`: the reason if this is not the wanted name;
    `history`: True if this is the history of the table of this name.
    """

    table_id: str
    consumer: str
    database: str
    table: str
    folder: str = ""
    state: State = field(default_factory=Live)
    server: str = ""
    epoch: int = 0
    from_lsn: int = 0
    signature: str = ""
    reason: str = ""
    request: Request | None = None
    handled: str = ""
    answered: Mapping[str, str] = field(default_factory=dict)
    names: tuple[FormerName, ...] = ()
    move: Move | None = None
    copied_at: int | None = None
    conflict: str = ""
    metadata: tuple[str, ...] = ()
    deletion_vectors: bool = False
    registered: str = ""
    refused: str = ""
    serial: int = 0
    at: datetime | None = None
    history: bool = False

    @property
    def name(self) -> TableName:
        return self.database, self.table

    @property
    def word(self) -> TableState:
        """The state in one word."""
        return self.state.word

    @property
    def is_live(self) -> bool:
        """True if entries are applied to the table as they come, or if the settings leave it out and its rows stay as
        they are."""
        return self.word in LIVE

    @property
    def is_dropped(self) -> bool:
        return isinstance(self.state, Dropped)

    @property
    def lies_at(self) -> str:
        """The folder in which the table's rows are. Until a move has ended, this is the folder before the move."""
        return self.move.source if self.move else self.folder

    @property
    def shown_name(self) -> TableName:
        """The name under which its rows are read. A history has a name of its own."""
        return self.database, self.table + ("__history" if self.history else "")

    @property
    def label(self) -> str:
        return table_label(self.shown_name)


def new_table_id() -> str:
    return uuid.uuid4().hex


def forgetting(record: TableRecord) -> TableRecord:
    """Returns the record without the values that describe rows which the table no longer has."""
    return replace(record, conflict="", metadata=())


# -- requests ------------------------------------------------------------------------------------------------------


def handled(record: TableRecord) -> TableRecord:
    """Returns the record without its request. The request's id is then in `handled`, or in `answered` if it was about a
    name."""
    asked = record.request
    if asked is None:
        return record
    done = replace(record, request=None)
    return answering(done, asked.name, asked.id) if asked.name else replace(done, handled=asked.id)


def answering(record: TableRecord, label: str, request_id: str) -> TableRecord:
    """Returns the record with the note that it answers the request for a copy of the table with this name."""
    return replace(record, answered={**record.answered, label: request_id})


# -- the column `detail` of the control table ----------------------------------------------------------------------

_DETAIL = (
    "handled",
    "answered",
    "names",
    "move",
    "copied_at",
    "conflict",
    "metadata",
    "deletion_vectors",
    "registered",
    "refused",
)


def detail_json(record: TableRecord) -> dict[str, Any]:
    """Returns, as values of JSON, the fields that have no column of their own. A request is not among them, because it
    has its own row."""
    unchanged = TableRecord("", "", "", "")
    values = {
        name: value
        for name in _DETAIL
        if (value := getattr(record, name)) != getattr(unchanged, name)
    }
    if record.names:
        values["names"] = [[f.until, f.database, f.table] for f in record.names]
    if record.move:
        values["move"] = [record.move.source, record.move.step]
    return {"format": FORMAT, "state": state_json(record.state)} | values


def with_detail(record: TableRecord, word: TableState, detail: Mapping[str, Any]) -> TableRecord:
    """Returns the record with the content of the columns `state` and `detail`, in this format or in format 1."""
    if detail.get("format") != FORMAT:
        return _with_format_1(record, word, detail)
    values = {name: detail[name] for name in _DETAIL if name in detail}
    if "names" in values:
        values["names"] = tuple(FormerName(*former) for former in values["names"])
    if "move" in values:
        values["move"] = Move(*values["move"])
    if "metadata" in values:
        values["metadata"] = tuple(values["metadata"])
    return replace(record, state=state_from(detail["state"]), **values)


def _with_format_1(record: TableRecord, word: TableState, detail: Mapping[str, Any]) -> TableRecord:
    moved_from = detail.get("moved_from")
    return replace(
        record,
        state=state_of_format_1(word, detail),
        handled=detail.get("handled", ""),
        answered=detail.get("answered", {}),
        names=tuple(FormerName(*former) for former in detail.get("names", ())),
        move=None if moved_from is None else Move(moved_from, detail.get("move_step", 0)),
        copied_at=detail.get("copied_at"),
        conflict=detail.get("conflict", ""),
        metadata=tuple(detail.get("metadata", ())),
        deletion_vectors=bool(detail.get("deletion_vectors")),
        registered=detail.get("catalog", ""),
        refused=detail.get("catalog_error", ""),
    )
