"""Parses a commit of Delta's log: each line is one action, as a JSON object (Delta's protocol, "Delta Log Entries")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def commit_actions(text: str) -> Iterator[dict[str, Any]]:
    """Yields the actions of a commit. Raises ValueError for a line that is no JSON.

    Only a newline ends a line: names and comments of tables may contain other characters at which `str.splitlines`
    splits, such as U+2028, and Delta writes these characters unescaped.
    """
    for line in text.split("\n"):
        if line:
            yield json.loads(line)
