"""The daemon stores a declared consumer before the consumer runs, runs it together with the consumers of the settings,
and removes it if it has no reader for a long time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.runtime.client.client_service import ClientDecl, ConsumerDecl
from dispatcher.runtime.client.from_settings import consumer_spec
from dispatcher.runtime.client_registry import ClientDecls
from dispatcher.runtime.declarations import Declarations
from dispatcher.settings.declared import DAY_S
from dispatcher.settings.model import ConsumerSettings, Settings, SourceSettings
from dispatcher.source.protocols import Source
from tests.support.fake_clients import Daemon, open_session
from tests.support.fake_state import FakeState

CONNECTION = {"mysql": "repl@db1:3306", "password": "secret"}
SOURCE = SourceSettings.model_validate({**CONNECTION, "names": ["nb-*"], "databases": ["a", "b"]})
FIXED = ConsumerSettings.model_validate({**CONNECTION, "databases": ["a"]})
SETTINGS = Settings(consumers={"fixed": FIXED}, sources={"db": SOURCE})
WANTED = Declaration("nb-1", "notebook", "", ("a",))


class Tables:
    """Fake server of a source. `asked`: the tables that the daemon has looked up."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table_columns(self, database: str, table: str) -> dict[str, Any]:
        self.asked.append(f"{database}.{table}")
        return {"database": database, "table": table, "columns": [], "key": []}


