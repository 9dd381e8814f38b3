"""The transcript of a play: each input of `Client.step` with its virtual time, and the effects that it returned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from dispatcher.dispatch.messages.effects import Effect, Note, Wake
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    Added,
    BatchReceived,
    Input,
    LoggedIn,
    LookUpDelayed,
    Lost,
    Removed,
    SchemaFetched,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.executed_position import ExecutedPosition
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.position import Position

_UUID = re.compile(r"\b([0-9a-f]{4})[0-9a-f]{4}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class Transcript:
    """`lines` is None if the transcript is not kept. Server UUIDs are shortened to their first four digits."""

    def __init__(self, *, kept: bool) -> None:
        self.lines: list[str] | None = [] if kept else None

    def said(self, now: float, text: str) -> None:
        if self.lines is not None:
            self._add(f"{now:10.3f}  -- {text}")

    def stepped(self, now: float, event: Input, effects: Sequence[Effect]) -> None:
        """Add an input and its effects, without Wake. A Tick or an empty batch without an effect is left out."""
        if self.lines is None:
            return
        shown = [effect for effect in effects if not isinstance(effect, Wake)]
        if shown or not (isinstance(event, Tick) or _is_empty(event)):
            self._add(f"{now:10.3f}  {of_input(event)}")
        for effect in shown:
            self._add(f"{'':10}    -> {of_effect(effect)}")

    def _add(self, line: str) -> None:
        assert self.lines is not None
        self.lines.append(_UUID.sub(r"\1", line).rstrip())


def of_input(event: Input) -> str:  # noqa: PLR0911 - one for each kind
    """Returns an input in one line: the name of its class, its dispatcher or consumer, and the values on which the
    rules depend."""
    name = type(event).__name__
    match event:
        case BatchReceived():
            batch = event.batch
            count = counted(len(batch.tx.first)) + (
                ", the last one open" if _is_open(event) else ""
            )
            return f"{name} {event.dispatcher}: {count}, up to {batch.file}:{batch.offset}"
        case LoggedIn():
            view = event.view
            return (
                f"{name} {event.dispatcher}: server {view.server}, executed {view.executed or 'nothing'},"
                f" at {view.file}:{view.offset}, purged {view.purged or 'nothing'}, oldest file {view.files[0][0]}"
            )
        case ServerPolled():
            view = event.view
            executed = view.executed or "nothing"
            return (
                f"{name}: server {view.server}, executed {executed}, at {view.file}:{view.offset}"
            )
        case Lost():
            return f"{name} {event.dispatcher}: {event.error.kind}, {event.error.what}"
        case SchemaFetched():
            tables = ", ".join(f"{'.'.join(each.name)} at {each.at}" for each in event.definitions)
            altering = (
                f"{len(event.statements)} altering statement{'s'[len(event.statements) == 1 :]}"
            )
            return f"{name} {event.request.dispatcher}: {tables}, {altering} before"
        case LookUpDelayed():
            return f"{name} {event.request.dispatcher}: {event.error.kind}, {event.error.what}"
        case Acknowledged():
            return f"{name} {event.consumer}: {_value(event.position)}"
        case SeekRequested():
            return f"{name} {event.consumer}: {_value(event.after)}"
        case Added():
            return f"{name} {event.spec.name}: {_value(event.progress or 'no progress')}"
        case Removed():
            return f"{name} {event.consumer}"
        case _:
            return name


def of_effect(effect: Effect) -> str:
    """An effect in one line: the name of its class, then the values of its fields."""
    if isinstance(effect, Note):
        # An error without its remedy.
        values = ", ".join(
            f"{name} {_value(value).partition('; ')[0]}" for name, value in effect.fields.items()
        )
        return f"Note {effect.level}: {effect.event}: {values}"
    values = ", ".join(_value(getattr(effect, field.name)) for field in fields(effect))
    return f"{type(effect).__name__} {values}"


def counted(transactions: int) -> str:
    return f"{transactions} transaction{'' if transactions == 1 else 's'}"


def of_position(position: Position) -> str:
    gtid = f"{position.gtid} " if position.gtid else ""
    return f"{gtid}{position.file}:{position.offset}"


def _is_empty(event: Input) -> bool:
    return isinstance(event, BatchReceived) and not len(event.batch.tx.first)


def _is_open(event: BatchReceived) -> bool:
    """True if the batch ends inside a transaction."""
    return bool(len(event.batch.tx.flags) and event.batch.tx.flags[-1] & 2)


def _value(value: object) -> str:
    match value:
        case Progress():
            covered = (
                "" if value.covered == value.acknowledged else f", covered {_value(value.covered)}"
            )
            return f"acknowledged {_value(value.acknowledged)}{covered}"
        case Position():
            return f"{of_position(value)} (epoch {value.epoch})"
        case ExecutedPosition():
            gtids = f"{value.gtids} " if str(value.gtids) else ""
            return f"{gtids}{value.file}:{value.offset}"
        case StoredVersions():
            return " ".join(
                f"{'.'.join(name)} {start} to {end}" for name, start, end, *_ in value.versions
            )
        case tuple():  # names of tables
            return " ".join(".".join(name) for name in value)
        case list():
            return " ".join(_value(item) for item in value) or "none"
        case _:
            return str(value)
