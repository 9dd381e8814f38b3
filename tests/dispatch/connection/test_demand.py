"""Which consumers get events of a batch, and what they require of its tables."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.demand import Demand
from dispatcher.dispatch.tables.enrichment import SchemaFailure, SchemaRequirement
from dispatcher.dispatch.values.executed_position import BatchGtids
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.routes import Routes
from tests.support.dispatch_parts import SERVER, at, consumer_at
from tests.support.fake_batch import batch_of

MISSING = BinlogError(ErrorKind.METADATA_MISSING, "the columns are unknown")


@pytest.fixture
def routes() -> Routes:
    """Route 0 is shop.t, route 1 is crm.t."""
    routes = Routes()
    routes.table(b"shop", b"t")
    routes.table(b"crm", b"t")
    return routes


def demand_of(routes: Routes, *consumers: Consumer) -> Demand:
    """Returns the demand for a batch of the transactions 11, 12 and 13. The dispatcher's position is 10."""
    batch = batch_of("binlog.000009", 200, None, transactions=3)
    batch.sources.append(SERVER)
    batch.tx.source[:] = 0
    batch.tx.gno[:] = (11, 12, 13)
    return Demand(consumers, BatchGtids.of(batch), at(10), routes)


def test_a_consumer_at_the_dispatchers_position_is_in_sync(routes: Routes) -> None:
    level, ahead = consumer_at(10), consumer_at(12, "crm")
    assert demand_of(routes, level, ahead).others() == [(level, True), (ahead, False)]


def test_the_mask_has_the_routes_of_all_consumers(routes: Routes) -> None:
    mask = demand_of(routes, consumer_at(10), consumer_at(12, "crm")).route_mask()
    assert mask.tolist() == [1, 1]


def test_the_mask_leaves_out_a_consumer_that_has_the_whole_batch(routes: Routes) -> None:
    mask = demand_of(routes, consumer_at(10), consumer_at(13, "crm")).route_mask()
    assert mask.tolist() == [1, 0]


def test_a_transaction_that_is_queued_already_requires_nothing_but_for_later(
    routes: Routes,
) -> None:
    demand = demand_of(routes, consumer_at(12))
    assert demand.requirement(0, 1) == SchemaRequirement(proven=False, current=False, later=True)
    assert demand.requirement(0, 2) == SchemaRequirement(proven=True, current=False, later=True)


def test_a_consumer_may_accept_the_current_definition(routes: Routes) -> None:
    demand = demand_of(routes, consumer_at(10, assume_current_schema=True))
    assert demand.requirement(0, 0) == SchemaRequirement(proven=False, current=True, later=False)


def test_a_table_of_no_consumer_requires_nothing(routes: Routes) -> None:
    demand = demand_of(routes, consumer_at(10))
    assert demand.requirement(1, 0) == SchemaRequirement(proven=False, current=False, later=False)


def test_each_consumer_fails_at_its_first_failure(routes: Routes) -> None:
    shop, crm = consumer_at(11), consumer_at(10, "crm")
    failures = [SchemaFailure(0, t, MISSING, even_current=False) for t in (2, 1, 0)]
    assert demand_of(routes, shop, crm).failing(failures) == [(shop, failures[1])]


def test_a_consumer_of_the_current_definition_fails_only_without_one(routes: Routes) -> None:
    consumer = consumer_at(10, assume_current_schema=True)
    unproven = SchemaFailure(0, 0, MISSING, even_current=False)
    unknown = SchemaFailure(0, 1, MISSING, even_current=True)
    demand = demand_of(routes, consumer)
    assert demand.failing([unproven]) == []
    assert demand.failing([unproven, unknown]) == [(consumer, unknown)]


def test_a_consumer_whose_reader_understands_marks_fails_only_without_one(routes: Routes) -> None:
    consumer, other = consumer_at(10), consumer_at(10)
    consumer.takes_unknown = True
    marked = SchemaFailure(0, 0, MISSING, even_current=True, marked=True)
    plain = SchemaFailure(0, 1, MISSING, even_current=True)
    demand = demand_of(routes, consumer, other)
    assert demand.failing([marked]) == [(other, marked)]
    assert demand.failing([plain, marked]) == [(consumer, plain), (other, marked)]
    assert demand_of(routes, consumer).receiving_marks([marked, plain]) == [(consumer, marked)]
    assert demand_of(routes, consumer_at(11)).receiving_marks([marked]) == []
