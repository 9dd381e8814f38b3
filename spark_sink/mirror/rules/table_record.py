"""The record of a mirrored table, its form in the control table, and small changes of a record. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.states import (
    FORMAT,
    LIVE,
    Dropped,
    Live,
    State,
    TableState,
    state_from,
    state_json,
)
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.values.names import TableName, table_label


class Wish(StrEnum):
    """What a person requests for a table."""

    APPLIED = "applied"  # a person has applied the entry that the mirror could not apply
    SKIP = "skip"  # the mirror leaves out the entry; the table is partial from then on
    RETRY = "retry"  # the mirror applies the entry again
    RECOPY = "recopy"  # the table is copied again, even if a copy is running
    PARTIAL = "partial"  # the table is older than the mirror; entries are applied, its older rows stay missing
    COPY = "copy"  # the table is copied, if it is not being copied already
    REPAIR = "repair"  # the table is compared with the server, and rows that differ are rewritten


@dataclass(frozen=True, slots=True)
class Request:
    """A person's request that is not handled yet. `name`: the label of the table whose copy was requested; "" for a
    request that names a table's id."""

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
    """The mirror moves the table's folder to `TableRecord.folder`. `source`: the folder before the move; `step`: in an
    object store, how many steps of the move have ended."""

    source: str
    step: int = 0


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table of the mirror, or the history of one.

    `folder`: the table's path below the target, "" if the table has none yet; `server`, `epoch`: the server from which
    the rows come, and the consumer's epoch to which they belong; `from_lsn`: entries up to this lsn (number of an entry
    of the mirror's log) need not be applied, even if the Delta table records a smaller lsn; `signature`: the table's
    columns as JSON, "" if not known; `reason`: why the table is stopped or partial, or the last error; `handled`: id of
    the newest handled request that named the table's id; `answered`: ids of handled requests for copies, by the
    requested name; `names`: former names; `copied_at`: for a table, the lsn at which the last copy was equal to the
    server's table, or, after a repair, the lsn at which the history has to be compared with the table; for a history,
    the lsn at which it was last compared with a copied or repaired table; `conflict`: if the table was copied because
    its columns differed from those in the log, this difference; `metadata`, `deletion_vectors`: which metadata columns
    the Delta table has, and whether it has deletion vectors; `registered`: the table's name in the catalog; `refused`:
    why the catalog does not have the wanted name; `history`: True for the record of a history; `generated`: the table's
    generated columns, None if they are not known.
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
    generated: Generated | None = None

    @property
    def name(self) -> TableName:
        return self.database, self.table

    @property
    def word(self) -> TableState:
        """The state in one word."""
        return self.state.word

    @property
    def is_live(self) -> bool:
        """True if the table's queue applies its entries. Also True if the settings leave the table out, so that its
        rows do not change."""
        return self.word in LIVE

    @property
    def is_dropped(self) -> bool:
        return isinstance(self.state, Dropped)

    @property
    def lies_at(self) -> str:
        """The folder in which the table's rows are. While a move is not finished, this is the folder before the
        move."""
        return self.move.source if self.move else self.folder

    @property
    def shown_name(self) -> TableName:
        """The name under which people read the rows. For a history, it ends with `__history`."""
        return self.database, self.table + ("__history" if self.history else "")

    @property
    def label(self) -> str:
        return table_label(self.shown_name)


def new_table_id() -> str:
    return uuid.uuid4().hex


def forgetting(record: TableRecord) -> TableRecord:
    """Returns the record without those values that describe rows which the table no longer has."""
    return replace(record, conflict="", metadata=())


# -- requests ------------------------------------------------------------------------------------------------------


def handled(record: TableRecord) -> TableRecord:
    """Returns the record without its request. The request's id is then in `handled` or, if the request named a table's
    name, in `answered`."""
    asked = record.request
    if asked is None:
        return record
    done = replace(record, request=None)
    return answering(done, asked.name, asked.id) if asked.name else replace(done, handled=asked.id)


def answering(record: TableRecord, label: str, request_id: str) -> TableRecord:
    """Returns the record, which now says that the request `request_id` to copy the table `label` is handled."""
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
    "generated",
)


def detail_json(record: TableRecord) -> dict[str, Any]:
    """Returns, as a JSON object, the fields that have no column in the control table. The request is left out, because
    it has its own row."""
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
    if record.generated is not None:
        values["generated"] = [[column.name, column.sources] for column in record.generated]
    return {"format": FORMAT, "state": state_json(record.state)} | values


def with_detail(record: TableRecord, detail: Mapping[str, Any]) -> TableRecord:
    """Returns the record with the content of the column `detail`. Raises `BinlogError` TARGET_FILES if another version
    of this program has written it in another format."""
    if (written := detail.get("format")) != FORMAT:
        raise BinlogError(
            ErrorKind.TARGET_FILES,
            f"the record of {record.label} has format {written}; this version reads format {FORMAT}",
            where=f"consumer {record.consumer}",
            remedy="run the version of binlog-dispatcher that has written the control table",
        )
    values = {name: detail[name] for name in _DETAIL if name in detail}
    if "names" in values:
        values["names"] = tuple(FormerName(*former) for former in values["names"])
    if "move" in values:
        values["move"] = Move(*values["move"])
    if "metadata" in values:
        values["metadata"] = tuple(values["metadata"])
    if "generated" in values:
        values["generated"] = tuple(
            GeneratedColumn(name, None if sources is None else tuple(sources))
            for name, sources in values["generated"]
        )
    return replace(record, state=state_from(detail["state"]), **values)
