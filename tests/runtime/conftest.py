"""A server, a state store and the clients of a daemon, all in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dispatcher.dispatch.values.executed_position import Mode
from tests.support.event_encoder import LogWriter
from tests.support.fake_clients import Daemon, until
from tests.support.fake_server import Server
from tests.support.fake_source import FakeSource, write
from tests.support.fake_state import FakeState


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter()
    write(log, "a", 3)
    return log


@pytest.fixture
def source(log: LogWriter) -> FakeSource:
    return FakeSource(Server(log, Mode.GTID))


@pytest.fixture
def state() -> FakeState:
    return FakeState()


@pytest.fixture
async def daemon(source: FakeSource, state: FakeState) -> AsyncIterator[Daemon]:
    daemon = Daemon(source, state)
    yield daemon
    source.release()
    state.release()
    await daemon.stop()
    await until(lambda: not any(source.busy.values()), "everything is closed in the end")
    assert source.overlaps == 0 and daemon.errors == []
