"""`run --copy` and `run --until-copied`: request a copy of each table that the mirror does not have, show the progress
of the copies, and say how to read the tables. With `--until-copied` the job then ends, with `--copy` it goes on."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.sizes import duration_text, size_text
from dispatcher.terminal.output import say, say_progress
from spark_sink.mirror.copy.progress import CopyProgress, remaining_s
from spark_sink.mirror.request_commands import RequestTable, request_copies
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.progress import ConsumerProgress
from spark_sink.mirror.values.names import TableName, table_label
from spark_sink.mirror.values.settings import MirrorSettings, copy_section

LOOK_S = 1.0
SAY_EVERY_S = 5.0
_SPECIAL = re.compile(r'["$`\\!]')  # special characters in double quotes of a shell
_ENDED = (TableState.COMPLETE, TableState.STOPPED)


def chosen_watch(
    settings: MirrorSettings,
    *,
    until_copied: bool,
    go_on: bool,
    complete: Callable[[str], str] = str,
) -> CopyWatch | None:
    """Returns the watch that the options `--until-copied` and `--copy` (`go_on`) ask for, None without these options.
    `complete`: see `CopyWatch`. Raises `UserError` if the options contradict each other or the settings."""
    if not (until_copied or go_on):
        return None
    if until_copied and go_on:
        raise UserError(
            ErrorKind.SETTINGS,
            "both --copy and --until-copied",
            remedy="use --copy to go on mirroring after the copies, --until-copied to end after them",
        )
    copy_section(settings)
    if settings.stages != "both" or settings.available_now:
        raise UserError(
            ErrorKind.SETTINGS,
            f"{'--until-copied' if until_copied else '--copy'} needs both stages, and no --available-now",
            remedy="leave out --stages and --available-now, and stages and available_now of the settings",
        )
    return CopyWatch(settings, ends_job=until_copied, complete=complete)


@dataclass(slots=True)
class CopyWatch:
    """The copies of one run of the job. `begin` requests the copies; `run` returns when they have ended.

    `ends_job`: True if the job ends when the copies have ended, or at an error of this watch. False if the job goes on
    whatever happens to the copies: then the exit code of the job does not depend on them. `complete`: adds options to
    the commands in the reasons of stopped tables.
    """

    settings: MirrorSettings
    ends_job: bool = True
    names: list[TableName] = field(default_factory=list)
    rows_estimated: dict[str, int] = field(default_factory=dict)  # by the tables' labels
    began: float = field(default_factory=time.monotonic)
    complete: Callable[[str], str] = str
    _copying_since: float | None = None

    def begin(self, control: RequestTable) -> None:
        """Request copies of the server's tables that are not complete in the mirror. Raises `UserError`."""
        self.began = time.monotonic()
        asked = request_copies(control, self.settings, ["*.*"])
        self.names = asked.chosen
        self.rows_estimated = {
            f"{database}.{table}": rows for (database, table), rows in asked.rows_estimated.items()
        }
        known = f"{len(asked.complete)} tables are complete"
        if self.names:
            say_progress(
                f"copying {len(self.names)} tables" + (f"; {known}" if asked.complete else "")
            )
        else:
            say_progress(f"nothing to copy: {known}")

    def run(
        self,
        rows: Callable[[], ControlRows],
        progress: Callable[[], Iterable[ConsumerProgress]],
        stop: threading.Event,
    ) -> int:
        """Show the progress until each table is complete, stopped or gone, then print how to read the tables. Returns
        the exit code: 1 if a table is stopped or gone, or if `stop` was set before."""
        said_at = time.monotonic()
        while not stop.is_set():
            consumers = list(progress())
            ended = [copy for each in consumers for copy in each.ended_copies]
            running = [copy for each in consumers for copy in each.copies]
            present = rows()
            records = self._records(present)
            if not self._open(present) and all(r.word in _ENDED for r in records):
                return self._summary(records, ended)
            if time.monotonic() - said_at >= SAY_EVERY_S:
                said_at = time.monotonic()
                say_progress(self.line(records, ended, running))
            stop.wait(LOOK_S)
        return 1

    def _open(self, rows: ControlRows) -> set[TableName]:
        """Returns the tables whose copy the job has not taken up."""
        return set(self.names) & {name for _, name in rows.named}

    def _records(self, rows: ControlRows) -> list[TableRecord]:
        """Returns the records of the tables whose copy the job has taken up. A table that was dropped or renamed
        afterwards has none."""
        wanted, open_names = set(self.names), self._open(rows)
        return [
            record
            for record in rows.records.values()
            if record.name in wanted and record.name not in open_names and not record.is_dropped
        ]

    def line(
        self,
        records: Sequence[TableRecord],
        ended: Sequence[CopyProgress],
        running: Sequence[CopyProgress],
    ) -> str:
        """Returns one line of progress: all tables, and the tables whose copies run."""
        done = sum(record.word in _ENDED for record in records)
        rows, size = _copied(*ended, *running)
        total = f"{done} of {len(self.names)} tables, {rows} rows, {size_text(size)}"
        if self._copying_since is None and rows:
            before_s = max(copy.seconds for copy in (*ended, *running))
            self._copying_since = time.monotonic() - before_s
        speed = 0.0
        if self._copying_since is not None:
            speed = rows / max(1.0, time.monotonic() - self._copying_since)
        # An estimate is replaced by the newer one that the table's copy has made, and then by the number of rows.
        estimates = self.rows_estimated | {copy.label: copy.rows_estimated for copy in running}
        estimates |= {copy.label: copy.rows for copy in ended}
        rest = remaining_s(rows, sum(estimates.values()), speed)
        if rest is not None and done:
            # A copy of few rows takes as long as its start and its end.
            of_a_table = (time.monotonic() - self.began) / done
            rest = max(rest, of_a_table * (len(self.names) - done))
        if rest is not None:
            total += f", {speed:.0f} rows/s, about {duration_text(rest)} left"
        return "; ".join([total, *map(str, running)])

    def _summary(self, records: Sequence[TableRecord], ended: Sequence[CopyProgress]) -> int:
        stopped = [record for record in records if record.word is TableState.STOPPED]
        for record in stopped:
            say(f"{record.label} is stopped: {self.complete(record.reason)}")
        gone = sorted(set(self.names) - {record.name for record in records})
        for name in gone:
            say(f"{table_label(name)} was dropped or renamed before its copy was complete")
        if not self.names:
            return 0  # `begin` has said how many tables are complete
        complete = [record for record in records if record not in stopped]
        took = duration_text(time.monotonic() - self.began)
        rows, size = _copied(*ended)
        say(
            f"{len(complete)} tables are complete: {rows} rows, {size_text(size)} copied in {took}, in"
            f" {self.settings.target}"
        )
        if complete:
            for line in reading_lines(f"{self.settings.target.rstrip('/')}/{complete[0].folder}"):
                say(f"    {line}")
        return 1 if stopped or gone else 0


