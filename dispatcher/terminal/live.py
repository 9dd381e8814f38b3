"""Live views. A view reads its values again and again, and shows them on a terminal or prints them as JSON."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.printable import printable
from dispatcher.terminal.output import print_plain, say, say_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_HINT = "q ends"
_RATES_S = 1.0  # longest time between the two readings of `--once`


class Readings(Protocol):
    """The values that a view shows. `error`: why the newest reading failed, or an empty text."""

    error: str

    def read_rates(self) -> bool:
        """Make the first of the two readings for rates. Returns False if the view has no rates. Raises BinlogError."""
        ...

    def read(self) -> None:
        """Read everything that the view shows. Raises BinlogError."""

    def view(self, hint: str = "") -> RenderableType: ...

    def as_json(self) -> Any:
        """Returns the newest reading as JSON values, or None if the reading failed and there is nothing to print."""


def check_terminal(*, once: bool, as_json: bool) -> None:
    """Raises UserError if the view needs a terminal, and stdin or stdout is not a terminal."""
    if not (once or as_json or (sys.stdin.isatty() and sys.stdout.isatty())):
        remedy = "pass --once to print one view, or --json"
        raise UserError(ErrorKind.SETTINGS, "top needs a terminal", remedy=remedy)


def show(readings: Readings, every_s: float, *, once: bool, as_json: bool) -> None:
    """Print one view (`once`), print each reading as JSON (`as_json`), or show the view until q is pressed.

    Raises BinlogError if the first reading fails. If a later reading fails, the output shows the error.
    """
    if once and readings.read_rates():
        time.sleep(min(every_s, _RATES_S))
    readings.read()
    if not (once or as_json):
        _run(readings, every_s)
        return
    _print(readings, as_json=as_json)
    while not once:
        time.sleep(every_s)
        _read(readings)
        _print(readings, as_json=as_json)


def _read(readings: Readings) -> None:
    try:
        readings.read()
    except BinlogError as error:
        readings.error = str(error)


def _print(readings: Readings, *, as_json: bool) -> None:
    if as_json:
        value = readings.as_json()
        if value is None:  # stdout gets readings only
            say(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {readings.error}", err=True)
        else:
            say_json(value)
    elif (console := Console()).is_terminal:
        console.print(readings.view())
    else:
        print_plain(readings.view())
    sys.stdout.flush()


def _run(readings: Readings, every_s: float) -> None:
    with (
        _single_keys() as keyboard,
        Live(readings.view(_HINT), screen=True, auto_refresh=False) as live,
    ):
        while not _quits(keyboard, every_s):
            _read(readings)
            live.update(readings.view(_HINT), refresh=True)


@contextmanager
def _single_keys() -> Iterator[int]:
    """Yields the descriptor of stdin. While the context is open, the terminal delivers each key at once, and does not
    print the key."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _quits(keyboard: int, wait_s: float) -> bool:
    """Wait for a key, at most `wait_s`. Returns True if the key is q, or if the terminal was closed."""
    readable, _, _ = select.select([keyboard], [], [], wait_s)
    if not readable:
        return False
    return os.read(keyboard, 1) in (b"q", b"Q", b"")


# -- parts of views --------------------------------------------------------------------------------------------


def text(value: str, style: str = "") -> Text:
    """Returns a text in printable form, because parts of it come from tables, servers or Spark."""
    return Text(printable(value), style=style)


def heading(title: str, states: Iterable[str], style: Callable[[str], str]) -> Text:
    """Returns a line with the title and the number of occurrences of each state."""
    line, counts = text(title, "bold"), dict[str, int]()
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    for state, count in sorted(counts.items()):
        line.append(printable(f"  {count} {state}"), style=style(state))
    return line


def faults(hint: str, errors: Iterable[tuple[str, str]]) -> Iterator[Text]:
    """Yields the lines below the heading: the hint, and each error in its style."""
    if hint:
        yield text(hint, "dim")
    yield from (text(error, style) for error, style in errors if error)


def grid(left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """Returns an empty table. The columns in `right` are aligned right, all others left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    for name in last:
        table.add_column(name, no_wrap=True)
    return table


def bar(share: float, width: int, style: str) -> Text:
    """Returns a bar of `width` characters. `share`, from 0 to 1, is the part that is filled."""
    full = round(share * width)
    return Text("█" * full, style=style).append("░" * (width - full), style="dim")
