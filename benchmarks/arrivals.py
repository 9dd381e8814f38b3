"""When the markers of a load (see `benchmarks.markers`) have arrived in a mirror.

A Delta table, or the mirror's log, has a marker when a commit adds a file that contains the marker. The time of a
commit is the time of its file in Delta's log: from then on a reader of the table gets the rows. An Iceberg table shares
the data files; each of its snapshots names the version of the Delta table that it shows, and when it was made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.markers import markers_in
from benchmarks.processes import CommandFailed
from tests.mirror.harness import MirrorJob

_LOOK_EVERY_S = 0.25


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Call `condition` four times a second until it returns True. It is not called more often, because its calls take
    CPU time from the measured programs."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise CommandFailed(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(_LOOK_EVERY_S)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The first version of a Delta table that has a marker, and the time of its commit (seconds since 1970)."""

    version: int
    at: float


class Files:
    """The files of a Delta table, each of which is read once."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._seen: set[str] = set()
        self.found: dict[int, Arrival] = {}

    def look(self) -> None:
        for commit in sorted(self._table.glob("_delta_log/*.json")):
            if commit.name in self._seen or not commit.stem.isdecimal():
                continue
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            arrival = Arrival(int(commit.stem), commit.stat().st_mtime)
            for path in (unquote(action["add"]["path"]) for action in actions if "add" in action):
                # An action for the same file again changes only which of its rows are deleted.
                if path not in self._seen:
                    self._seen.add(path)
                    for marker in self._markers(path):
                        self.found.setdefault(marker, arrival)
            self._seen.add(commit.name)

    def _markers(self, path: str) -> Iterator[int]:
        """Yields the markers in the texts and bytes of a data file. The file's columns may have other names than the
        table's."""
        file = pq.ParquetFile(self._table / path)
        kinds = pa.string(), pa.binary()
        names = [column.name for column in file.schema_arrow if column.type in kinds]
        for column in file.read(names).columns:
            for chunk in column.chunks:
                # All values of a chunk are in one buffer.
                if (buffer := chunk.buffers()[-1]) is not None:
                    yield from markers_in(memoryview(buffer))


class Arrivals:
    """The arrivals at the target of a job: in its log, and in the tables of a database, by marker."""

    def __init__(self, job: MirrorJob, database: str) -> None:
        self._job = job
        self._folder = job.target / database
        self._log = Files(job.target / "_binlog" / "log")
        self._tables: dict[str, Files] = {}

    def until(self, markers: Iterable[int], timeout_s: float) -> None:
        """Wait until the tables have these markers."""
        wanted = set(markers)

        def have_arrived() -> bool:
            assert self._job.process is not None
            if self._job.process.poll() is not None:
                raise CommandFailed(f"the job has ended: {self._job.log[-600:]}")
            self.look()
            return self.tables.keys() >= wanted

        wait_for(have_arrived, "all transactions are in their tables", timeout_s)

    def look(self) -> None:
        for folder in self._folder.glob("*/_delta_log"):
            table = folder.parent
            self._tables.setdefault(table.name, Files(table)).look()
        self._log.look()

    @property
    def log(self) -> Mapping[int, Arrival]:
        return self._log.found

    @property
    def tables(self) -> Mapping[int, Arrival]:
        return {marker: at for table in self._tables.values() for marker, at in table.found.items()}

    def in_snapshots(self, catalog: Any, names: Iterable[str]) -> dict[int, float]:
        """Returns, by marker, when a snapshot of an Iceberg table first showed it. `names`: the Delta tables; the
        Iceberg tables have the same names in the catalog."""
        from spark_sink.mirror.iceberg.catalog import VERSION  # noqa: PLC0415 - imports pyiceberg

        found = {}
        for name in names:
            snapshots = [
                (int(snapshot.summary[VERSION]), snapshot.timestamp_ms / 1000)
                for snapshot in catalog.load_table((self._folder.name, name)).snapshots()
            ]
            for marker, arrival in self._tables[name].found.items():
                shown = [at for version, at in snapshots if version >= arrival.version]
                if shown:
                    found[marker] = min(shown)
        return found
