"""Debezium's MySQL connector in its embedded engine as a client: `programs/DebeziumReader.java`.

What a user needs, with a server and with the front:

* `snapshot.mode=no_data` for a new connector; a connector that has its offsets and its schema history continues;
* `snapshot.locking.mode=none`: the snapshot of the tables' definitions otherwise asks for a global read lock;
* `driver.allowPublicKeyRetrieval=true` without TLS, or `database.ssl.mode=required`;
* a unique `database.server.id`;
* `database.include.list` with a server, so that the connector reads only definitions of its own databases. With the
  front it is not needed, because the front shows no other databases;
* `heartbeat.interval.ms`, so that the connector's stored offset advances while only other databases change.

Debezium delivers at least once: after a kill it repeats the events after the last stored offset.

An offset within a transaction has the transaction's begin, the number of its events that are handled (`event`), and the
number of rows of the next event that are handled (`row`). These numbers are valid only for a source that sends the same
events. The front leaves out events of other consumers, so a user who moves a connector removes both numbers from its
offset, and the connector repeats the transaction. `read` does this when the endpoint is another one than before.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.front.clients.installs import java_program
from tests.front.clients.java_clients import properties
from tests.front.clients.lines import ClientFailed, Program, running
from tests.front.clients.printed import short
from tests.front.clients.readings import Collector, Endpoint, Reading, Row, Start, Until

VERSION = "3.6.1.Final"
_PACKAGES = (
    f"io.debezium:debezium-embedded:{VERSION}",
    f"io.debezium:debezium-connector-mysql:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
_OPS = {"c": "insert", "u": "update", "d": "delete"}
_PREFIX = "judge"
# The program waits after it has printed one of these lines. It is killed only while it waits, not while it writes its
# offset file.
_PAUSES = (b"batch", b"stored")
# Small enough that a batch has at most one of the history's marks.
_BATCH_EVENTS = 16
# An offset in the file of Kafka Connect's FileOffsetBackingStore, a serialized java.util.HashMap: the length of the
# text in four bytes, and the text, which is JSON.
_OFFSET = re.compile(rb'(?s)....(\{"ts_sec".*?\})')
_Place = tuple[str, int, int]


@dataclass
class Restless:
    """An engine that does not wait for the test."""

    program: Program
    folder: Path
    killed: bool = False

    def values(self) -> Iterator[dict[str, Any]]:
        """Yields the values of the events that were not read yet. If the engine was killed, the iterator ends after
        the last event that the engine has printed. If the engine ends by itself, it raises ClientFailed."""
        for line in self.program.output:
            destination, _, text = line.partition(b"\t")
            if text.endswith(b"\n") and not destination.startswith(b"__debezium-heartbeat"):
                yield json.loads(text)
        if not self.killed:
            said = (self.folder / "stderr").read_text("utf-8", "replace")[-3000:]
            raise ClientFailed(f"Debezium ended by itself: {said}")

    def kill(self) -> None:
        self.killed = True
        self.program.process.kill()


class UnreadableOffset(Exception):
    """A kill has cut the file of the offset."""


@dataclass
class Debezium:
    """The engine with its offsets and its schema history in `folder`.

    `begin` uses the state that `prepare` has made, because Debezium must read a table's definition before the table is
    altered. In a reading, each event is a separate transaction, at the place of its row.
    """

    folder: Path
    prepared: Path | None = None
    server_id: int = 7005
    name: str = "Debezium"
    more: dict[str, object] = field(default_factory=dict)
    stored: Start = field(default_factory=lambda: Start(""))
    _at: Endpoint | None = None
    _runs: int = 0
    _seen: dict[_Place, Row] = field(default_factory=dict)

    def begin(self, _at: Endpoint, start: Start) -> None:
        assert self.prepared is not None
        shutil.copytree(self.prepared / "state", self.folder / "state")
        self.stored = Start(start.file, start.offset)

    def prepare(self, at: Endpoint, write: Callable[[], object]) -> None:
        """Run the engine until it has read the definitions of all tables, and stored the offset of a row that `write`
        inserts into the table `seed` meanwhile."""
        folder = self.folder / "prepare"
        written = read = False
        with self._running(at, folder) as program:
            for line in program.output:
                destination = line.split(b"\t")[0].strip()
                read |= destination.endswith(b".seed")
                if destination == b"stored":
                    if read:
                        return
                    if not written:
                        write()
                        written = True
                if destination in _PAUSES:
                    program.tell(b"go on\n")
        raise ClientFailed((folder / "stderr").read_text("utf-8", "replace")[-3000:])

    def read(self, at: Endpoint, until: Until) -> Reading:
        if self._at not in (None, at):
            self._forget_events()
        self._at = at
        self._runs += 1
        folder = self.folder / str(self._runs)
        collector = Collector(until, self.stored)
        repeated = 0
        with self._running(at, folder) as program:
            for raw in program.output:
                line = raw.strip()
                if line not in _PAUSES:
                    repeated += not self._take(collector, raw.decode())
                # If `until` is a number of rows, the engine is killed before it stores the batch's offset, so that it
                # repeats the batch.
                elif collector.done and (line == b"stored" or until.rows):
                    break
                else:
                    program.tell(b"go on\n")
            else:
                said = (folder / "stderr").read_text("utf-8", "replace")[-3000:]
                raise ClientFailed(f"Debezium ended at {collector.place}: {said}")
        self.stored = collector.place
        reading = collector.reading
        reading.repeated = repeated
        return reading

    @contextmanager
    def restless(self, at: Endpoint) -> Iterator[Restless]:
        """Run the engine, which does not wait for the test, until the end of the block."""
        self._runs += 1
        folder = self.folder / str(self._runs)
        given = self._given(at) + b"reader.waits=false\n\n"
        command = java_program("DebeziumReader", *_PACKAGES)
        with running(command, folder, given=given, more_input=True) as program:
            yield Restless(program, folder)

    def keep_offset(self) -> None:
        """Copy the stored offset. Kafka Connect stores offsets in a topic; the engine's file is not written atomically.
        So if a kill has cut the file, take the last copy, and raise UnreadableOffset."""
        kept = self._offsets.with_suffix(".kept")
        if self._offsets.exists() and _OFFSET.search(self._offsets.read_bytes()):
            shutil.copy(self._offsets, kept)
            return
        shutil.copy(kept, self._offsets)
        raise UnreadableOffset

    def offset(self) -> dict[str, Any]:
        """Returns the offset that the connector has stored."""
        found = _OFFSET.search(self._offsets.read_bytes())
        assert found is not None
        offset: dict[str, Any] = json.loads(found[1])
        return offset

    def _forget_events(self) -> None:
        """Remove `event` and `row` from the stored offset."""
        kept = {name: v for name, v in self.offset().items() if name not in ("event", "row")}
        text = json.dumps(kept).encode()
        changed = len(text).to_bytes(4, "big") + text
        self._offsets.write_bytes(_OFFSET.sub(lambda _: changed, self._offsets.read_bytes()))

    @property
    def _offsets(self) -> Path:
        return self.folder / "state" / "offsets"

    @contextmanager
    def _running(self, at: Endpoint, folder: Path) -> Iterator[Program]:
        command = java_program("DebeziumReader", *_PACKAGES)
        with running(command, folder, given=self._given(at) + b"\n", more_input=True) as program:
            yield program

    def _take(self, collector: Collector, line: str) -> bool:
        """Returns False for an event that was delivered before."""
        destination, _, text = line.partition("\t")
        if destination.startswith("__debezium-heartbeat"):
            return True
        value = json.loads(text)
        source = value["source"]
        place = (source["file"], source["pos"], source.get("row") or 0)
        row = _schema_change(value) if "ddl" in value else _row(value)
        if row is None:
            return True
        before = self._seen.setdefault(place, row)
        if before is not row:
            assert before == row, f"at {place} there was {before}, and now there is {row}"
            return False
        collector.row(row)
        collector.end(*place[:2], source.get("gtid") or "")
        return True

    def _given(self, at: Endpoint) -> bytes:
        state = self.folder / "state"
        state.mkdir(parents=True, exist_ok=True)
        settings: dict[str, object] = {
            "name": _PREFIX,
            "topic.prefix": _PREFIX,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": self._offsets,
            "offset.flush.interval.ms": 0,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": state / "schema",
            "snapshot.mode": "no_data",
            "snapshot.locking.mode": "none",
            "database.hostname": at.host,
            "database.port": at.port,
            "database.user": at.user,
            "database.password": at.password,
            "database.server.id": self.server_id,
            "database.ssl.mode": "required" if at.tls else "disabled",
            "driver.allowPublicKeyRetrieval": "true",
            "include.schema.changes": "true",
            "tombstones.on.delete": "false",
            "decimal.handling.mode": "string",
            "heartbeat.interval.ms": 1000,
            "max.batch.size": _BATCH_EVENTS,
            "max.queue.size": 2 * _BATCH_EVENTS,
            "errors.max.retries": 0,
            "converter.schemas.enable": "false",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            **self.more,
        }
        return properties(settings).encode()


def _row(value: dict[str, Any]) -> Row | None:
    if value["op"] not in _OPS:
        return None
    source, before, after = value["source"], value["before"], value["after"]
    key = (after or before)["id"]
    return Row(
        source["db"], source["table"], _OPS[value["op"]], key, _image(before), _image(after), source["pos"]
    )  # fmt: skip


def _image(values: dict[str, Any] | None) -> str | None:
    if values is None:
        return None
    return ", ".join(f"{name}={short(json.dumps(value))}" for name, value in values.items())


def _schema_change(value: dict[str, Any]) -> Row:
    source = value["source"]
    return Row(value["databaseName"], "", "ddl", None, None, short(value["ddl"]), source["pos"])
