"""The view of `top`, made from `GET /v1/binlogs` alone.

It shows connections with their dispatchers, and dispatchers with their consumers. The rates of a dispatcher count what
the dispatcher reads from the server. The rate of a consumer counts the bytes that the consumer's reader fetches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from dispatcher.cli.calls import DaemonAddress, binlog_rows, unexpected
from dispatcher.cli.status_text import (
    STATE_STYLES,
    Row,
    faults_of,
    queue_share,
    reader_style,
    shared_faults,
    state_style,
)
from dispatcher.model.sizes import duration_text, size_text
from dispatcher.terminal.live import bar, faults, grid, heading
from dispatcher.terminal.output import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_WIDTH = 10


class DaemonReadings:
    """The newest reading of a daemon."""

    def __init__(self, address: DaemonAddress) -> None:
        self.rows: list[Row] = []
        self.error = ""
        self._address = address

    def read_rates(self) -> bool:
        """Make the first reading. The second reading has the rates of the time since the first reading. Returns
        True."""
        self.read()
        return True

    def read(self) -> None:
        self.rows, self.error = binlog_rows(self._address), ""

    def as_json(self) -> list[Row] | None:
        return None if self.error else self.rows

    def view(self, hint: str = "") -> RenderableType:
        """Raises BinlogError if the rows are not the daemon's."""
        try:
            return Group(*self._parts(shown(self.rows), hint))
        except (KeyError, TypeError, ValueError):
            raise unexpected(self._address.url) from None

    def _parts(self, rows: list[Row], hint: str) -> Iterator[RenderableType]:
        title = f"{self._address.choice.current}  {len(rows)} consumers"
        states = [row["state"] for row in rows]
        yield heading(title, states, lambda state: STATE_STYLES.get(state, "default"))
        errors = [self.error, *shared_faults(rows)]
        yield from faults(hint, [(error, "red") for error in errors])
        for connection, of_connection in _grouped(rows, "binlog_client_name"):
            yield Text()
            yield Text(connection, style="bold")
            for dispatcher, attached in _grouped(of_connection, "dispatcher_name"):
                yield Padding(_dispatcher_line(dispatcher, attached[0]), (0, 0, 0, 2))
                yield Padding(_consumers(attached), (0, 0, 0, 4))


def _consumers(rows: Sequence[Row]) -> RenderableType:
    table = grid(("consumer", "state", "reader"), ("lag", "queue", "fetches"))
    lines: list[RenderableType] = []
    for row in rows:
        table.add_row(
            Text(row["name"]),
            Text(row["state"], style=state_style(row)),
            Text(row["reader"], style=reader_style(row)),
            duration_text(row["lag_seconds"]),
            _fill(row),
            f"{size_text(row['delivered_bytes_per_sec'])}/s",
        )
        lines += [Text(f"{row['name']}: {line}", style="red") for line in faults_of(row)]
    return Group(table, *lines)


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
    style = "red" if share >= 0.9 else "yellow" if share >= 0.5 else "green"
    return bar(share, _BAR_WIDTH, style).append(f" {100 * share:3.0f} %", style="default")


def _grouped(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return list(groups.items())
