"""The transcript of a history: the events and effects of each daemon, and the faults that happen to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Effect, Event, LogEvent, WakeUp
from dispatcher.model.errors import BinlogError


class Transcript:
    """`lines` is None if the transcript is not kept."""

    def __init__(self, *, kept: bool) -> None:
        self.lines: list[str] | None = [] if kept else None

    def said(self, now: float, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{now:8.3f}  -- {text}")

    def stepped(self, now: float, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Add an event and its effects. A WakeUp without an effect is left out."""
        if self.lines is None or (isinstance(event, WakeUp) and not effects):
            return
        self.lines.append(f"{now:8.3f}  {name}: {_text(event)}")
        self.lines += [f"{'':8}    -> {_text(effect)}" for effect in effects]


def _text(value: object) -> str:
    match value:
        case LogEvent(level, event, noted):
            shown = ", ".join(f"{name} {_value(one)}" for name, one in noted.items())
            return f"LogEvent {level}: {event}" + (f": {shown}" if shown else "")
        case _:
            parts = [_value(getattr(value, field.name)) for field in fields(value)]  # type: ignore[arg-type]
            return " ".join([type(value).__name__, *parts])


def _value(value: object) -> str:
    match value:
        case LeaseRow():
            if not value.term:
                return "[no holder yet]"
            state = "free" if value.free else f"for {value.remaining_s:.3f} s"
            return f"[{value.address} term {value.term}, {state}]"
        case BinlogError():
            return value.what
        case str() | int() | float() | None:
            return str(value).partition("; ")[0]  # an error without its remedy
        case _:
            return _text(value)
