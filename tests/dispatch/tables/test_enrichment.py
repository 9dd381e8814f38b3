"""TABLE_MAPs of a log that names no columns: what is fetched, what is rewritten, and what fails."""

from __future__ import annotations

import numpy as np
import pytest

from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import SEQUENCE_COLUMNS, TableKind
from dispatcher.dispatch.tables.enrichment import Enrichment, Outcome, SchemaRequirement
from dispatcher.dispatch.tables.versions import FetchedDefinition, LogPosition, Versions
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.batch import TABLE_MAP, Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter, opaque_rows_body
from tests.support.rows_encoder import Spec, table_map
from tests.support.table_definitions import definition, statements_from

ORDERS = ("shop", "orders")
PROVEN = SchemaRequirement(proven=True, current=False, later=True)
CURRENT = SchemaRequirement(proven=False, current=True, later=False)
NONE = SchemaRequirement(proven=False, current=False, later=False)


class MinimalLog:
    """A log whose TABLE_MAPs name no columns, with the rows of one table, and its enrichment."""

    def __init__(self) -> None:
        self.log = LogWriter()
        self.routes = Routes()
        self.splitter = Splitter(self.routes, packets=True, checksum=True, buffer_bytes=1 << 14)
        self.enrichment = Enrichment(self.routes, Versions())
        self._fed = 0

    @property
    def end(self) -> LogPosition:
        return LogPosition(self.log.file.name, self.log.file.size, self.log.file.created)

    def insert(self) -> None:
        self.log.begin()
        body = table_map([Spec("", 3)], database="shop", table="orders", table_id=100, full=False)
        self.log._part("map", EventType.TABLE_MAP, body, (ORDERS,))
        rows = opaque_rows_body(EventType.WRITE_ROWS, 100, b"1", end=True)
        self.log._part("rows", EventType.WRITE_ROWS, rows, (ORDERS,), ends=True)
        self.log.commit()

    def alter(self) -> None:
        self.log.ddl("ALTER TABLE orders ADD x int", "shop", tables=(ORDERS,))

    def batch(self) -> Batch:
        """Returns a batch with everything that was written since the last call."""
        stream = self.log.stream()
        *_, batch = self.splitter.feed(stream[self._fed :])
        self._fed = len(stream)
        assert isinstance(batch, Batch)
        return batch

    def begin(self, *, can_ask: bool = True, gaps: bool = False) -> None:
        start = LogPosition(self.log.file.name, 4, self.log.file.created)
        position = None if gaps else start
        self.enrichment.begin(position, mariadb=False, can_ask=can_ask, gaps=gaps)

    def enrich(
        self,
        batch: Batch,
        requirement: SchemaRequirement = PROVEN,
        *,
        mask: int = 1,
        ask: bool = True,
    ) -> Outcome:
        route_mask: U8 = np.full(len(self.routes), mask, dtype=np.uint8)
        return self.enrichment.enrich(
            batch, self.log.file.created, route_mask, lambda *_: requirement, ask=ask
        )

    def fetch(self, outcome: Outcome, column: str = "id") -> None:
        """Answer the request for the missing tables."""
        assert outcome.start is not None
        found = [FetchedDefinition(ORDERS, self.end, definition(ORDERS, column))]
        statements = statements_from(self.log, outcome.start)
        self.enrichment.versions.add_fetched(outcome.start, found, statements)


@pytest.fixture
def minimal() -> MinimalLog:
    minimal = MinimalLog()
    minimal.insert()
    return minimal


def table_maps_of(batch: Batch) -> list[TableMap]:
    found = []
    for i in np.flatnonzero(batch.ev.kind == TABLE_MAP).tolist():
        start, size = int(batch.ev.off[i]), int(batch.ev.size[i])
        body = batch.buf[start + HEADER_SIZE : start + size - 4].tobytes()
        found.append(TableMap.parse(body))
    return found


def columns_of(batch: Batch) -> list[str]:
    """The column names of the batch's TABLE_MAPs."""
    return [column.name for parsed in table_maps_of(batch) for column in parsed.columns]


def test_a_table_without_a_known_definition_is_missing(minimal: MinimalLog) -> None:
    minimal.begin()
    outcome = minimal.enrich(minimal.batch())
    assert outcome.missing == (ORDERS,) and not outcome.gaps
    assert outcome.start is not None and outcome.start.file == minimal.log.file.name


