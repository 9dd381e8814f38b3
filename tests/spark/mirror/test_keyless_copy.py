"""The copy of a table without a key: transactions between the end of the log and the snapshot take effect once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.copy.progress import CopyResult
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.rules.states import Creating, TableState
from spark_sink.mirror.rules.table_record import TableRecord, new_table_id
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.source.table_rows.table_server import executed_position
from tests.servers import Server
from tests.spark.conftest import Source, Target
from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.copy.conftest import add_reader, copy_settings


@dataclass
class Meanwhile:
    """A copier. The test executes statements before the snapshot and after it."""

    copier: Copier
    before: Callable[[], None]
    behind: Callable[[], None]

    def copy(self, record: TableRecord, **how: Any) -> CopyResult:
        self.before()
        result = self.copier.copy(record, **how)
        self.behind()
        return result


def counts(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    keys = [tuple(row.values()) for row in rows]
    return {key: keys.count(key) for key in keys}


CHANGES = {
    "nothing": (),
    "insert": ("INSERT INTO t VALUES (3, 'c'), (3, 'c'), (1, 'a')",),
    "delete": ("DELETE FROM t WHERE v = 'a' LIMIT 1",),
    "update": ("UPDATE t SET v = 'b' WHERE v = 'a' LIMIT 1",),
    "there and back": ("UPDATE t SET n = 9", "UPDATE t SET n = 1", "DELETE FROM t LIMIT 1"),
}


@pytest.mark.rotate(1)
@pytest.mark.parametrize("together", [False, True], ids=["apart", "together"])
@pytest.mark.parametrize("before", CHANGES.values(), ids=list(CHANGES))
def test_what_the_snapshot_shows_is_not_applied_again(
    before: tuple[str, ...],
    together: bool,
    mirror: Mirror,
    source: Source,
    target: Target,
    mysql97: Server,
) -> None:
    """`together`: True if one append to the log contains the changes from before and from after the snapshot."""
    source.execute(
        "SET sql_log_bin = 0",
        "CREATE TABLE t (n INT, v VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'a'), (1, 'a'), (1, 'a'), (2, NULL)",
    )
    add_reader(mysql97, "with_locks", "LOCK TABLES ON *.*")
    settings = copy_settings(mysql97, "with_locks", lock_keyless_tables=True)
    server = CopyServer.of_settings(settings)

    def place() -> Position:
        with server.session() as connection:
            return executed_position(connection)

    mirror.place = place
    mirror.feed()
    asked = TableRecord(new_table_id(), "shop", source.database, "t", state=Creating())
    mirror.control.write([asked])

    def first() -> None:
        if before:
            source.execute(*before)
        if not together:
            mirror.feed()

    def behind() -> None:
        source.execute("UPDATE t SET n = 5 WHERE v IS NULL", "INSERT INTO t VALUES (1, 'a')")
        mirror.feed()

    copier = Copier(mirror.spark, settings, str(target.path))
    beside = Meanwhile(copier, first, behind)
    applier = Applier(mirror.spark, mirror.options(can_copy=True), beside)

    assert applier.run(threading.Event(), drain=True) == 0
    assert mirror.apply() == 0  # apply the entries that were logged during the copy
    assert mirror.record("t").word is TableState.COMPLETE
    assert counts(target.rows(source, "t")) == counts(source.rows("t"))
