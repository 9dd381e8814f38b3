"""Prints the output of the command lines. Apart from tables of rich, only this module writes to stdout or stderr.

Parts of the texts come from servers, tables, daemons and Spark, so `dispatcher.model.printable` makes each text
printable. For a table of the library `rich`, `shown` makes the texts of the rows printable before the table is built.
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
PIPE_WIDTH = 10_000  # characters in a line of a table that is printed into a file or a pipe


def say(line: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print each line of a text. The caller has made the parts printable, so a line feed always ends a line."""
    for line in text.split("\n"):
        say(line, err=err)


def say_error(error: Exception) -> None:
    """Print an error to stderr. The text of a SettingsError has several lines."""
    say_lines(str(error), err=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON. Without `indent` the JSON is one line."""
    say_json_text(json.dumps(value, indent=indent, ensure_ascii=False))


def say_json_text(text: str) -> None:
    """Print JSON text. Characters that control a terminal are printed as JSON escapes."""
    typer.echo(json_escaped(text))


def say_progress(line: str) -> None:
    """Print one line to stderr, and flush stderr."""
    print(printable(line), file=sys.stderr, flush=True)


def show_progress(line: str) -> None:
    """Print to stderr how far a command is. On a terminal, the text replaces the one that was printed before."""
    if sys.stderr.isatty():
        print(f"\r{printable(line)}", end="", file=sys.stderr, flush=True)
    else:
        say_progress(line)


def print_plain(content: RenderableType) -> None:
    """Print to stdout without colours. Lines of up to PIPE_WIDTH characters are not wrapped."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=PIPE_WIDTH, no_color=True, highlight=False)
    with console.capture() as text:
        console.print(content)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.get().splitlines())


def shown(rows: T) -> T:
    """Returns a copy of the rows, with the same structure, in which each text is printable."""
    value: T = printable_values(rows)
    return value
