"""Shows the demo. On a terminal it updates tables in place; elsewhere it prints a line every few seconds."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deploy.demo.compare import Result
from deploy.demo.load import WriteCounts
from deploy.demo.schema import EVENTS
from deploy.demo.watch import DemoConsumer, MirrorProgress, Observation, Rules

LINE_EVERY_S = 3.0
NOT_PROVED: Mapping[str, float] = MappingProxyType({})
NO_LEADER = "no daemon leads"
_STYLES = {"streaming": "green", "closed": "yellow", "paused": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class ViewState:
    """What the view shows. `title`: the current step; `observation`: None if no daemon leads."""

    title: str
    observation: Observation | None
    rules: Rules
    written: WriteCounts


class View:
    """A context manager; `say` may be called at any time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said_at, self._line = 0.0, ""
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        at = f"[dim]{time.monotonic() - self._began:5.1f} s[/]  "
        self._console.print(at + text, highlight=False, soft_wrap=True)

    def show(self, state: ViewState) -> None:
        if self._live:
            self._live.update(_picture(state), refresh=True)
        elif (
            time.monotonic() - self._said_at >= LINE_EVERY_S
            and (line := _line(state)) != self._line
        ):
            self._said_at, self._line = time.monotonic(), line
            self.say(line)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _line(state: ViewState) -> str:
    observation, consumers = state.observation, state.rules.consumers
    if observation is None:
        return escape(f"{state.title}: {state.written.rows} rows written; {NO_LEADER}")
    rows = sum(progress.rows for progress in observation.mirrored.values())
    behind = ", ".join(
        f"{consumer.name} {observation.behind(consumer.name)} + {observation.unapplied(consumer.name)}"
        for consumer in consumers
        if consumer.mirrored
    )
    copied = sum(progress.copied for progress in observation.mirrored.values())
    copies = f" {copied} rows copied;" if copied else ""
    unread = "".join(
        f" {consumer.name} {observation.state(consumer.name)}, holds {size(observation.rows[consumer.name]['bytes'])};"
        for consumer in consumers
        if not consumer.shared
    )
    return escape(
        f"{state.title}: {state.written.rows} rows written, {rows} applied;{copies}"
        f" transactions not in the lake + not applied: {behind};{unread}"
        f" {sum(observation.dumps.values())} dump threads;"
        f" {observation.leader} {observation.resident_bytes / 1e6:.0f} MB"
    )


def _picture(state: ViewState) -> Group:
    observation, rules, written = state.observation, state.rules, state.written
    head = Text.from_markup(
        f"[bold]{escape(state.title)}[/]   {written.transactions} transactions, {written.statements} statements,"
        f" {written.rows} rows written"
    )
    if observation is None:
        return Group(head, Text(NO_LEADER, style="yellow"))
    memory = Text.from_markup(
        f"{observation.leader}'s resident memory [bold]{observation.resident_bytes / 1e6:.0f} MB[/]"
        f" of {rules.memory_bytes_max / 1e6:.0f} MB   the most was {observation.resident_bytes_max / 1e6:.0f} MB"
    )
    return Group(
        head, _connections(observation, rules), _consumers(observation, rules.consumers), memory
    )


def _connections(observation: Observation, rules: Rules) -> Table:
    table = _table("connection", "consumers", right=("dump threads at the server", "should be"))
    expected = rules.expected_dumps(observation)
    for user in dict.fromkeys(consumer.user for consumer in rules.consumers):
        of_user = [consumer for consumer in rules.consumers if consumer.user == user]
        shared = ", ".join(consumer.name for consumer in of_user if consumer.shared)
        alone = "".join(
            f" + {consumer.name} (unshared)" for consumer in of_user if not consumer.shared
        )
        label = str(observation.rows[of_user[0].name]["binlog_client_name"])
        there, should = observation.dumps.get(user, 0), expected.get(user, 0)
        style = "green" if there == should else "yellow"
        table.add_row(escape(label), shared + alone, f"[{style}]{there}[/]", str(should))
    return table


def _consumers(observation: Observation, consumers: Sequence[DemoConsumer]) -> Table:
    table = _table(
        "consumer",
        "state",
        right=("queue", "of", "lag s", "not acknowledged", "not applied", "rows applied", "tables"),
    )
    for consumer in consumers:
        row, mirrored = observation.rows[consumer.name], observation.mirrored.get(consumer.name)
        state = observation.state(consumer.name)
        done = ("", f"[dim]{consumer.reader or 'never reads'}[/]", "")
        if mirrored:
            done = (
                str(observation.unapplied(consumer.name)),
                str(mirrored.rows),
                _tables(mirrored),
            )
        table.add_row(
            consumer.name,
            f"[{_STYLES.get(state, 'default')}]{escape(state)}[/]",
            size(row["bytes"]),
            size(row["max_bytes"]),
            f"{row['lag_seconds']:.1f}",
            str(observation.behind(consumer.name)),
            *done,
        )
    return table


def _tables(mirrored: MirrorProgress) -> str:
    """The number of complete tables, and the progress of copies."""
    text = str(mirrored.has("complete"))
    copying = mirrored.has("copying") + mirrored.has("creating")
    if copying:
        percent = 100 * mirrored.copied // mirrored.to_copy if mirrored.to_copy else 0
        text += f" + {copying} copied ({min(percent, 100)} %)"
    return text


def _table(*left: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def results_table(results: Sequence[Result], proved_s: Mapping[str, float] = NOT_PROVED) -> Table:
    """`proved_s`: by table, the seconds since the mirror's last comparison with the server that found no difference."""
    table = _table(
        "table",
        "meanwhile",
        right=(
            "rows in MySQL",
            "rows in Delta",
            "equal",
            "different",
            "missing",
            "extra",
            "proved",
        ),
    )
    for result in results:
        wrong = [
            f"[red]{count}[/]" if count else "0"
            for count in (result.different, result.missing, result.extra)
        ]
        style = "green" if result.fine else "red"
        table.add_row(
            escape(result.table.label),
            EVENTS.get(result.table.label, ""),
            str(result.mysql),
            str(result.delta),
            f"[{style}]{result.equal}[/]",
            *wrong,
            f"{proved_s[label]:.0f} s ago" if (label := result.table.label) in proved_s else "",
        )
    return table


def save_picture(
    path: Path,
    state: ViewState,
    results: Sequence[Result],
    verdict: str,
    proved_s: Mapping[str, float] = NOT_PROVED,
) -> None:
    """Write the demo's view during the load, and its results, as an SVG picture that refers to no other file."""
    console = Console(record=True, file=io.StringIO(), width=112)
    console.print(_picture(state))
    console.print(results_table(results, proved_s))
    console.print(verdict, highlight=False)
    write_svg(console, "make demo", path)


def write_svg(console: Console, title: str, path: Path) -> None:
    """Write what a console has recorded as an SVG picture that refers to no other file."""
    # rich refers to a font on a web server. Without that, the program that shows the picture uses a font of its own.
    picture = re.sub(r"@font-face \{.*?\}\n?", "", console.export_svg(title=title), flags=re.DOTALL)
    path.write_text(picture, encoding="utf-8")
