"""Runs cases on servers. Keeps the events that the server logged, its answer, and the tables that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pymysql

from dispatcher.binlog.event.header import HEADER, HEADER_SIZE, MAGIC
from dispatcher.binlog.event.types import EventType
from tests.servers import KINDS, Instance, Kind, Server
from tests.servers.server import new_instance
from tests.statements.cases import Case
from tests.statements.recorded import FOLDED, Recorded, Recording
from tests.statements.settings import SETTINGS
from tests.statements.worlds import World, changed, open_admin

PROFILES = tuple(kind + suffix for kind in KINDS for suffix in ("", FOLDED))
_LOST = (2006, 2013)
_KEPT = frozenset((
    EventType.QUERY, EventType.EXECUTE_LOAD_QUERY, EventType.TABLE_MAP, EventType.MARIADB_GTID,
    EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS,
))  # fmt: skip
# 5.6 refuses CREATE TABLE ... SELECT and temporary tables in transactions while it logs GTIDs.
_OPTIONS = {"mysql56": ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")}


def kind_of(profile: str) -> Kind:
    (kind,) = (kind for kind in KINDS if kind == profile.removesuffix(FOLDED))
    return kind


@contextmanager
def server_of(profile: str) -> Iterator[Instance]:
    """Starts a server of a profile: a kind, with `-folded` for lower_case_table_names=1."""
    kind, options = kind_of(profile), ["--event-scheduler=OFF", *_OPTIONS.get(kind_of(profile), ())]
    if profile.endswith(FOLDED):
        options.append("--lower-case-table-names=1")
    with new_instance(kind, *options) as instance:
        instance.start()
        yield instance


class Recorder:
    """Runs cases one after the other on one server."""

    def __init__(self, server: Server, logs: Path) -> None:
        """`logs`: the folder with the server's binlog files."""
        self._server, self._logs = server, logs
        self._world = World(server, open_admin(server))
        self.base = self._world.base

    @property
    def format(self) -> bytes:
        """The FORMAT_DESCRIPTION of the newest log file."""
        with (self._logs / self._position()[0]).open("rb") as log:
            log.seek(len(MAGIC))
            head = log.read(HEADER_SIZE)
            return head + log.read(HEADER.unpack(head)[3] - HEADER_SIZE)

    def record(self, case: Case) -> Recorded | None:
        """Returns None if the server cannot run the case: it refuses the setting, or the tables of the case."""
        world = self._world
        setting = SETTINGS[case.setting]
        try:
            world.run(["USE shop", *case.tables])
        except pymysql.MySQLError:
            world.restore(world.snapshot())
            return None
        before = world.snapshot() if case.tables else self.base
        with closing(self._server.connect("shop")) as connection:
            try:
                for statement in (*setting.statements, *case.session):
                    connection.query(statement.encode(setting.encoding))
            except pymysql.MySQLError:
                world.restore(world.snapshot())
                return None
            if case.session:
                before = world.snapshot()
            start, error = self._position(), 0
            try:
                connection.query(case.sql.encode(setting.encoding))
            except pymysql.MySQLError as refused:
                error = int(refused.args[0])
                if error in _LOST:
                    raise
            events = tuple(self._events(start))
        after = world.snapshot()
        extra = changed(self.base, before)
        found = Recorded(case.name, case.group, error, extra, events, changed(before, after))
        world.restore(after)
        return found

    def _position(self) -> tuple[str, int]:
        what = "BINARY LOG" if self._server.kind == "mysql97" else "MASTER"
        with self._world.admin.cursor() as cursor:
            cursor.execute(f"SHOW {what} STATUS")
            row = cursor.fetchone()
        assert row is not None
        return row[0].decode(), int(row[1])

    def _events(self, start: tuple[str, int]) -> Iterator[bytes]:
        end = self._position()
        at = start[1]
        for file in sorted(path.name for path in self._logs.glob("binlog.[0-9]*")):
            if not start[0] <= file <= end[0]:
                continue
            log = (self._logs / file).read_bytes()[: end[1] if file == end[0] else None]
            at = at if file == start[0] else len(MAGIC)
            while at < len(log):
                _, kind, _, size, _, _ = HEADER.unpack_from(log, at)
                if kind in _KEPT:
                    yield log[at : at + size]
                at += size


def record(profile: str, cases: Sequence[Case], said: Callable[[str], None] = print) -> Recording:
    """Runs all cases that concern a profile on a new server."""
    done: list[Recorded] = []
    with server_of(profile) as server:
        recorder = Recorder(server, server.datadir)
        for case in cases:
            if profile.endswith(FOLDED) and not case.folded:
                continue
            try:
                found = recorder.record(case)
            except pymysql.MySQLError as error:
                said(f"{profile}: {error}: {case.name}")
                if server.process is not None and server.process.poll() is not None:
                    server.restart(kill=True)
                recorder = Recorder(server, server.datadir)
                continue
            if found is not None:
                done.append(found)
        return Recording(profile, recorder.format, recorder.base, done)
