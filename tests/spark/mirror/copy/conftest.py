"""Fixtures: an account that may do no more than a copy needs, and a copier into a folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from dispatcher.model.position import Position
from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.copy.progress import CopyProgress, CopyResult
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.rules.states import Copying as CopyingState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.settings import CopySettings
from spark_sink.source.table_rows.table_server import executed_position
from tests.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READER = "copy_reader"
PASSWORD = "Secret-of-the-copy"
NOWHERE = Position("", "", "", 0, 0, 0)
GRANTS = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"


def add_reader(server: Server, name: str = READER, *grants: str) -> None:
    """An account with SELECT and what the daemon needs, if it does not exist."""
    with_password = f" IDENTIFIED BY '{PASSWORD}'" if server.kind == "mysql56" else ""
    if not with_password:
        server.execute(f"CREATE USER IF NOT EXISTS '{name}'@'%' IDENTIFIED BY '{PASSWORD}'")
    for grant in (f"{GRANTS} ON *.*", *grants):
        server.execute(f"GRANT {grant} TO '{name}'@'%'{with_password}")


def copy_settings(server: Server, name: str = READER, **more: Any) -> CopySettings:
    address = f"{name}@{server.host}:{server.port}"
    return CopySettings(mysql=address, password=SecretStr(PASSWORD), **more)


def of_groups(progress: Callable[[CopyProgress], None]) -> Callable[[CopyProgress], None]:
    """Leaves out the report before the first group."""
    return lambda report: progress(report) if report.chunks else None


@dataclass
class Copying:
    """Copies tables of one server into a folder."""

    spark: SparkSession
    server: Server
    target: Path
    account: str = READER
    reports: list[CopyProgress] = field(default_factory=list)

    def settings(self, **more: Any) -> CopySettings:
        return copy_settings(self.server, self.account, **more)

    def copy_server(self) -> CopyServer:
        return CopyServer.of_settings(self.settings())

    def end(self) -> LogEnd:
        """Returns the end of a log that holds everything that the server has executed."""
        with self.copy_server().session() as connection:
            return LogEnd(1, executed_position(connection))

    def copy(
        self,
        database: str,
        table: str,
        *,
        begin: LogEnd | None = None,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[CopyProgress], None] | None = None,
        **more: Any,
    ) -> CopyResult:
        copier = Copier(self.spark, self.settings(**more), str(self.target))
        begin = begin or self.end()
        state = CopyingState(begin.position or NOWHERE)
        record = TableRecord(f"id-{table}", "shop", database, table, state=state)
        return copier.copy(
            record,
            begin=begin,
            progress=of_groups(progress or self.reports.append),
            stopping=stopping,
        )

    def path(self, table: str) -> str:
        return str(self.target / "_binlog" / "copies" / f"id-{table}")

    def rows(self, table: str) -> list[dict[str, Any]]:
        frame = self.spark.read.format("delta").load(self.path(table))
        return [row.asDict() for row in frame.collect()]


@pytest.fixture
def copying(spark: SparkSession, mysql97: Server, tmp_path: Path) -> Copying:
    add_reader(mysql97)
    return Copying(spark, mysql97, tmp_path / "target")


def end_of(server: str, gtid: str = "", file: str = "", offset: int = 0) -> Position:
    return Position(server, gtid, file, offset, 0, 0)
