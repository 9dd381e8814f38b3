"""The state in a database of the server that is read: the daemon's own writes do not make it write again without
end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import structlog

from dispatcher.model.position import Position
from dispatcher.runtime.client.from_settings import client_decls
from dispatcher.runtime.client_registry import ClientRegistry
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.model import Settings, StateSettings
from dispatcher.state.database import DatabaseStore
from dispatcher.state.lease import LeaseTable
from tests.servers.server import Server
from tests.support.fake_clients import open_session, poll, position, until
from tests.support.state_stores import HOLDER, DatabaseOf, leading_store, state_databases

PASSWORD = "lesen-geheim"


class CountedStore(DatabaseStore):
    """`saves`: the number of calls; most of them need no write."""

    saves = 0

    def save(self, *arguments: object) -> None:
        self.saves += 1
        super().save(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def database(mysql97: Server) -> Iterator[DatabaseOf]:
    with state_databases() as settings_on:
        yield DatabaseOf(mysql97, settings_on(mysql97))


def settings(state: StateSettings, server: Server, user: str) -> Settings:
    consumer = {"mysql": f"{user}@127.0.0.1:{server.port}", "password": PASSWORD,
                "databases": ["*"], "tls": {"mode": "disabled", "allow_public_key_retrieval": True}}  # fmt: skip
    values = {"consumers": {"all": consumer}}
    return Settings.model_validate(values).model_copy(update={"state": state})


async def test_a_consumer_of_all_databases_gets_none_of_it(
    database: DatabaseOf, new_database: Callable[[Server], str]
) -> None:
    server = database.server
    shop = new_database(server)
    server.add_user(user := f"r_{shop}"[-32:], PASSWORD)
    server.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=shop)
    leading_store(database.settings).close()
    store = CountedStore(database.settings, HOLDER, database.value("SELECT term FROM lease"))
    thread, errors = StoreThread(store), list[tuple[str, BaseException]]()
    clients = ClientRegistry(
        thread, None, Timeline(structlog.get_logger("test")), lambda *error: errors.append(error)
    )
    await clients.apply(
        client_decls(settings(database.settings, server, user), store.installation_id)
    )
    clients.start()
    readers = clients.sessions
    number, start = await open_session(readers, "all")
    server.execute("INSERT INTO t VALUES (1)", database=shop)
    answer = await poll(readers, "all", number, start, wait_s=60, markers=False)
    assert answer["transactions"] == 1
    end = position(answer["end"])
    await readers.acknowledge("all", number, end)

    def writes() -> int:
        return int(database.value("SELECT writes FROM lease"))

    def read() -> Position:
        queue = readers.get("all").queue
        return queue.position(queue.covered)

    written, saved = writes(), store.saves
    with closing(LeaseTable(database.settings)) as lease:
        for _ in range(3):
            before, saves = read(), store.saves
            lease.renew(HOLDER, 1, 3600)
            await until(lambda: read().seq > before.seq, "the renewal is read")  # noqa: B023
            await until(lambda: store.saves > saves, "its position is handed to the store")  # noqa: B023
    assert store.saves > saved and writes() == written
    answer = await poll(readers, "all", number, end)
    assert answer["transactions"] == 0
    await clients.stop()
    await thread.close()
    store.close()
    assert errors == []
