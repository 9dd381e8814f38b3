"""Writes log lines for people and programs: an event with fields, as text or as JSON.

2026-11-22 17:28:30,695 INFO batch consumer=shop batch=12 transactions=3 rows=40
{"timestamp": "2026-11-22T17:28:30.695560Z", "level": "info", "event": "batch", "consumer": "shop", "batch": 12}
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from copy import copy
from datetime import UTC, datetime
from typing import Any, TextIO

from dispatcher.model.printable import indented, json_escaped, printable

_TEXT = "%(asctime)s %(levelname)s %(message)s"


def log_event(
    logger: logging.Logger, event: str, fields: Mapping[str, Any], level: int = logging.INFO
) -> None:
    """Log an event with its fields. The message contains the fields as key=value; `JsonLines` writes the fields as keys
    of the JSON object."""
    if logger.isEnabledFor(level):
        text = " ".join([event, *(f"{key}={_value(value)}" for key, value in fields.items())])
        logger.log(level, "%s", text, extra={"event": event, "fields": dict(fields)})


def formatter(form: str, complete: Callable[[str], str] = str) -> logging.Formatter:
    """Returns the formatter for a value of the setting `log_format`, `console` or `json`. `complete` adds this
    process's options to the commands in a message."""
    return JsonLines(complete) if form == "json" else TextLines(complete)


class LastResort(logging.StreamHandler[TextIO]):
    """Writes warnings and errors to stderr in a process that has configured no logging, such as a Python worker of
    Spark. There, Python would write messages without time and level."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(TextLines())

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return  # the process has configured logging
            logger = logger.parent if logger.propagate else None
        self.setStream(sys.stderr)
        super().emit(record)


class TextLines(logging.Formatter):
    """One line of text for each event. Parts of the text come from tables, servers and Spark, so the formatter escapes
    characters that are not printable."""

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        super().__init__(_TEXT)
        self._complete = complete

    def format(self, record: logging.LogRecord) -> str:
        record = copy(record)
        record.exc_text = None  # the text of the exception that another formatter has cached
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        return printable(self._complete(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return indented(super().formatStack(stack_info))


class JsonLines(logging.Formatter):
    """One JSON object per line, with the same keys as in the daemon's log."""

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        super().__init__()
        self._complete = complete

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line = {
            "timestamp": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or self._complete(record.getMessage()),
            **{key: self._completed(value) for key, value in getattr(record, "fields", {}).items()},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_escaped(json.dumps(line, ensure_ascii=False, default=str))

    def _completed(self, value: Any) -> Any:
        return self._complete(value) if isinstance(value, str) else value


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = str(value)
    plain = text and not any(c.isspace() or c in '"=' for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
