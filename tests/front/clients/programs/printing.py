"""How the Python programs print a line: see `tests.front.clients.lines`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_LONGEST = 200


def show(*fields: object) -> None:
    print(json.dumps(fields), flush=True)


def values(row: Mapping[str, Any] | None) -> str | None:
    """Returns the values of a row as text; long values are digests."""
    if row is None:
        return None
    return ", ".join(f"{name}={_text(value)}" for name, value in row.items())


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return _short(value.hex())
    if isinstance(value, set):
        return repr(sorted(value))
    return _short(repr(value))


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{len(text)}:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
