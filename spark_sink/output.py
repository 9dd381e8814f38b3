"""What the commands of the mirror print, besides tables of rich. See `dispatcher.model.printable`.

Tables, servers and Spark choose parts of these texts.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from dispatcher.model.printable import json_escaped, printable


def say(line: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text that has lines by itself; its parts are printable already."""
    for line in text.split("\n"):
        say(line, err=err)


def say_error(error: Exception) -> None:
    """Print an error; the one of settings has several lines."""
    say_lines(str(error), err=True)


def say_json(value: Any) -> None:
    """Print a value exactly, as one line of JSON."""
    say_json_text(json.dumps(value, ensure_ascii=False))


def say_json_text(text: str) -> None:
    """Print a line of JSON exactly."""
    typer.echo(json_escaped(text))


def say_progress(line: str) -> None:
    """Print one line to stderr at once, without loading more than Python's own modules."""
    print(printable(line), file=sys.stderr, flush=True)
