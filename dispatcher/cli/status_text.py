"""The rows of `GET /v1/binlogs` as text: sizes, durations and positions, and the tables of `binlogs`.

On a terminal, the consumers' faults follow the table and are wrapped to the width of the terminal. In a file or a pipe,
the line of each consumer also contains its faults, so that `grep` and `awk` find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dispatcher.model.sizes import duration_text, size_text
from dispatcher.terminal.output import PIPE_WIDTH, print_plain, say, shown

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = dict[str, Any]
STATE_STYLES = {
    "streaming": "green",
    "ended": "green",
    "failed": "red",
    "connecting": "yellow",
    "paused": "yellow",
    "closed": "yellow",
    "detached": "yellow",
}
READER_STYLES = {
    "waiting": "green",
    "reading": "green",
    "slow": "yellow",
    "paused": "yellow",
}


def position_text(row: Row, key: str = "acknowledged") -> str:
    """A position of a row as text: file and offset, or the GTID set if the position has no file."""
    position = row[key]
    if position is None:
        return "-"
    return f"{position['file']}:{position['offset']}" if position["file"] else position["gtid"]


def consumer_text(row: Row) -> str:
    """The name of a row's consumer, marked if a token has declared it."""
    return row["name"] if row["declared_by"] is None else f"{row['name']} (declared)"


def queue_share(row: Row) -> float:
    """How much of the queue's memory is used, from 0 to 1."""
    return min(1.0, row["bytes"] / row["max_bytes"]) if row["max_bytes"] else 0.0


def shared_faults(rows: Sequence[Row]) -> list[str]:
    """The faults that all consumers share: errors of the daemon's state store."""
    return list(dict.fromkeys(error for row in rows if (error := row.get("state_store_error"))))


def faults_of(row: Row) -> list[str]:
    """What is wrong with a consumer, each in one line: its warnings, then its last error."""
    error = row["last_error"]
    return [
        *(f"warning: {text}" for text in row.get("warnings", ())),
        *([error] if error else []),
    ]


Column = tuple[str, bool, Callable[[Row], str]]  # heading, right-aligned, text of a row
_READ: Column = ("events/s", True, lambda row: f"{row['dispatcher_events_read_per_sec']:.0f}")
NARROW: tuple[Column, ...] = (
    ("consumer", False, consumer_text),
    ("state", False, lambda row: row["state"]),
    ("reader", False, lambda row: row["reader"]),
    ("lag", True, lambda row: duration_text(row["lag_seconds"])),
    ("queue", True, lambda row: f"{100 * queue_share(row):.0f} %"),
    _READ,
    ("position", False, position_text),
)
WIDE: tuple[Column, ...] = (
    *NARROW[:1],
    ("connection", False, lambda row: row["binlog_client_name"]),
    ("dispatcher", False, lambda row: row["dispatcher_name"] or "-"),
    *NARROW[1:4],
    ("queue", True, lambda row: size_text(row["bytes"])),
    ("of", True, lambda row: size_text(row["max_bytes"])),
    ("unacknowledged", True, lambda row: size_text(row["unacknowledged_bytes"])),
    ("spilled", True, lambda row: size_text(row["spilled_bytes"])),
    ("runway", True, lambda row: duration_text(row["runway_seconds"])),
    ("detaches", True, lambda row: str(row["detaches"])),
    _READ,
    NARROW[-1],
)


def print_binlogs(rows: Sequence[Row], *, wide: bool) -> None:
    """Raises KeyError, TypeError or ValueError if the rows are not the daemon's."""
    from rich.console import Console  # noqa: PLC0415

    console, rows = Console(), shown(rows)
    columns = WIDE if wide else NARROW
    if not rows:
        say("no consumers that this token may see", err=True)
    elif not console.is_terminal:
        faults: Column = (
            "faults",
            False,
            lambda row: "; ".join([*shared_faults([row]), *faults_of(row)]) or "-",
        )
        print_plain(_table(rows, (*columns, faults)))
    else:
        # A wide table is not cut to the terminal's width.
        console.width, width = max(console.width, PIPE_WIDTH if wide else 0), console.width
        console.print(_table(rows, columns))
        console.width = width
        for part in _faults(rows):
            console.print(part)


def _faults(rows: Sequence[Row]) -> Iterator[RenderableType]:
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    for line in shared_faults(rows):
        yield Text("\nall consumers", style="red")
        yield Padding(Text(line), (0, 0, 0, 2))
    for row in rows:
        if faults := faults_of(row):
            yield Text(f"\n{row['name']}: {row['state']}", style=state_style(row))
            for line in faults:
                yield Padding(Text(line), (0, 0, 0, 2))


def reader_style(row: Row) -> str:
    """Returns the colour of a reader's state. A reader that has disconnected is shown in red only if changes wait for
    this reader."""
    if row["reader"] == "gone":
        return "red" if row["unacknowledged_bytes"] else "yellow"
    return READER_STYLES.get(row["reader"], "default")


def state_style(row: Row) -> str:
    return STATE_STYLES.get(row["state"], "default")


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, right, _ in columns:
        folds = heading in ("consumer", "connection")
        table.add_column(
            heading, justify="right" if right else "left", overflow="fold", no_wrap=not folds
        )
    for row in rows:
        styles = {"state": state_style(row)}
        table.add_row(*(Text(text(row), styles.get(name, "")) for name, _, text in columns))
    return table


def print_consumer(row: Row) -> None:
    """Print all that a row says about its consumer, one line per value, then its faults."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid, row = Table.grid(padding=(0, 2)), shown(row)
    for key, value in _consumer_lines(row):
        style = state_style(row) if key == "state" else ""
        grid.add_row(Text(key, style="bold"), Text(value, style=style, overflow="fold"))
    for line in [*shared_faults([row]), *faults_of(row)]:
        grid.add_row(Text("fault", style="bold"), Text(line))
    console = Console()
    if console.is_terminal:
        console.print(grid)
    else:
        print_plain(grid)


_SHOWN_IN_PARTS = frozenset(
    {"bytes", "max_bytes", "acknowledged", "covered", "last_error", "state_store_error"}
)


def _consumer_lines(row: Row) -> list[tuple[str, str]]:
    first = [
        ("consumer", row["name"]),
        ("state", row["state"]),
        ("connection", row["binlog_client_name"]),
        ("lag", duration_text(row["lag_seconds"])),
        ("queue", f"{size_text(row['bytes'])} of {size_text(row['max_bytes'])}"),
        ("acknowledged", position_text(row)),
    ]
    shown = {"name", "state", "binlog_client_name", "lag_seconds", "warnings", *_SHOWN_IN_PARTS}
    rest = [(key, _value_text(key, value)) for key, value in row.items() if key not in shown]
    return first + rest


def _time_text(seconds: int) -> str:
    """`seconds`: a time in seconds since 1970, 0 if the time is not known yet."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC" if seconds > 0 else "-"


def _value_text(key: str, value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, int) and key.endswith("_bytes"):
        return size_text(value)
    if isinstance(value, int | float) and key.endswith("_seconds"):
        return duration_text(value)
    if isinstance(value, int) and key.endswith("_timestamp"):
        return _time_text(value)
    return str(value)
