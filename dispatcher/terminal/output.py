"""What the command lines print: the only place that writes text to stdout or stderr, besides tables of rich.

Servers, tables, daemons and Spark choose parts of these texts, so all texts pass `dispatcher.model.printable`.
Rows for a table of rich pass `shown` before the table is made.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from dispatcher.model.printable import json_escaped, printable, printable_values

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")
PIPE_WIDTH = 10_000  # the columns of a table that is printed into a file or a pipe


def say(line: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text that may have several lines; its parts are printable already."""
    for line in text.split("\n"):
        say(line, err=err)


def say_error(error: Exception) -> None:
    """Print an error. A SettingsError has several lines."""
    say_lines(str(error), err=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value exactly, without `indent` as one line."""
    say_json_text(json.dumps(value, indent=indent, ensure_ascii=False))


def say_json_text(text: str) -> None:
    """Print JSON exactly."""
    typer.echo(json_escaped(text))


def say_progress(line: str) -> None:
    """Print one line to stderr at once."""
    print(printable(line), file=sys.stderr, flush=True)


def print_plain(content: RenderableType) -> None:
    """Print without colours, and without a limit of width."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=PIPE_WIDTH, no_color=True, highlight=False)
    with console.capture() as text:
        console.print(content)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.get().splitlines())


def shown(rows: T) -> T:
    """Returns an answer for display: the same structure, with printable texts."""
    value: T = printable_values(rows)
    return value
