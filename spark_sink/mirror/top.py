"""The view of the mirror's `top`: reads the control table, the log and, if the job runs, the job's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from dispatcher.model.errors import BinlogError
from dispatcher.model.sizes import duration_text, size_text
from dispatcher.terminal.live import bar, faults, grid, heading, text
from spark_sink.mirror.job_numbers import (
    MIRROR,
    ConsumerLine,
    JobNumbers,
    consumer_lines,
    read_numbers,
)
from spark_sink.mirror.table_lines import TableLine, completed_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spark_sink.mirror.values.settings import MirrorSettings

_STYLES = {"complete": "green", "stopped": "red", "partial": "yellow"}
_BAR_WIDTH = 20


@dataclass
class MirrorReadings:
    """The newest readings. `error`: why the newest reading of the tables failed; `job_error`: why the newest reading of
    the job's metrics failed.

    `tables`: a function that reads the tables; `numbers`: a function that reads the job's metrics, None if the settings
    name no address for them; `complete`: adds options to the commands in messages.
    """

    title: str
    tables: Callable[[], Sequence[TableLine]]
    numbers: Callable[[], JobNumbers] | None
    lines: Sequence[TableLine] = ()
    error: str = ""
    complete: Callable[[str], str] = str
    job_error: str = "the settings name no address for the job's metrics (metrics)"
    _now: JobNumbers | None = None
    _before: JobNumbers | None = None
    _read: list[ConsumerLine] = field(default_factory=list)

    def read_rates(self) -> bool:
        """Read the job's metrics before the first view, because a rate is computed from two readings. Returns False if
        the metrics cannot be read."""
        self._read_job()
        return not self.job_error

    def read(self) -> None:
        self._read_job()
        self.lines, self.error = self.tables(), ""

    def _read_job(self) -> None:
        """Read the job's metrics. If the job does not run, this is not an error."""
        if self.numbers is None:
            return
        try:
            self._before, self._now, self.job_error = self._now, self.numbers(), ""
        except BinlogError as error:
            self._before = self._now = None
            self.job_error = self.complete(str(error))
        self._read = consumer_lines(self._now, self._before) if self._now else []

    # -- as JSON ---------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        return {
            "consumers": [line.as_dict() for line in self._read],
            "tables": [line.as_dict() | self._of_job(line) for line in self.lines],
            "error": self.error,
            "job_error": self.job_error,
        }

    def _of_job(self, line: TableLine) -> dict[str, float | None]:
        """Returns two numbers of a table from the job's metrics: rows per second, and the seconds of a step."""
        own = {"consumer": line.consumer, "table": line.table}
        names = [f"{MIRROR}table_{name}_total" for name in ("rows", "steps", "phase_seconds")]
        if self._now is None:
            return {"rows_per_s": None, "step_s": None}
        steps = self._now.value(names[1], **own)
        seconds = sum(
            value
            for (name, labels), value in self._now.values.items()
            if name == names[2] and own.items() <= dict(labels).items()
        )
        return {
            "rows_per_s": self._now.rate(self._before, names[0], **own),
            "step_s": seconds / steps if steps else None,
        }

    # -- for a terminal --------------------------------------------------------------------------------------

    def view(self, hint: str = "") -> RenderableType:
        return Group(*self._parts(hint))

    def _parts(self, hint: str) -> Iterator[RenderableType]:
        states = [line.state for line in self.lines]
        title = f"{self.title}  {len(self.lines)} tables"
        yield heading(title, states, lambda state: _STYLES.get(state, "cyan"))
        yield from faults(hint, [(self.error, "red"), (self.job_error, "yellow")])
        if self._read:
            yield Text()
            yield _consumers(self._read)
        if self.lines:
            yield Text()
            yield self._tables()

    def _tables(self) -> RenderableType:
        table = grid(
            ("consumer", "table", "state"), ("behind", "lag", "rows/s", "step"), ("copied",)
        )
        notes: list[RenderableType] = []
        for line in self.lines:
            job = self._of_job(line)
            table.add_row(
                text(line.consumer),
                text(line.table),
                text(line.state, style=_STYLES.get(line.state, "cyan")),
                f"{line.waiting_rows} rows" if line.waiting_rows else "-",
                duration_text(line.lag_s),
                _number(job["rows_per_s"]),
                duration_text(job["step_s"]),
                _copied(line),
            )
            if line.differs:
                notes.append(text(f"{line.table}: differs: {line.differs}", style="red"))
            if line.reason:
                notes.append(
                    text(f"{line.table}: {line.reason}", style=_STYLES.get(line.state, ""))
                )
        return Group(table, *(Padding(note, (0, 0, 0, 2)) for note in notes))


def mirror_readings(
    tables: Callable[[], Sequence[TableLine]],
    settings: MirrorSettings,
    complete: Callable[[str], str] = str,
) -> MirrorReadings:
    """Returns what `top` reads: the tables, and the metrics of the job if the settings name their address.

    `tables`: a function that reads the tables; `complete`: a function that adds options to the commands in the reasons.
    """
    listen = None if settings.metrics is None else settings.metrics.rpartition(":")
    return MirrorReadings(
        settings.target,
        lambda: [completed_line(line, complete) for line in tables()],
        None if listen is None else partial(read_numbers, listen[0].strip("[]"), int(listen[2])),
        complete=complete,
    )


def _consumers(lines: Sequence[ConsumerLine]) -> RenderableType:
    table = grid(
        ("consumer", "log", "apply"),
        ("behind", "bytes", "lag", "rows/s", "applied/s", "apply lag", "waiting"),
        ("steps",),
    )
    for line in lines:
        phases = [f"{name} {share:.0%}" for name, share in line.step_s.items() if share >= 0.005]
        table.add_row(
            text(line.consumer),
            _up(line.log_up),
            _up(line.apply_up),
            _number(line.lag_transactions, " tx"),
            "-" if line.lag_bytes is None else size_text(line.lag_bytes),
            duration_text(line.lag_s),
            _number(line.logged_rows_per_s),
            _number(line.applied_rows_per_s),
            duration_text(line.apply_lag_s),
            _number(line.waiting_entries),
            text(", ".join(phases) or "-"),
        )
    return table


def _up(works: bool | None) -> Text:
    if works is None:
        return text("-")
    return text("up", style="green") if works else text("down", style="red")


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _copied(line: TableLine) -> Text:
    if line.copied is None:
        return text("")
    done, estimated = line.copied.rows, line.copied.rows_estimated
    share = min(1.0, done / estimated) if estimated else 0.0
    rest = "" if line.copied.rest_s is None else f", {duration_text(line.copied.rest_s)} left"
    shown = bar(share, _BAR_WIDTH, "cyan")
    return shown.append(f" {share:.0%} of about {estimated} rows{rest}", style="default")
