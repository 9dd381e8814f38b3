"""Logs a repeated fault once, and afterwards only the number of its repetitions.

A warning or error repeats an earlier line if level, event and fields are equal. The field `retry_s`, how long the
daemon waits until it tries again, is not compared. The first line is written, and its repetitions are counted in a
window of time. At the end of the window, one line reports how often the first line was repeated (`repeated`, `in_s` and
`last_at`). The next window is twice as long, up to an hour. After a window without a repetition, the next such line is
written again.

Before the module writes a line that reports the end of a fault, it writes the number of repetitions so far. Then a
window of the shortest length begins, in which repetitions of the fault are still counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

WINDOW_MIN_S, WINDOW_MAX_S = 60.0, 3600.0
CHECK_EVERY_S = 1.0
FAULTS_MAX = 10_000  # how many different lines are remembered; further lines are always written
_LEVELS = frozenset({"warning", "error", "critical"})
_VARYING = ("retry_s", "timestamp")
# These lines are always written. They follow an action of a person, such as a reload, and come once for each action.
_ANSWERS = frozenset({
    "consumer failed",
    "databases",
    "restart the daemon to apply these settings",
    "settings",
    "settings not reloaded, nothing was changed",
})  # fmt: skip

# Maps the line that reports the end of a fault to the line that reports the fault.
_RECOVERIES = {
    "streaming": "not connected",
    "no other daemon has this state any more": "another daemon has this state",
    "state stored again": "state not stored",
    "lease reached again": "lease not reached",
    "mqtt connected": "mqtt not connected",
    "webhook delivered": "webhook not delivered",
}
_THINGS = ("client", "dispatcher", "broker", "webhook")

Fields = Mapping[str, Any]
_Key = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Fault:
    fields: dict[str, Any]
    began: float
    window_s: float = WINDOW_MIN_S
    count: int = 0
    last_at: str = ""  # the time of the newest repetition

    def line(self, now: float) -> dict[str, Any]:
        """The fields of the line that says how often the fault was repeated."""
        counted = {"repeated": self.count, "in_s": round(now - self.began), "last_at": self.last_at}
        return {**self.fields, **counted}


class Repeats:
    """Counts repeated lines. Several threads may use one object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._faults: dict[_Key, _Fault] = {}

    def is_repeat(self, fields: Fields) -> bool:
        """True if the log counts the line instead of writing it. `fields` hold `level` and `event`."""
        if fields.get("level") not in _LEVELS or fields.get("event") in _ANSWERS:
            return False
        key = tuple(sorted((name, repr(v)) for name, v in fields.items() if name not in _VARYING))
        with self._lock:
            fault = self._faults.get(key)
            if fault is not None:
                fault.count += 1
                fault.last_at = (
                    datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                )
                return True
            if len(self._faults) < FAULTS_MAX:
                lasting = {name: value for name, value in fields.items() if name not in _VARYING}
                self._faults[key] = _Fault(lasting, self._clock())
        return False

    def due(self, *, final: bool = False) -> list[dict[str, Any]]:
        """The fields of the lines that say how often a fault was repeated. `final`: end all windows now."""
        now, lines = self._clock(), []
        with self._lock:
            for key, fault in list(self._faults.items()):
                passed_s = now - fault.began
                if passed_s < fault.window_s and not final:
                    continue
                if not fault.count:
                    del self._faults[key]
                    continue
                lines.append(fault.line(now))
                fault.began, fault.count = now, 0
                fault.window_s = min(fault.window_s * 2, WINDOW_MAX_S)
        return lines

    def recovered(self, fields: Fields) -> list[dict[str, Any]]:
        """The fields of the lines to write before a line that reports the end of a fault; usually there are no such
        lines."""
        over = _RECOVERIES.get(str(fields.get("event")))
        if over is None or fields.get("level") != "info":
            return []
        now, lines = self._clock(), []
        things = [fields.get(name) for name in _THINGS]
        with self._lock:
            for fault in self._faults.values():
                about = [fault.fields.get(name) for name in _THINGS]
                if fault.fields.get("event") == over and about == things:
                    if fault.count:
                        lines.append(fault.line(now))
                    fault.began, fault.count, fault.window_s = now, 0, WINDOW_MIN_S
        return lines

    def say(self, *, final: bool = False) -> None:
        """Log the numbers of repetitions that are due."""
        _write(self.due(final=final))

    async def say_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self.say()

    # -- the two ways to the log -----------------------------------------------------------------------------

    def process(self, _logger: Any, _method: str, event: Any) -> Any:
        """A processor of structlog, after `add_log_level`. Raises DropEvent for a repetition."""
        if "repeated" not in event:
            if self.is_repeat(_without_error(event)):
                raise structlog.DropEvent
            _write(self.recovered(event))
        return event

    def filter(self, record: logging.LogRecord) -> bool:
        """A filter of the standard library's logging, for the lines of libraries."""
        error = record.exc_info[1] if record.exc_info else None
        fields = {"level": record.levelname.lower(), "event": record.getMessage()}
        return not self.is_repeat({**fields, "error": str(error)} if error else fields)


def _write(lines: Iterable[dict[str, Any]]) -> None:
    log = structlog.get_logger("dispatcher")
    levels = logging.getLevelNamesMapping()
    for line in lines:
        log.log(levels[str(line.pop("level")).upper()], line.pop("event"), **line)


def _without_error(event: Fields) -> dict[str, Any]:
    """Returns the fields with the exception as text, because an exception keeps much memory alive."""
    fields = dict(event)
    error = fields.pop("exc_info", None)
    if isinstance(error, BaseException):
        fields["error"] = f"{type(error).__name__}: {error}"
    return fields