class Declaring:
    """Runs the code of `runtime/declarations.py` with a state in memory. `now_s`: the time, in seconds since 1970."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.now_s = 1000.0
        self.tables = Tables()
        self.make()

    def make(self) -> None:
        daemon = self.daemon
        self.declarations = Declarations(
            daemon.clients,
            daemon.store,
            daemon.state,
            daemon.timeline,
            self._decls,
            lambda _source: self.tables,
            lambda: self.now_s,
        )

    def _decls(self, settings: Settings) -> ClientDecls:
        consumers = tuple(
            ConsumerDecl(consumer_spec(name, each), 0.0)
            for name, each in settings.consumers.items()
        )
        source = cast(Source, self.daemon.source)
        return {"key": ClientDecl("key", source, consumers)} if consumers else {}

    async def restart(self, settings: Settings) -> None:
        """Load the declarations again, like a restarted daemon or a daemon that takes over."""
        await self.daemon.clients.stop()
        await self.daemon.store.close()
        self.daemon._make()
        self.make()
        await self.declarations.apply(settings)
        self.daemon.clients.start()

    @property
    def running(self) -> list[str]:
        return sorted(self.daemon.sessions.names())

    async def declare(self, wanted: Declaration = WANTED) -> bool:
        return (await self.declarations.declare(wanted, None))[1]


@pytest.fixture
async def declaring(daemon: Daemon) -> Declaring:
    declaring = Declaring(daemon)
    await declaring.declarations.apply(SETTINGS)
    daemon.clients.start()
    return declaring


async def test_a_declared_consumer_runs_and_is_stored(
    declaring: Declaring, state: FakeState
) -> None:
    assert await declaring.declare() is True
    assert declaring.running == ["fixed", "nb-1"]
    assert state.declared == {"nb-1": replace(WANTED, source="db", declared_s=1000, read_s=1000)}
    assert declaring.declarations.owners == {"nb-1": "notebook"}
    assert await declaring.declare() is False


async def test_a_reload_keeps_declared_consumers(declaring: Declaring) -> None:
    await declaring.declare()
    session = declaring.daemon.sessions.get("nb-1")
    reloaded = Settings(consumers={}, sources={"db": SOURCE})
    await declaring.declarations.check(reloaded)
    changes = await declaring.declarations.apply(reloaded)
    assert (changes.removed, changes.changed) == (("fixed",), ())
    assert declaring.running == ["nb-1"] and declaring.daemon.sessions.get("nb-1") is session


async def test_a_start_runs_what_is_stored(declaring: Declaring) -> None:
    await declaring.declare()
    await declaring.restart(SETTINGS)
    assert declaring.running == ["fixed", "nb-1"]
    assert declaring.declarations.owners == {"nb-1": "notebook"}


async def test_nothing_runs_that_is_not_stored(declaring: Declaring, state: FakeState) -> None:
    state.full = True
    with pytest.raises(BinlogError) as caught:
        await declaring.declare()
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert declaring.running == ["fixed"] and declaring.declarations.owners == {}
    state.full = False
    assert await declaring.declare() is True


async def test_a_consumer_that_cannot_be_deleted_goes_on(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    state.undeclare = _fails  # type: ignore[method-assign]
    with pytest.raises(BinlogError):
        await declaring.declarations.remove("nb-1", "notebook")
    assert declaring.running == ["fixed", "nb-1"] and "nb-1" in state.declared


def _fails(consumer: str) -> None:
    raise BinlogError(ErrorKind.STATE_STORE, f"{consumer}: the disk is full")


async def test_a_stored_consumer_that_could_not_run_runs_at_the_next_request(
    declaring: Declaring, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = declaring.daemon.clients
    with monkeypatch.context() as patch:
        patch.setattr(clients, "apply", _cannot_apply)
        with pytest.raises(BinlogError):
            await declaring.declare()
    assert declaring.running == ["fixed"]
    assert await declaring.declare() is False
    assert declaring.running == ["fixed", "nb-1"]


async def _cannot_apply(_decls: ClientDecls) -> None:
    raise BinlogError(ErrorKind.STATE_STORE, "the disk is full")


async def test_each_removes_what_it_may(declaring: Declaring, state: FakeState) -> None:
    await declaring.declare()
    remove = declaring.declarations.remove
    for name, owner, kind in (
        ("nb-1", "other", ErrorKind.FORBIDDEN),
        ("fixed", None, ErrorKind.FORBIDDEN),
        ("nb-2", None, ErrorKind.UNKNOWN_CONSUMER),
    ):
        with pytest.raises(UserError) as caught:
            await remove(name, owner)
        assert caught.value.kind is kind
    await remove("nb-1", "notebook")
    assert declaring.running == ["fixed"] and state.declared == {}
    await declaring.declare()
    await remove("nb-1", None)
    assert declaring.running == ["fixed"]


async def test_a_name_of_the_settings_replaces_a_declared_consumer(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    state.sessions["nb-1"] = 7
    await declaring.declarations.apply(Settings(consumers={"nb-1": FIXED}, sources={"db": SOURCE}))
    assert declaring.running == ["nb-1"] and state.declared == {}
    assert declaring.daemon.sessions.get("nb-1").consumer.spec.declared_by is None
    assert state.session("nb-1") == 0  # the store has nothing left of the declared consumer
    with pytest.raises(UserError) as caught:
        await declaring.declare()
    assert caught.value.kind is ErrorKind.CONSUMER_EXISTS


async def test_a_name_of_the_settings_replaces_it_at_a_start(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    await declaring.restart(Settings(consumers={"nb-1": FIXED}))
    assert declaring.running == ["nb-1"] and state.declared == {}


async def test_what_the_settings_no_longer_permit_does_not_run_but_stays_stored(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    narrowed = SOURCE.model_copy(update={"databases": ("b",)})
    await declaring.declarations.apply(Settings(consumers={}, sources={"db": narrowed}))
    assert declaring.running == [] and "nb-1" in state.declared
    with pytest.raises(UserError) as caught:
        await declaring.declare()
    assert caught.value.kind is ErrorKind.FORBIDDEN
    await declaring.declarations.apply(SETTINGS)
    assert declaring.running == ["fixed", "nb-1"]


async def test_a_consumer_that_nothing_reads_is_removed(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    await declaring.declare(replace(WANTED, name="nb-2"))
    declaring.now_s += 14 * DAY_S
    declaring.daemon.sessions.called("nb-2", 0, Caller.of("10.0.0.1", ""))
    await declaring.declarations.sweep()
    assert declaring.running == ["fixed", "nb-1", "nb-2"]
    assert [each.read_s for each in state.declarations()] == [1000, 1000 + 14 * DAY_S]
    declaring.now_s += 1
    await declaring.declarations.sweep()
    assert declaring.running == ["fixed", "nb-2"] and list(state.declared) == ["nb-2"]


async def test_a_consumer_with_a_client_of_the_front_is_not_removed(declaring: Declaring) -> None:
    """The front calls nothing but `poll`, for as long as its client stays connected."""
    await declaring.declare()
    sessions = declaring.daemon.sessions
    session, start = await open_session(sessions, "nb-1")
    for _ in range(3):
        declaring.now_s += 13 * DAY_S
        await sessions.poll("nb-1", session, start, PollBounds(1), 0.0, False)
        await declaring.declarations.sweep()
    assert declaring.running == ["fixed", "nb-1"]


async def test_calls_are_noted_after_a_sweep_that_failed(
    declaring: Declaring, state: FakeState
) -> None:
    await declaring.declare()
    declaring.daemon.sessions.called("nb-1", 0, Caller.of("10.0.0.1", ""))
    declaring.now_s += 20 * DAY_S
    state.full = True
    with pytest.raises(BinlogError):
        await declaring.declarations.sweep()
    state.full = False
    await declaring.declarations.sweep()
    assert declaring.running == ["fixed", "nb-1"]


async def test_tables_of_a_source_are_looked_up_within_its_limits(declaring: Declaring) -> None:
    table = declaring.declarations.table
    assert (await table("db", {"db"}, "a", "orders"))["table"] == "orders"
    await table(None, None, "a", "orders")
    assert declaring.tables.asked == ["a.orders"]  # both calls get one answer
    for source, permitted, database, kind in (
        ("db", None, "c", ErrorKind.UNKNOWN_TABLE),
        ("db", {"other"}, "a", ErrorKind.FORBIDDEN),
        ("gone", None, "a", ErrorKind.FORBIDDEN),
    ):
        with pytest.raises(UserError) as caught:
            await table(source, permitted, database, "orders")
        assert caught.value.kind is kind


async def test_changes_wait_for_each_other_and_none_begins_after_the_end(
    declaring: Declaring, state: FakeState
) -> None:
    state.hold()
    declaring_one = asyncio.ensure_future(declaring.declare())  # noqa: TID251
    reloading = asyncio.ensure_future(declaring.declarations.apply(SETTINGS))  # noqa: TID251
    await asyncio.sleep(0)
    state.release()
    assert await declaring_one is True
    assert (await reloading).removed == ()
    await declaring.declarations.end()
    with pytest.raises(BinlogError) as caught:
        await declaring.declare(replace(WANTED, name="nb-2"))
    assert caught.value.kind is ErrorKind.NOT_LEADER
