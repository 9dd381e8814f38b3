"""Logging: structlog to stderr, as text (`console`) or as one JSON object per line (`json`).

Each line has the keys `timestamp` (UTC), `level` and `event`, then other keys, which docs/log.md lists. Values of rows
are never logged. Known secrets are redacted in all values, also in exceptions and in lines of libraries. A secret
shorter than 5 characters is redacted only as a complete value, because it can be part of any word.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, TextIO

import structlog

from dispatcher.model.printable import indented, json_escaped, printable_values
from dispatcher.telemetry.repeats import Repeats

REDACTED = "[secret]"
_PART_LENGTH_MIN = 5
_TRACEBACKS = ("exception", "stack")  # texts of several lines
_FIRST_KEYS = ("timestamp", "level", "event", "client", "consumer")

_Event = MutableMapping[str, Any]
_Processor = Callable[[Any, str, _Event], Any]


def configure(
    level: str,
    style: str,
    secrets: Collection[str] = (),
    *,
    stream: TextIO | None = None,
    repeats: Repeats | None = None,
) -> None:
    """Configure the logging of the process. `level`: debug, info, warning, error; `style`: console, json; `repeats`:
    counts repeated faults, unless `level` is debug.

    May be called again. Libraries log at `warning` and above, or at `debug` if `level` is debug; numba always at
    `warning`, because its compiler logs tens of thousands of lines.
    """
    out = sys.stderr if stream is None else stream
    common: list[_Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
    ]
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    final: list[_Processor] = [
        # `format_exc_info` comes before `redact`, so that `redact` gets tracebacks as text.
        structlog.processors.format_exc_info,
        _order,
        redact(secrets),
        *_renderers(style, out),
    ]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    counted = repeats if threshold > logging.DEBUG else None
    structlog.configure(
        # `stamp` comes after `counted`: `counted` may first log how often an earlier line was repeated, and that line
        # needs an earlier time.
        processors=[*common, *([counted.process] if counted else []), stamp, *final],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, stamp],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    if counted is not None:
        handler.addFilter(counted.filter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("numba").setLevel(logging.WARNING)
    root.setLevel(threshold if threshold == logging.DEBUG else max(threshold, logging.WARNING))


def redact(secrets: Collection[str]) -> _Processor:
    """A processor that replaces secrets in all values of an event, at any depth."""
    whole = frozenset(secret for secret in secrets if secret)
    # Replace the longest secrets first: a secret can be part of another secret.
    parts = sorted((s for s in whole if len(s) >= _PART_LENGTH_MIN), key=len, reverse=True)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            if value in whole:
                return REDACTED
            for part in parts:
                value = value.replace(part, REDACTED)
            return value
        if isinstance(value, dict):
            return {clean(key): clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [clean(item) for item in value]
        if value is None or isinstance(value, (bool, int, float)):
            return REDACTED if str(value) in whole else value
        return clean(str(value))

    def process(_logger: Any, _method: str, event: _Event) -> _Event:
        return {key: clean(value) for key, value in event.items()}

    return process


def _order(_logger: Any, _method: str, event: _Event) -> _Event:
    first = {key: event[key] for key in _FIRST_KEYS if key in event}
    return {**first, **{key: value for key, value in event.items() if key not in first}}


def _renderers(style: str, out: TextIO) -> list[_Processor]:
    """Returns the processors that render an event. Values may have text from servers and libraries, so both forms
    escape the characters that control a terminal."""
    if style == "json":
        return [structlog.processors.JSONRenderer(serializer=_json)]
    renderer = structlog.dev.ConsoleRenderer(
        colors=out.isatty(), sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )
    return [_printable, renderer]


def _json(event: _Event, **how: Any) -> str:
    return json_escaped(json.dumps(event, ensure_ascii=False, **how))


def _printable(_logger: Any, _method: str, event: _Event) -> _Event:
    return {
        key: indented(value) if key in _TRACEBACKS else printable_values(value)
        for key, value in event.items()
    }
