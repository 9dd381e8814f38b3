"""`top`: a live view of a daemon, from `GET /v1/binlogs` alone.

Connections hold dispatchers, and dispatchers hold consumers. The rates of a dispatcher are what it reads of the server,
those of a consumer what its reader fetches.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dispatcher.cli.calls import DaemonAddress, rows_of, unexpected
from dispatcher.cli.output import shown
from dispatcher.cli.status_text import (
    READER_STYLES,
    STATE_STYLES,
    Row,
    faults_of,
    print_lines,
    queue_share,
    shared_faults,
    state_style,
)
from dispatcher.model.errors import BinlogError
from dispatcher.model.printable import printable
from dispatcher.model.sizes import duration_text, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 10


class Readings:
    """The newest reading of a daemon."""

    def __init__(self, address: DaemonAddress) -> None:
        self.rows: list[Row] = []
        self.error = ""
        self._address = address

    def read(self) -> None:
        """Ask the daemon. Raises BinlogError."""
        self.rows, self.error = shown(rows_of(self._address)), ""

    def view(self, *, hint: bool = True) -> RenderableType:
        """Raises BinlogError if the rows are not the daemon's."""
        try:
            return Group(*self._parts(hint=hint))
        except (KeyError, TypeError, ValueError):
            raise unexpected(self._address.url) from None

    def _parts(self, *, hint: bool) -> Iterator[RenderableType]:
        states: dict[str, int] = {}
        for row in self.rows:
            states[row["state"]] = states.get(row["state"], 0) + 1
        heading = Text(f"{printable(self._address.url)}  {len(self.rows)} consumers", style="bold")
        for state, count in sorted(states.items()):
            heading.append(f"  {count} {state}", style=STATE_STYLES.get(state, "default"))
        yield heading
        if hint:
            yield Text("q ends", style="dim")
        for error in [self.error, *shared_faults(self.rows)]:
            if error:
                yield Text(error, style="red")
        for connection, rows in _grouped(self.rows, "binlog_client_name"):
            yield Text()
            yield Text(connection, style="bold")
            for dispatcher, attached in _grouped(rows, "dispatcher_name"):
                yield Padding(_dispatcher_line(dispatcher, attached[0]), (0, 0, 0, 2))
                yield Padding(self._consumers(attached), (0, 0, 0, 4))

    def _consumers(self, rows: Sequence[Row]) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("consumer", "state", "reader"):
            table.add_column(heading, overflow="fold")
        for heading in ("lag", "queue", "fetches"):
            table.add_column(heading, justify="right", no_wrap=True)
        faults: list[RenderableType] = []
        for row in rows:
            table.add_row(
                Text(row["name"]),
                Text(row["state"], style=state_style(row)),
                Text(row["reader"], style=READER_STYLES.get(row["reader"], "default")),
                duration_text(row["lag_seconds"]),
                _fill(row),
                f"{size_text(row['delivered_bytes_per_sec'])}/s",
            )
            faults += [Text(f"{row['name']}: {line}", style="red") for line in faults_of(row)]
        return Group(table, *faults)


def _dispatcher_line(name: str, row: Row) -> Text:
    if not name:
        return Text("no dispatcher", style="yellow")
    return Text(
        f"{name}  {row['dispatcher_mysql_binlog_name'] or '-'}:{row['dispatcher_mysql_binlog_pos']}"
        f"  {row['dispatcher_events_read_per_sec']:.0f} events/s"
        f"  {size_text(row['dispatcher_bytes_read_per_sec'])}/s"
    )


def _fill(row: Row) -> Text:
    """The queue as a bar, and its share in percent."""
    share = queue_share(row)
    full = round(share * _BAR_WIDTH)
    style = "red" if share >= 0.9 else "yellow" if share >= 0.5 else "green"
    bar = Text("█" * full, style=style)
    bar.append("░" * (_BAR_WIDTH - full), style="dim")
    return bar.append(f" {100 * share:3.0f} %", style="default")


def _grouped(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return list(groups.items())


def print_once(address: DaemonAddress, every_s: float) -> None:
    """Print one view. Raises BinlogError.

    The daemon computes rates between two calls, so it is called twice.
    """
    readings = Readings(address)
    readings.read()
    time.sleep(every_s)
    readings.read()
    console = Console()
    if console.is_terminal:
        console.print(readings.view(hint=False))
    else:
        print_lines(readings.view(hint=False))


def run_live(address: DaemonAddress, every_s: float) -> None:
    """Show the view until q is pressed. Raises BinlogError if the first reading fails; later faults are shown."""
    readings = Readings(address)
    readings.read()
    with _single_keys() as keyboard, Live(readings.view(), screen=True, auto_refresh=False) as live:
        while not _quits(keyboard, every_s):
            try:
                readings.read()
            except BinlogError as error:
                readings.error = str(error)
            live.update(readings.view(), refresh=True)


@contextmanager
def _single_keys() -> Iterator[int]:
    """The descriptor of a terminal that passes on each key at once, and does not print it."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _quits(keyboard: int, wait_s: float) -> bool:
    """Wait for a key. True if it is q, or if the terminal was closed."""
    readable, _, _ = select.select([keyboard], [], [], wait_s)
    if not readable:
        return False
    return os.read(keyboard, 1) in (b"q", b"Q", b"")
