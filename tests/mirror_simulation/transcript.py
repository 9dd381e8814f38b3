"""The transcript of a history: each event that `Mirror.step` got with its virtual time, and the effects.

An lsn is written as append.index, with `end` for the largest index of an append. A record is shown with its id, name,
state, the lsn up to which it is done, its folder, and all unusual values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CompareKeyRange,
    CompareVersions,
    CopyTable,
    Effect,
    EndConsumer,
    EndVersions,
    MoveFolders,
    ReadKeyRange,
    ReadLog,
    RepairRows,
    Stepped,
    StoreRecords,
    WriteNote,
    WriteVersions,
)
from spark_sink.mirror.rules.events import (
    EntriesRead,
    Event,
    FoldersMoved,
    LogGrew,
    LogLost,
    RangeCompared,
    RangeRead,
    Registered,
    RequestsRead,
    RowsRepaired,
    Started,
    StoreFailed,
    TableAsked,
    TableChanged,
    TableCopied,
    Ticked,
    WorkFailed,
)
from spark_sink.mirror.rules.states import State
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import ChangeColumns, DeleteRows, DeltaChange, DeltaFacts
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn, last_lsn
from spark_sink.mirror.values.names import table_label
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.table_rows.chunks import Chunk

_ARROW = f"{'':10}    -> "
_LSN = re.compile(r"(?<=\blsn )\d+")


class Transcript:
    """`lines` is None if the transcript is not kept."""

    def __init__(self, *, kept: bool) -> None:
        self.lines: list[str] | None = [] if kept else None

    def said(self, now: float, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{now:10.1f}  -- {text}".rstrip())

    def stepped(self, now: float, event: Event, effects: Sequence[Effect]) -> None:
        """Add an event and its effects, without Stepped. An event without content and without effects is left out."""
        if self.lines is None:
            return
        shown = [effect for effect in effects if not isinstance(effect, Stepped)]
        if shown or not _is_empty(event):
            self.lines.append(f"{now:10.1f}  {of_event(event)}".rstrip())
        self.lines += [f"{_ARROW}{of_effect(effect)}" for effect in shown]


def _is_empty(event: Event) -> bool:
    if isinstance(event, RequestsRead):
        return not (event.by_id or event.by_name)
    return isinstance(event, Ticked | LogGrew)


# -- events --------------------------------------------------------------------------------------------------------


def of_event(event: Event) -> str:
    """Returns an event in one line: the name of its class, the number of its work, and its content."""
    run = getattr(event, "run", None)
    name = type(event).__name__ + ("" if run is None else f" {run}")
    told = _told(event)
    return f"{name}: {told}" if told else name


def _told(event: Event) -> str:
    match event:
        case Started():
            known = "".join(f"; {of_record(record)}" for record in event.records)
            goal = "" if event.goal is None else f", drains to {of_lsn(event.goal)}"
            return f"{_appends(event.newest)}, applied to {of_lsn(event.applied)}{goal}{known}"
        case LogGrew():
            return _appends(event.newest)
        case RequestsRead():
            by_id = [f"{request.wish} of {i}" for i, request in event.by_id.items()]
            return _listed([*by_id, *(f"copy of {table_label(name)}" for name in event.by_name)])
        case Registered():
            return f"{event.table_id} as {event.name}"
    return _answered(event)


def _answered(event: Event) -> str:
    match event:
        case EntriesRead():
            return _listed(map(of_entry, event.entries))
        case LogLost():
            before = _listed(map(of_entry, event.before))
            return f"appends {event.first} to {event.last}, before them {before}"
        case TableAsked():
            return _facts(event.facts)
        case TableChanged(refused=refused):
            return f"refused, {refused}" if refused else ""
        case FoldersMoved():
            told = [f"{i} has no place, {error.what}" for i, error in event.refused.items()]
            return "; ".join([*told, *([] if event.step is None else [f"step {event.step}"])])
        case TableCopied():
            exact = ", one snapshot" if event.exact else ""
            whole = "all rows" if event.complete else "stopped"
            return f"{whole}, executed {_value(event.executed)}{exact}"
        case WorkFailed() | StoreFailed():
            return event.failure.text
    return _proved(event)


def _proved(event: Event) -> str:
    match event:
        case RangeRead():
            told = f"{event.rows} rows, {_range(event.chunk)}, executed {_value(event.executed)}"
            return event.skipped or told
        case RangeCompared():
            found = event.columns or f"{event.keys} keys differ"
            return "moved" if event.moved else found
        case RowsRepaired():
            return "moved" if event.moved else f"{event.keys} keys"
    return ""


def of_entry(entry: LogEntry) -> str:
    """Returns an entry of the log: its lsn, and the statement or the number of rows and their table."""
    match entry.kind:
        case EntryKind.ROWS:
            text = f"{entry.rows} of {entry.table}"
        case EntryKind.STATEMENT:
            assert entry.statement is not None
            text = entry.statement.text
        case _:
            place = "" if entry.position is None else f" {_value(entry.position)}"
            text = f"end{place}{', behind a gap' if entry.gap else ''}"
    return f"{of_lsn(entry.lsn)} {text}"


def _facts(facts: DeltaFacts) -> str:
    if facts.owner == "":
        return "no table"
    applied = "" if facts.applied is None else f", applied to {of_lsn(facts.applied)}"
    empty = "" if facts.empty is None else (", empty" if facts.empty else ", with rows")
    return f"of {facts.owner}{applied}{empty}"


# -- effects -------------------------------------------------------------------------------------------------------


def of_effect(effect: Effect) -> str:
    """Returns an effect in one line: the name of its class, the number of its work, and its content."""
    if isinstance(effect, WriteNote):
        told = {name: value for name, value in effect.fields.items() if name != "consumer"}
        values = ", ".join(f"{name} {value}" for name, value in told.items())
        return f"WriteNote {effect.level}: {effect.event}: {_LSN.sub(_with_lsn, values)}"
    run = getattr(effect, "run", None)
    name = type(effect).__name__ + ("" if run is None else f" {run}")
    done = _done(effect)
    return f"{name}: {done}" if done else name


def _done(effect: Effect) -> str:
    match effect:
        case ReadLog():
            before = "" if effect.before is None else f", before {of_lsn(effect.before)}"
            tables = "" if not effect.tables else f", of {_listed(map(table_label, effect.tables))}"
            return f"behind {of_lsn(effect.after)}{before}{tables}"
        case StoreRecords():
            applied = [] if effect.watermark is None else [f"applied to {of_lsn(effect.watermark)}"]
            proofs = [f"proof of {proof.table_id}" for proof in effect.proofs]
            return "; ".join([*map(of_record, effect.records), *applied, *proofs])
        case MoveFolders():
            return _listed(f"{record.lies_at} to {record.folder}" for record in effect.moving)
        case EndConsumer():
            return str(effect.error)
        case ReadKeyRange():
            again = " again" if effect.is_fixed else ""
            return f"{effect.record.label}, {_range(effect.chunk)}{again}"
        case CompareKeyRange():
            span = f"behind {of_lsn(effect.after)}, to {of_lsn(effect.to)}"
            return f"{_placed(effect.record)} with the range of {effect.read}, {span}"
        case RepairRows():
            span = f"behind {of_lsn(effect.after)}, to {of_lsn(effect.to)}, as {of_lsn(effect.lsn)}"
            return f"{_placed(effect.record)} by the range of {effect.read}, {span}"
    return _done_to_table(effect)


def _done_to_table(effect: Effect) -> str:
    match effect:
        case AskTable():
            return f"{effect.table_id} in {effect.folder}{', its rows' if effect.rows else ''}"
        case ChangeTable():
            return f"{_placed(effect.record)}, {_change(effect.change)}"
        case CommitRows():
            entries = effect.rows.entries
            exact = ", exact" if effect.exact else ""
            snapshot = (
                "" if effect.snapshot is None else f", not what {_value(effect.snapshot[1])} has"
            )
            span = f"{of_lsn(entries[0].lsn)} to {of_lsn(entries[-1].lsn)}"
            return f"{_placed(effect.record)}, {span}{exact}{snapshot}"
        case WriteVersions():
            exact = ", exact" if effect.exact else ""
            return f"{_placed(effect.record)}, to {of_lsn(effect.rows.lsn)}{exact}"
        case EndVersions() | CompareVersions():
            return f"{_placed(effect.record)}, at {of_lsn(effect.lsn)}"
        case ClearCopy() | CopyTable():
            return effect.table_id if isinstance(effect, ClearCopy) else effect.record.label
    return ""


def _placed(record: TableRecord) -> str:
    return f"{record.label} in {record.lies_at}"


def _change(change: DeltaChange) -> str:
    name = type(change).__name__
    if isinstance(change, ChangeColumns | DeleteRows):
        return f"{name} at {of_lsn(change.lsn)}"
    return name


# -- records -------------------------------------------------------------------------------------------------------


def of_record(record: TableRecord) -> str:
    """Returns a record in one line."""
    text = f"{record.table_id} {record.label} {of_state(record.state)} at {of_lsn(record.from_lsn)}"
    text += f" in {record.folder}" if record.folder else ""
    text += f" from {record.move.source}" if record.move else ""
    text += f" step {record.move.step}" if record.move and record.move.step else ""
    names = [f"{former.table} to {of_lsn(former.until)}" for former in record.names]
    return text + (f" was {_listed(names)}" if names else "")


def of_state(state: State) -> str:
    """Returns a state: the name of its class, and its values that are not the usual ones."""
    return _value(state)


def _value(value: object) -> str:
    match value:
        case Position():
            return f"{value.file}:{value.offset}"
        case bool() | str():
            return str(value)
        case int():
            return of_lsn(value)
    if not is_dataclass(value):
        return str(value)
    shown = []
    for field in fields(value):
        held = getattr(value, field.name)
        if held is False and field.default is MISSING:
            continue
        if field.default is not MISSING and held == field.default:
            continue
        shown.append(field.name if held is True else f"{field.name}={_value(held)}")
    return type(cast("Any", value)).__name__ + (f"({', '.join(shown)})" if shown else "")


def _range(chunk: Chunk) -> str:
    lower = "the first key" if chunk.lower is None else f"behind {', '.join(chunk.lower)}"
    return f"{lower} to {'the last key' if chunk.upper is None else ', '.join(chunk.upper)}"


# -- small values --------------------------------------------------------------------------------------------------


def of_lsn(lsn: int) -> str:
    append = append_of(lsn)
    return f"{append}.end" if lsn == last_lsn(append) else f"{append}.{lsn - first_lsn(append)}"


def _with_lsn(found: re.Match[str]) -> str:
    return of_lsn(int(found[0]))


def _appends(count: int) -> str:
    return f"the log has {count} append{'' if count == 1 else 's'}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "nothing"
