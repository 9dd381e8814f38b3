"""The statements of a log that may alter tables do not depend on where the batches of a reading end.

Two readings of a log, for example before and after a reconnect, cut it into different batches. If they disagreed about
where the new version of a table begins, one version of the table would be taken for the version before the statement.
"""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.tables.statements import (
    AlteringStatement,
    TransactionStarts,
    altering_statements,
)
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter, opaque_rows_body
from tests.support.rows_encoder import Spec, table_map

ORDERS = ("shop", "orders")


def insert(log: LogWriter) -> None:
    body = table_map([Spec("", 3)], database="shop", table="orders", table_id=100, full=False)
    log._part("map", EventType.TABLE_MAP, body, (ORDERS,))
    rows = opaque_rows_body(EventType.WRITE_ROWS, 100, b"1", end=True)
    log._part("rows", EventType.WRITE_ROWS, rows, (ORDERS,), ends=True)


def random_log(rng: random.Random, *, checksum: bool) -> LogWriter:
    log = LogWriter(gtid=rng.choice(("mysql", "anonymous", "mariadb")), checksum=checksum)
    for _ in range(rng.randrange(1, 12)):
        what = rng.random()
        if what < 0.5:
            log.ddl("ALTER TABLE orders ADD x int", "shop", tables=(ORDERS,))
        elif what < 0.7:  # CREATE TABLE ... SELECT
            log.begin()
            log.query("CREATE TABLE orders (id int)", "shop", tables=(ORDERS,))
            insert(log)
            log.commit()
        else:
            log.begin()
            insert(log)
            log.commit()
    return log


def statements_of(log: LogWriter, cuts: list[int], *, checksum: bool) -> list[AlteringStatement]:
    """Returns the statements of a log whose bytes arrive in pieces that end at `cuts`."""
    starts, routes = TransactionStarts(), Routes()
    splitter = Splitter(routes, packets=True, checksum=checksum, buffer_bytes=1 << 14)
    stream, statements = log.stream(), []
    for low, high in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for batch in splitter.feed(stream[low:high]):
            assert isinstance(batch, Batch)
            statements += altering_statements(batch, log.file.created, starts)
            starts.after(batch, log.file.created)
    return statements


@given(seed=st.integers(0, 2**32 - 1))
@example(seed=1)
def test_statements_do_not_depend_on_the_pieces_in_which_the_log_arrives(seed: int) -> None:
    rng = random.Random(seed)
    checksum = rng.random() < 0.5
    log = random_log(rng, checksum=checksum)
    size = len(log.stream())
    cuts = sorted(rng.sample(range(1, size), min(rng.randrange(1, 30), size - 1)))
    whole = statements_of(log, [], checksum=checksum)
    assert statements_of(log, cuts, checksum=checksum) == whole
