"""The stored table versions are those of the dispatcher that is furthest ahead."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.client.version_store import VersionStore
from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import FetchedDefinition, LogPosition
from tests.support.dispatch_parts import SERVER, consumer_at, streaming
from tests.support.table_definitions import definition

ORDERS = ("shop", "orders")
START, END = LogPosition("binlog.000009", 100), LogPosition("binlog.000009", 200)


@pytest.fixture
def main() -> Dispatcher:
    """A dispatcher that has fetched the definition of one table."""
    dispatcher = streaming(consumer_at(10))
    versions = dispatcher.enrichment.versions
    versions.begin(START)
    versions.add_fetched(START, [FetchedDefinition(ORDERS, END, definition(ORDERS, "id"))], ())
    return dispatcher


def test_a_server_with_full_metadata_has_nothing_to_store() -> None:
    assert VersionStore(None).store(streaming(consumer_at(10))) == []
    assert VersionStore(None).store(None) == []


def test_a_new_version_is_stored_with_all_others(main: Dispatcher) -> None:
    (effect,) = VersionStore(None).store(main)
    assert effect.versions is not None
    assert effect.versions.server == SERVER
    assert [name for name, *_ in effect.versions.versions] == [ORDERS]


def test_without_a_change_only_how_far_they_hold_is_stored(main: Dispatcher) -> None:
    store = VersionStore(None)
    store.store(main)
    assert store.store(main) == []
    main.enrichment.versions.advance(END)
    assert store.store(main, with_position=False) == [], "before progress, changes suffice"
    assert store.store(main) == [StoreVersions(END, None)]


def test_the_versions_of_another_dispatcher_are_stored_whole(main: Dispatcher) -> None:
    store = VersionStore(None)
    (stored,) = store.store(main)
    assert isinstance(stored, StoreVersions)
    other = streaming(consumer_at(12, "crm"), number=2)
    other.enrichment.versions = store.versions_for(main)
    other.enrichment.versions.to_store()  # nothing changed since
    (effect,) = store.store(other)
    assert effect.versions is not None


def test_a_new_dispatcher_begins_with_those_of_the_one_ahead(main: Dispatcher) -> None:
    versions = VersionStore(None).versions_for(main)
    assert len(versions) == 1
    assert versions is not main.enrichment.versions


def test_the_versions_of_a_retired_dispatcher_are_kept(main: Dispatcher) -> None:
    store = VersionStore(None)
    store.retire(main)
    assert len(store.versions_for(None)) == 1
