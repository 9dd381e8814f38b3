"""The contract that every state store fulfils: the store in a file, and the store in a database of each kind of
server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.settings.model import StateSettings
from dispatcher.stream.xa_store import LogPoint, XaChanges, XaEntry, XaFault, XaStore
from tests.servers.server import Server
from tests.support.state_stores import (
    DatabaseStores,
    FileStores,
    Store,
    Stores,
    state_databases,
)

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(seq: int, *, epoch: int = 0) -> Position:
    return Position(SERVER, f"{SERVER}:1-{seq}", "binlog.000001", 4 + seq, seq, epoch)


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture(params=["file", "mysql97", "mariadb1011", "mariadb118"])
def stores(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    databases: Callable[[Server], StateSettings],
) -> Iterator[Stores]:
    stores: Stores = FileStores(tmp_path / "state.db")
    if request.param != "file":
        server: Server = request.getfixturevalue(request.param)
        stores = DatabaseStores(server, databases(server))
    yield stores
    stores.close()


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open()


# -- progress -------------------------------------------------------------------------------------------------


def test_a_new_consumer_has_no_progress(store: Store) -> None:
    assert store.load("shop") is None
    assert store.session("shop") == 0
    assert not store.paused("shop")


def test_saved_progress_is_loaded(store: Store) -> None:
    store.save(
        [("shop", position(1), position(5), 1700000000), ("billing", position(2), position(2), -7)]
    )
    assert store.load("shop") == Progress(position(1), position(5), 1700000000)
    assert store.load("billing") == Progress(position(2), position(2), -7)


def test_a_later_save_replaces_the_earlier(store: Store) -> None:
    store.save([("shop", position(1), position(1), 7)])
    store.save([("shop", position(3), position(4), 8)])
    assert store.load("shop") == Progress(position(3), position(4), 8)


def test_the_covered_position_may_advance_alone(store: Store) -> None:
    store.save([("shop", position(1), position(1), 7)])
    store.save([("shop", position(1), position(4), 8)])
    assert store.load("shop") == Progress(position(1), position(4), 8)


def test_a_position_may_go_back(store: Store) -> None:
    """Readers may seek to an earlier position, so the store does not compare positions."""
    store.save([("shop", position(9), position(9), 0)])
    store.save([("shop", position(2, epoch=1), position(2, epoch=1), 0)])
    stored = store.load("shop")
    assert stored is not None and stored.acknowledged == position(2, epoch=1)


def test_saving_nothing_is_allowed(store: Store) -> None:
    store.save([])


def test_forget_removes_everything_of_one_consumer(store: Store) -> None:
    store.next_session("shop")
    store.save([(name, position(1), position(1), 0) for name in ("shop", "billing")])
    store.forget("shop")
    store.forget("never seen")
    assert store.load("shop") is None and store.session("shop") == 0
    assert store.load("billing") is not None


def test_consumers_begin_in_a_new_epoch_after_one_was_forgotten(stores: Stores) -> None:
    store = stores.open()
    first = store.epoch
    store.forget("shop")
    store.forget("shop")
    assert 1_700_000_000 < first < first + 1 < store.epoch
    store.close()
    assert stores.open().epoch == store.epoch


def test_reopening_finds_all(stores: Stores) -> None:
    first = stores.open()
    first.save([("shop", position(1), position(5), 9)])
    first.save([("shop", position(1), position(6), 9)])
    session = first.next_session("shop")
    first.set_paused("billing", True)
    first.close()
    first.close()
    second = stores.open()
    assert second.installation_id == first.installation_id
    assert second.load("shop") == Progress(position(1), position(6), 9)
    assert second.session("shop") == session
    assert second.paused("billing") and not second.paused("shop")


@pytest.mark.parametrize(
    "names",
    [
        ["läden'; DROP TABLE consumer; --", "?", "%s", "\\", '"'],
        ["shop", "Shop", "shop ", "shöp", "s\N{COMBINING DIAERESIS}hop", "\N{OIL DRUM}", "x" * 64],
    ],
)
def test_names_and_positions_may_be_any_text(store: Store, names: list[str]) -> None:
    progress = {
        name: Progress(Position("", "", "Ünicode.000001", 2**62, 2**63 - 1, n), position(n), 0)
        for n, name in enumerate(names)
    }
    store.save([(name, of.acknowledged, of.covered, 0) for name, of in progress.items()])
    assert {name: store.load(name) for name in names} == progress


def test_a_long_set_of_gtids_is_stored(store: Store) -> None:
    gtid = f"{SERVER}:" + ":".join(f"{n}-{n + 1}" for n in range(1, 100_000, 3))
    long = replace(position(1), gtid=gtid)
    store.save([("shop", long, long, 0)])
    assert store.load("shop") == Progress(long, long, 0)


def test_a_failed_save_stores_none_of_its_rows(store: Store) -> None:
    store.save([("shop", position(1), position(1), 0)])
    too_large = 2**63
    with pytest.raises((OverflowError, BinlogError)):
        store.save(
            [("shop", position(2), position(2), 0), ("x", position(2), position(2), too_large)]
        )
    stored = store.load("shop")
    assert stored is not None and stored.acknowledged == position(1)
    store.save([("shop", position(3), position(3), 0)])


def test_readers_in_other_threads_see_whole_saves(store: Store) -> None:
    store.save([("shop", position(1), position(1), 1)])
    done = threading.Event()
    torn: list[Progress] = []

    def read() -> None:
        while not done.is_set():
            stored = store.load("shop")
            assert stored is not None
            if not stored.acknowledged.seq == stored.covered.seq == stored.created:
                torn.append(stored)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(2, 100):
        store.save([("shop", position(n), position(n), n)])
    done.set()
    for reader in readers:
        reader.join(10)
    assert torn == []


@pytest.mark.parametrize("content", ["{}", "not JSON"])
def test_an_invalid_stored_position(stores: Stores, content: str) -> None:
    store = stores.open()
    store.save([(name, position(1), position(1), 0) for name in ("shop", "billing")])
    stores.execute(f"UPDATE consumer SET covered = '{content}' WHERE name = 'shop'")
    with pytest.raises(BinlogError, match="stored position unreadable") as caught:
        store.load("shop")
    assert caught.value.kind is ErrorKind.STORED_POSITION
    assert "consumer shop" in caught.value.where
    assert store.load("billing") is not None


def test_a_closed_store_raises_an_error(store: Store) -> None:
    store.close()
    for call in (store.load, store.next_session):
        with pytest.raises(BinlogError) as caught:
            call("shop")
        assert caught.value.kind is ErrorKind.STATE_STORE


# -- sessions -------------------------------------------------------------------------------------------------


def test_session_numbers_increase_and_are_based_on_the_time(store: Store) -> None:
    first, second = store.next_session("shop"), store.next_session("shop")
    assert 1_700_000_000_000 < first < second == store.session("shop")
    assert store.session("billing") == 0
    assert store.load("shop") is None


def test_progress_and_sessions_are_independent(store: Store) -> None:
    first = store.next_session("shop")
    store.save([("shop", position(1), position(1), 5)])
    assert store.load("shop") == Progress(position(1), position(1), 5)
    assert store.session("shop") == first
    second = store.next_session("shop")
    assert store.load("shop") == Progress(position(1), position(1), 5)
    assert store.session("shop") == second


def test_delivery_is_paused_and_resumed(store: Store) -> None:
    store.set_paused("shop", True)
    session = store.next_session("shop")
    assert store.paused("shop") and store.session("shop") == session
    store.set_paused("shop", False)
    assert not store.paused("shop") and store.session("shop") == session


# -- declared consumers ---------------------------------------------------------------------------------------

DECLARED = Declaration("nb-1", "notebook", "db", ("läden", "shop_*"), declared_s=5, read_s=5)
OTHER = Declaration(
    "nb-2", "", "db", ("shop",), ("shop.orders",), ("shop.x",), '{"gtid":"0-1-2"}', 7, 9
)


def test_declared_consumers_are_kept_in_the_order_of_their_names(stores: Stores) -> None:
    store = stores.open()
    assert store.declarations() == []
    store.declare(OTHER)
    store.declare(DECLARED)
    assert store.declarations() == [DECLARED, OTHER]
    store.close()
    assert stores.open().declarations() == [DECLARED, OTHER]


def test_a_declared_consumer_begins_anew_whatever_its_name_held(store: Store) -> None:
    store.save([("nb-1", position(1), position(1), 0)])
    store.next_session("nb-1")
    epoch = store.epoch
    store.declare(DECLARED)
    assert store.load("nb-1") is None and store.session("nb-1") == 0
    assert store.epoch > epoch


def test_a_removed_declaration_takes_its_state_with_it(store: Store) -> None:
    for declaration in (DECLARED, OTHER):
        store.declare(declaration)
        store.save([(declaration.name, position(1), position(1), 0)])
        store.save([(declaration.name, position(1), position(4), 0)])
    epoch = store.epoch
    store.undeclare("nb-1")
    store.undeclare("never seen")
    assert store.declarations() == [OTHER]
    assert store.load("nb-1") is None and store.load("nb-2") is not None
    assert store.epoch > epoch


def test_the_time_of_the_last_read_is_kept(stores: Stores) -> None:
    store = stores.open()
    for declaration in (DECLARED, OTHER):
        store.declare(declaration)
    store.note_reads(["nb-1", "never seen"], 1 << 33)
    store.note_reads([], 1)
    store.close()
    assert stores.open().declarations() == [replace(DECLARED, read_s=1 << 33), OTHER]


def test_an_unreadable_declaration_is_an_error_of_the_store(stores: Stores) -> None:
    store = stores.open()
    store.declare(DECLARED)
    stores.execute("UPDATE declaration SET content = '{}'")
    with pytest.raises(BinlogError, match="nb-1 cannot be read") as caught:
        store.declarations()
    assert caught.value.kind is ErrorKind.STATE_STORE


# -- table versions -------------------------------------------------------------------------------------------


def test_versions_are_kept_until_they_are_replaced(stores: Stores) -> None:
    first = LogPosition("binlog.000001", 4, 100)
    later, last = LogPosition("binlog.000001", 500, 100), LogPosition("binlog.000002", 157, 200)
    definition = {"columns": [{"name": "größe", "mysql_type": "int"}], "primary": [["größe", 0]]}
    versions = (
        (("shop", "orders"), first, later, definition, False),
        (("shop", "orders"), later, last, definition, True),
    )
    store = stores.open()
    assert store.load_versions("repl@db1") is None
    store.save_versions("repl@db1", StoreVersions(later, StoredVersions("uuid", later, versions)))
    store.save_versions("repl@db2", StoreVersions(first, StoredVersions("other", first, ())))
    store.save_versions("repl@db1", StoreVersions(last, None))
    assert store.load_versions("repl@db1") == StoredVersions("uuid", last, versions)
    store.close()
    store = stores.open()
    assert store.load_versions("repl@db1") == StoredVersions("uuid", last, versions)
    assert store.load_versions("repl@db2") == StoredVersions("other", first, ())
    store.save_versions("repl@db1", StoreVersions(last, StoredVersions("uuid", last, versions[1:])))
    kept = store.load_versions("repl@db1")
    assert kept is not None
    assert kept.versions == versions[1:]


# -- prepared transactions ------------------------------------------------------------------------------------

AT = LogPoint(LogPosition("binlog.000007", 1 << 33, 1_700_000_000), "uuid:tag", 5, "server")
END = LogPoint(LogPosition("binlog.000008", 900), "", 0, "other")
FLAW = XaFault(ErrorKind.PREPARED, "too much", None, (("shop", "orders"), ("crm", None)))
LARGE = bytes(range(256)) * (10 << 10)  # 2.5 MiB
ENTRIES = (
    XaEntry(1, "X'00ff',X'',1", AT, Payload(Compression.NONE, 3, b"\0\1\xff")),
    XaEntry(2, "X'',X'',0", AT, Payload(Compression.ZSTD, 1 << 40, memoryview(LARGE)), (), END),
    XaEntry(
        5, "X'61',X'',1", AT, None, (FLAW, XaFault(ErrorKind.STATEMENT_FORMAT, "x", "do", None)), AT
    ),
    XaEntry(6, "X'62',X'',1", AT, Payload(Compression.NONE, 0, b"")),
)


def fields(entries: Iterable[XaEntry]) -> list[tuple[object, ...]]:
    return [
        (
            e.number,
            e.xid,
            e.at,
            e.rows and replace(e.rows, data=bytes(e.rows.data)),
            e.faults,
            e.end,
        )
        for e in entries
    ]


def test_prepared_transactions_are_stored_with_progress(stores: Stores) -> None:
    store = stores.open()
    changes = XaChanges(ENTRIES, (), ())
    store.save([("shop", position(1), position(2), 9)], "a", changes)
    store.save([], "b", XaChanges(ENTRIES[:1], (), ()))
    store.save([], "a", changes)  # the same changes again, as after a failed save
    store.close()
    store = stores.open()
    assert store.load("shop") is not None
    assert fields(store.load_prepared("a")) == fields(ENTRIES)
    assert fields(store.load_prepared("b")) == fields(ENTRIES[:1])
    store.save([], "a", XaChanges((), ((1, END),), (2, 6, 77)))
    entries = store.load_prepared("a")
    assert [(e.number, e.end) for e in entries] == [(1, END), (5, AT)]
    prepared = XaStore(stored=entries)
    assert (len(prepared), prepared.changes()) == (2, None)


def test_progress_is_not_stored_without_its_prepared_transactions(store: Store) -> None:
    too_large = XaEntry(2**63, "x", AT, None)
    with pytest.raises((OverflowError, BinlogError)):
        store.save([("shop", position(1), position(2), 9)], "a", XaChanges((too_large,), (), ()))
    assert store.load("shop") is None
    assert store.load_prepared("a") == []
