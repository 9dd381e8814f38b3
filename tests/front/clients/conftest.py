"""The recorded history of each kind of server, and a front before it, shared by the tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.front.clients.fronts import Fronts
from tests.front.clients.judging import PASSWORD, SERVER_OPTIONS, USER, Recorded, record
from tests.front.clients.readings import Endpoint
from tests.servers import Kind, Server, ServerUnavailable, start_server

SOURCES: tuple[Kind, ...] = ("mysql97", "mariadb118")


@pytest.fixture(scope="session")
def recorded_of() -> Iterator[Callable[[Kind], Recorded]]:
    """Returns the history on a server of a kind, which is written when it is first asked for."""
    made: dict[Kind, Recorded] = {}
    with ExitStack() as stack:

        def of(kind: Kind) -> Recorded:
            if kind not in made:
                try:
                    server = stack.enter_context(start_server(kind, *SERVER_OPTIONS))
                except ServerUnavailable as failure:
                    pytest.fail(str(failure), pytrace=False)
                server.add_user(USER, PASSWORD)
                made[kind] = record(server)
            return made[kind]

        yield of


@pytest.fixture(params=SOURCES)
def recorded(request: pytest.FixtureRequest, recorded_of: Callable[[Kind], Recorded]) -> Recorded:
    return recorded_of(request.param)


@pytest.fixture(scope="session")
def front_of(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Server], Endpoint]]:
    """Returns the front of a daemon that reads a server. Its consumer reads the first database of the history."""
    fronts = Fronts(tmp_path_factory.mktemp("fronts"))
    yield fronts.of
    fronts.close()
