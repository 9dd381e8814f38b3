"""What happened in a play, in words: virtual time, input, effects. Written down only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from dispatcher.dispatch.effects import Effect, Wake
from dispatcher.dispatch.events import (
    Acknowledged,
    Added,
    BatchReceived,
    Input,
    LoggedIn,
    Lost,
    Removed,
    SeekRequested,
    ServerPolled,
)
from dispatcher.dispatch.executed_position import ExecutedPosition
from dispatcher.dispatch.specs import Progress
from dispatcher.model.position import Position


class Transcript:
    """`lines` is None where nobody wants to read it."""

    def __init__(self, *, kept: bool) -> None:
        self.lines: list[str] | None = [] if kept else None

    def said(self, now: float, what: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{now:10.3f}  -- {what}")

    def stepped(self, now: float, what: Input, effects: Sequence[Effect]) -> None:
        if self.lines is not None:
            self.lines.append(f"{now:10.3f}  {of_input(what)}")
            told = (effect for effect in effects if not isinstance(effect, Wake))
            self.lines += [f"{'':10}    -> {of_effect(effect)}" for effect in told]


def of_input(what: Input) -> str:  # noqa: PLR0911 - one for each kind
    match what:
        case BatchReceived():
            batch = what.batch
            sets = f"{len(batch.tx.first)} transactions" + (", open" if _is_open(what) else "")
            return f"Arrived {what.dispatcher}: {batch.events} events, {sets}, to {batch.file}:{batch.offset}"
        case LoggedIn():
            view = what.view
            return (
                f"LoggedIn {what.dispatcher}: {view.server[:4]} {view.executed} at {view.file}:{view.offset}"
                f" purged {view.purged or 'nothing'} from {view.files[0][0]}"
            )
        case ServerPolled():
            return f"Surveyed {what.view.server[:4]} {what.view.executed}"
        case Lost():
            return f"Lost {what.dispatcher}: {what.error.kind} {what.error.what}"
        case Acknowledged():
            return f"Acknowledged {what.consumer}: {_value(what.position)}"
        case SeekRequested():
            return f"Sought {what.consumer}: {_value(what.after)}"
        case Added():
            return f"Added {what.spec.name}: {_value(what.progress)}"
        case Removed():
            return f"Removed {what.consumer}"
        case _:
            return type(what).__name__


def of_effect(effect: Effect) -> str:
    values = ", ".join(_value(getattr(effect, f.name)) for f in fields(effect))
    return f"{type(effect).__name__} {values}"


def _is_open(what: BatchReceived) -> bool:
    return bool(len(what.batch.tx.flags) and what.batch.tx.flags[-1] & 2)


def _value(value: object) -> str:
    match value:
        case Progress():
            return f"acknowledged {_value(value.acknowledged)} covered {_value(value.covered)} created {value.created}"
        case Position():
            return f"{value.server[:4]} {value.gtid} {value.file}:{value.offset} seq {value.seq} epoch {value.epoch}"
        case ExecutedPosition():
            return f"{value.gtids} {value.file}:{value.offset}"
        case _:
            return str(value)