def test_a_table_that_no_consumer_gets_is_not_missing(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    assert minimal.enrich(batch, mask=0).missing == ()
    assert minimal.enrich(batch, NONE).missing == ()


def test_a_fetched_definition_completes_the_table_map(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    minimal.fetch(minimal.enrich(batch))
    outcome = minimal.enrich(batch)
    assert outcome.missing == () and not outcome.failures
    assert columns_of(outcome.batch) == ["id"]
    assert columns_of(batch) == [""]


def test_a_definition_from_behind_an_alter_proves_nothing(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    minimal.alter()
    minimal.fetch(minimal.enrich(batch))
    (failure,) = minimal.enrich(batch, ask=False).failures
    assert failure.error.kind is ErrorKind.METADATA_MISSING and not failure.even_current


def test_a_table_map_without_a_definition_is_marked_and_stays_so(minimal: MinimalLog) -> None:
    """A second look-up shows nothing more, and the mark does not depend on the position."""
    minimal.begin()
    minimal.insert()
    batch = minimal.batch()
    minimal.alter()
    minimal.fetch(minimal.enrich(batch))
    outcome = minimal.enrich(batch, ask=False)
    assert [failure.marked for failure in outcome.failures] == [True, True]
    first, second = table_maps_of(outcome.batch)
    assert first.unknown == second.unknown and first.layout == second.layout
    assert "may have been altered since" in first.unknown
    with pytest.raises(BinlogError, match="not known here") as raised:
        first.require_names()
    assert raised.value.kind is ErrorKind.METADATA_MISSING
    again = minimal.enrich(batch)
    assert again.missing == () and table_maps_of(again.batch) == [first, second]


def test_a_definition_that_the_server_may_show_later_is_not_marked(minimal: MinimalLog) -> None:
    """SELECT on the table is not granted, and no statement has altered it."""
    minimal.begin()
    batch = minimal.batch()
    outcome = minimal.enrich(batch)
    assert outcome.start is not None
    hidden = BinlogError(ErrorKind.METADATA_MISSING, "no SELECT")
    fetched = [FetchedDefinition(ORDERS, minimal.end, hidden)]
    minimal.enrichment.versions.add_fetched(outcome.start, fetched, ())
    outcome = minimal.enrich(batch, ask=False)
    assert [failure.marked for failure in outcome.failures] == [False]
    assert [parsed.unknown for parsed in table_maps_of(outcome.batch)] == [""]


def test_a_table_map_with_the_current_definition_is_not_marked(minimal: MinimalLog) -> None:
    """The batch is the same for consumers that need a proven definition, so all of those fail."""
    minimal.begin()
    batch = minimal.batch()
    minimal.alter()
    minimal.fetch(minimal.enrich(batch))
    both = SchemaRequirement(proven=True, current=True, later=True)
    outcome = minimal.enrich(batch, both, ask=False)
    (failure,) = outcome.failures
    assert not failure.marked and not failure.even_current
    assert columns_of(outcome.batch) == ["id"]


def test_consumers_that_accept_the_current_definition_go_on(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    minimal.alter()
    minimal.fetch(minimal.enrich(batch, CURRENT))
    outcome = minimal.enrich(batch, CURRENT, ask=False)
    assert not outcome.failures and columns_of(outcome.batch) == ["id"]


def test_an_alter_in_the_stream_makes_the_table_missing_again(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    minimal.fetch(minimal.enrich(batch))
    minimal.enrich(batch)
    minimal.enrichment.advance(batch, minimal.log.file.created)
    minimal.alter()
    minimal.insert()
    assert minimal.enrich(minimal.batch()).missing == (ORDERS,)


def test_a_source_without_a_server_fails_every_consumer_of_the_table(minimal: MinimalLog) -> None:
    minimal.begin(can_ask=False)
    outcome = minimal.enrich(minimal.batch(), CURRENT)
    (failure,) = outcome.failures
    assert outcome.missing == () and failure.even_current
    assert "no server to be asked" in failure.error.what


def test_a_definition_that_contradicts_the_event_fails_every_consumer(minimal: MinimalLog) -> None:
    minimal.begin()
    batch = minimal.batch()
    outcome = minimal.enrich(batch)
    assert outcome.start is not None
    other = {**definition(ORDERS, "id"), "columns": []}
    fetched = [FetchedDefinition(ORDERS, minimal.end, other)]
    minimal.enrichment.versions.add_fetched(outcome.start, fetched, ())
    (failure,) = minimal.enrich(batch, CURRENT).failures
    assert failure.even_current
    assert "does not match the event" in failure.error.what


def test_a_stream_that_may_skip_transactions_asks_for_every_table(minimal: MinimalLog) -> None:
    minimal.begin(gaps=True)
    outcome = minimal.enrich(minimal.batch())
    assert outcome.missing == (ORDERS,) and outcome.gaps


# -- what a table is --------------------------------------------------------------------------------------------

SEQUENCE = ("shop", "s")


class SequenceLog(MinimalLog):
    """A log of MariaDB with full metadata, and the rows of a sequence."""

    def insert(self) -> None:
        columns = [Spec(name, 8, nullable=False) for name in SEQUENCE_COLUMNS]
        self.log.begin()
        body = table_map(columns, database="shop", table="s", table_id=100, key=())
        self.log._part("map", EventType.TABLE_MAP, body, (SEQUENCE,))
        rows = opaque_rows_body(EventType.WRITE_ROWS, 100, b"1", end=True)
        self.log._part("rows", EventType.WRITE_ROWS, rows, (SEQUENCE,), ends=True)
        self.log.commit()

    def begin(self, *, can_ask: bool = True, gaps: bool = False) -> None:
        start = LogPosition(self.log.file.name, 4, self.log.file.created)
        self.enrichment.begin(start, mariadb=True, can_ask=can_ask, gaps=gaps)

    def statement(self, text: str) -> None:
        self.log.ddl(text, "shop", tables=(SEQUENCE,))

    def answer(self, outcome: Outcome, kind: str | None) -> None:
        """Answer the request for the sequence's definition. `kind`: None if there is no such table now."""
        assert outcome.missing == (SEQUENCE,) and outcome.start is not None
        columns = [
            {"name": name, "mysql_type": "bigint(21)", "nullable": False, "charset": None}
            for name in SEQUENCE_COLUMNS
        ]
        known = {"database": "shop", "table": "s", "columns": columns, "key": [], "primary": []}
        gone = BinlogError(ErrorKind.METADATA_MISSING, "it is gone")
        answer = gone if kind is None else known | {"kind": kind}
        statements = statements_from(self.log, outcome.start)
        found = [FetchedDefinition(SEQUENCE, self.end, answer)]
        self.enrichment.versions.add_fetched(outcome.start, found, statements)


@pytest.fixture
def sequence() -> SequenceLog:
    sequence = SequenceLog()
    sequence.begin()
    return sequence


def kinds_of(outcome: Outcome) -> list[TableKind]:
    assert outcome.missing == () and not outcome.failures
    return [parsed.kind for parsed in table_maps_of(outcome.batch)]


@pytest.mark.parametrize(
    ("kind", "expected"), [("sequence", TableKind.SEQUENCE), ("table", TableKind.TABLE)]
)
def test_the_server_tells_a_sequence_from_a_table(
    sequence: SequenceLog, kind: str, expected: TableKind
) -> None:
    sequence.insert()
    batch = sequence.batch()
    sequence.answer(sequence.enrich(batch), kind)
    assert kinds_of(sequence.enrich(batch)) == [expected]


def test_without_an_answer_the_kind_stays_in_doubt_and_no_consumer_fails(
    sequence: SequenceLog,
) -> None:
    sequence.insert()
    batch = sequence.batch()
    sequence.statement("RENAME TABLE s TO s2")
    sequence.answer(sequence.enrich(batch), None)
    assert kinds_of(sequence.enrich(batch, ask=False)) == [TableKind.DOUBT]
    other = SequenceLog()
    other.begin(can_ask=False)
    other.insert()
    assert kinds_of(other.enrich(other.batch())) == [TableKind.DOUBT]


def test_statements_that_only_sequences_can_have_prove_the_kind(sequence: SequenceLog) -> None:
    sequence.insert()
    batch = sequence.batch()
    sequence.statement("ALTER SEQUENCE s RESTART 5")
    sequence.statement("DROP SEQUENCE `s` /* generated by server */")
    sequence.answer(sequence.enrich(batch), None)
    assert kinds_of(sequence.enrich(batch)) == [TableKind.SEQUENCE]


@pytest.mark.parametrize(
    "text",
    [
        "DROP SEQUENCE IF EXISTS `s` /* generated by server */",
        "DROP TABLE s",
        "ALTER TABLE s FORCE",
    ],
)
def test_other_statements_prove_nothing(sequence: SequenceLog, text: str) -> None:
    sequence.insert()
    batch = sequence.batch()
    sequence.statement(text)
    sequence.answer(sequence.enrich(batch), None)
    assert kinds_of(sequence.enrich(batch)) == [TableKind.DOUBT]


# -- definitions from statements ------------------------------------------------------------------------------


def test_a_definition_that_a_statement_shows_is_not_fetched() -> None:
    minimal = MinimalLog()
    minimal.log.ddl("CREATE TABLE orders (a int)", "shop", tables=(ORDERS,))
    minimal.insert()
    minimal.log.ddl("ALTER TABLE orders CHANGE a b int", "shop", tables=(ORDERS,))
    minimal.insert()
    minimal.begin()
    outcome = minimal.enrich(minimal.batch())
    assert outcome.missing == () and columns_of(outcome.batch) == ["a", "b"]


def test_a_derived_definition_that_contradicts_the_event_is_fetched() -> None:
    minimal = MinimalLog()
    minimal.log.ddl("CREATE TABLE orders (a bigint)", "shop", tables=(ORDERS,))
    minimal.insert()
    minimal.begin()
    batch = minimal.batch()
    outcome = minimal.enrich(batch)
    assert outcome.missing == (ORDERS,)
    minimal.fetch(outcome, "id")
    assert columns_of(minimal.enrich(batch).batch) == ["id"]


def test_statements_and_server_must_show_the_same() -> None:
    minimal = MinimalLog()
    minimal.log.ddl("CREATE TABLE orders (a int)", "shop", tables=(ORDERS,))
    minimal.insert()
    minimal.begin()
    batch = minimal.batch()
    start = LogPosition(minimal.log.file.name, 4, minimal.log.file.created)
    found = [FetchedDefinition(ORDERS, minimal.end, definition(ORDERS, "b"))]
    minimal.enrichment.versions.add_fetched(start, found, statements_from(minimal.log, start))
    (failure,) = minimal.enrich(batch).failures
    assert "show different columns: columns a; and columns b" in failure.error.what
