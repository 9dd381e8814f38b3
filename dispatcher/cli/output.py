"""What the commands print: the only place of `cli` that writes text to stdout or stderr, besides tables of rich.

Servers, tables and daemons choose parts of these texts, so that all of them pass `dispatcher.model.printable`. Rows for
a table of rich pass `shown` before the table is made.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import typer

from dispatcher.model.printable import json_escaped, printable, printable_values

T = TypeVar("T")


def say(line: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(line), err=err)


def say_error(error: Exception) -> None:
    """Print an error; the one of settings has several lines."""
    for line in str(error).split("\n"):
        say(line, err=True)


def say_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value exactly."""
    typer.echo(json_escaped(json.dumps(value, indent=indent, ensure_ascii=False)))


def shown(rows: T) -> T:
    """The daemon's answer as a person may see it: the same structure, with printable texts."""
    value: T = printable_values(rows)
    return value
