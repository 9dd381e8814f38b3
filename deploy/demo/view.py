"""The demo for people: a table that changes in place on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deploy.demo.compare import Result
from deploy.demo.load import Written
from deploy.demo.watch import Declared, Look, Rules

LINE_EVERY_S = 3.0
_STYLES = {"streaming": "green", "closed": "yellow", "paused": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Scene:
    """What a view shows. `title`: what is being done."""

    title: str
    look: Look
    rules: Rules
    written: Written


class View:
    """Use it as a context manager; `say` may be called at any time."""

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

    def show(self, scene: Scene) -> None:
        if self._live:
            self._live.update(_picture(scene), refresh=True)
        elif (
            time.monotonic() - self._said_at >= LINE_EVERY_S
            and (line := _line(scene)) != self._line
        ):
            self._said_at, self._line = time.monotonic(), line
            self.say(line)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _line(scene: Scene) -> str:
    look, consumers = scene.look, scene.rules.consumers
    rows = sum(one.rows for one in look.mirrored.values())
    behind = ", ".join(f"{one.name} {look.behind(one.name)}" for one in consumers if one.shared)
    unread = "".join(
        f" {one.name} {look.state(one.name)}, holds {size(look.rows[one.name]['bytes'])};"
        for one in consumers
        if not one.shared
    )
    return escape(
        f"{scene.title}: {scene.written.rows} rows written, {rows} mirrored; transactions behind: {behind};{unread}"
        f" {sum(look.dumps.values())} dump threads; daemon {look.resident_bytes / 1e6:.0f} MB"
    )


def _picture(scene: Scene) -> Group:
    look, rules, written = scene.look, scene.rules, scene.written
    head = Text.from_markup(
        f"[bold]{escape(scene.title)}[/]   {written.transactions} transactions, {written.statements} statements,"
        f" {written.rows} rows written"
    )
    memory = Text.from_markup(
        f"daemon's resident memory [bold]{look.resident_bytes / 1e6:.0f} MB[/]"
        f" of {rules.memory_bytes_max / 1e6:.0f} MB   the most was {look.resident_bytes_max / 1e6:.0f} MB"
    )
    return Group(head, _connections(look, rules), _consumers(look, rules.consumers), memory)


def _connections(look: Look, rules: Rules) -> Table:
    table = _table("connection", "consumers", right=("dump threads at the server", "should be"))
    expected = rules.expected_dumps(look)
    for user in dict.fromkeys(one.user for one in rules.consumers):
        its = [one for one in rules.consumers if one.user == user]
        shared = ", ".join(one.name for one in its if one.shared)
        alone = "".join(f" + {one.name} (unshared)" for one in its if not one.shared)
        label = str(look.rows[its[0].name]["binlog_client_name"])
        there, should = look.dumps.get(user, 0), expected.get(user, 0)
        style = "green" if there == should else "yellow"
        table.add_row(escape(label), shared + alone, f"[{style}]{there}[/]", str(should))
    return table


def _consumers(look: Look, consumers: Sequence[Declared]) -> Table:
    table = _table(
        "consumer",
        "state",
        right=("queue", "of", "lag s", "behind", "rows mirrored", "batches", "last s"),
    )
    for one in consumers:
        row, mirrored = look.rows[one.name], look.mirrored.get(one.name)
        state = look.state(one.name)
        done = ("", "", "") if one.shared else ("[dim]never reads[/]", "", "")
        if mirrored:
            done = (str(mirrored.rows), str(mirrored.batches), f"{mirrored.last_s:.1f}")
        table.add_row(
            one.name,
            f"[{_STYLES.get(state, 'default')}]{escape(state)}[/]",
            size(row["bytes"]),
            size(row["max_bytes"]),
            f"{row['lag_seconds']:.1f}",
            str(look.behind(one.name)),
            *done,
        )
    return table


def _table(*left: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def results(found: Sequence[Result]) -> Table:
    table = _table(
        "table",
        right=("rows in MySQL", "rows in Delta", "equal", "different", "missing", "extra"),
    )
    for one in found:
        wrong = [
            f"[red]{count}[/]" if count else "0"
            for count in (one.different, one.missing, one.extra)
        ]
        style = "green" if one.fine else "red"
        table.add_row(
            escape(one.table.label),
            str(one.mysql),
            str(one.delta),
            f"[{style}]{one.equal}[/]",
            *wrong,
        )
    return table


def save_picture(path: Path, scene: Scene, found: Sequence[Result], verdict: str) -> None:
    """Write the demo's view during the load, and its result, as an SVG picture that refers to no other file."""
    console = Console(record=True, file=io.StringIO(), width=112)
    console.print(_picture(scene))
    console.print(results(found))
    console.print(verdict, highlight=False)
    # rich refers to a font on a web server; the picture uses the viewer's own.
    picture = re.sub(
        r"@font-face \{.*?\}\n?", "", console.export_svg(title="make demo"), flags=re.DOTALL
    )
    path.write_text(picture, encoding="utf-8")