def _copied(*copies: CopyProgress) -> tuple[int, int]:
    """Returns the rows and bytes of copies."""
    return sum(copy.rows for copy in copies), sum(copy.bytes for copy in copies)


def reading_lines(path: str) -> list[str]:
    """Returns commands that read a table. Before each is the name of its program, and what to install for it."""
    s3 = "s3=True" if path.startswith("s3a:") else ""
    programs = {
        # DuckDB's own reader of Delta tables is an extension, which DuckDB downloads from the internet. A dataset of
        # deltalake 1.6.6 returns wrong rows for a filter on a column that was added after a file was written.
        "DuckDB (pip install duckdb polars deltalake pyarrow)": "import duckdb, polars;"
        f" rows = polars.scan_delta({path!r}); duckdb.sql('FROM rows LIMIT 10').show()",
        "polars (pip install polars deltalake)": f"import polars; print(polars.read_delta({path!r}).head(10))",
        "Spark": "from pyspark.sql import SparkSession as S; from spark_sink.jars import delta_settings as d;"
        f" S.builder.config(map=d({s3})).getOrCreate().read.format('delta').load({path!r}).show(10)",
    }
    return [f"{name}: python -c {_shell_quoted(code)}" for name, code in programs.items()]


def _shell_quoted(code: str) -> str:
    """Returns code as one word of a shell: in double quotes, unless a character of the code has a special meaning
    inside double quotes."""
    return shlex.quote(code) if _SPECIAL.search(code) else f'"{code}"'
