"""Log lines: structlog to stderr, for people (`console`) or one JSON object a line (`json`).

Keys are fixed: `timestamp` (UTC), `level`, `event`, then as they apply `client` (user@host:port),
`consumer`, `error`, and the event's own. Never a row's value. No secret gets out either: whatever
the text, a known secret in it is replaced, in exceptions and in the lines of libraries too. Very
short secrets are replaced only where they are the whole value, since they may be part of any word.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, MutableMapping
from typing import Any, TextIO

import structlog

REDACTED = "[secret]"
_PART_LENGTH_MIN = 5
_FIRST_KEYS = ("timestamp", "level", "event", "client", "consumer")

_Event = MutableMapping[str, Any]
_Processor = Callable[[Any, str, _Event], Any]


def configure(
    level: str, style: str, secrets: Collection[str] = (), *, stream: TextIO | None = None
) -> None:
    """Set up the process's logging. `level`: debug, info, warning, error; `style`: console, json.

    May be called again. Libraries' own lines go the same way, from `warning` on (from `debug` on,
    when `level` is that). numba's stay at `warning`: its compiler writes tens of thousands.
    """
    out = sys.stderr if stream is None else stream
    common: list[_Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    final: list[_Processor] = [
        # Before the secrets are taken out: a traceback is text then.
        structlog.processors.format_exc_info,
        _order,
        redact(secrets),
        _renderer(style, out),
    ]
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*common, *final],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("numba").setLevel(logging.WARNING)
    root.setLevel(least if least == logging.DEBUG else max(least, logging.WARNING))


def redact(secrets: Collection[str]) -> _Processor:
    """A processor that takes the secrets out of an event's values, however deep."""
    whole = frozenset(secret for secret in secrets if secret)
    # The longest first: one secret may be a part of another.
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


def _renderer(style: str, out: TextIO) -> _Processor:
    if style == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(
        colors=out.isatty(), sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )
