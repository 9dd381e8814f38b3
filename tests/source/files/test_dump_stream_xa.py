"""XA transactions in a folder of binlog files: prepared in one file, committed in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.dispatch.values.specs import AtGtid
from dispatcher.model.errors import ErrorKind
from tests.support.event_encoder import SERVER, Statement
from tests.support.folder_reading import Dispatched, insert, put, written
from tests.support.xa_log import XIDS, XaLog

ONE, TWO = XIDS[:2]


def write(log: XaLog) -> XaLog:
    """Write eight transactions, three of them without data: two prepares and a rollback."""

    def fill() -> None:
        log.statement(Statement((("shop", "orders"),), ((0, 30), (0, 20))))

    insert(log)
    log.prepare(ONE, fill)
    log.prepare(TWO, fill)
    log.rotate()
    insert(log)
    log.finish(ONE)
    log.rotate()
    log.finish(TWO, "ROLLBACK")
    log.one_phase(TWO, fill)
    insert(log)
    return log


@pytest.mark.parametrize("gtid", ["mysql", "anonymous", "mariadb"])
async def test_rows_come_with_the_commit(tmp_path: Path, gtid: str) -> None:
    log = write(XaLog(gtid=gtid))
    put(tmp_path, log)
    reading = await Dispatched(tmp_path).read()
    wanted = [place for n, place in enumerate(written(log)) if n not in (1, 2, 5)]
    assert reading.transactions == wanted


async def test_a_start_behind_a_prepare_in_an_earlier_file(tmp_path: Path) -> None:
    """A file is read from its beginning; commits that the consumer has executed are not faults."""
    log = write(XaLog())
    put(tmp_path, log)
    for count, good in ((5, True), (4, False)):
        reading = Dispatched(tmp_path, start=AtGtid(f"{SERVER}:1-{count}"))
        if good:
            await reading.read()
            assert reading.transactions == written(log)[6:]
        else:
            await reading.read()
            failed = reading.client.consumers["all"].failed
            assert failed is not None
            assert failed.kind is ErrorKind.PREPARED
