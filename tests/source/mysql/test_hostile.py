"""A malformed answer or dump is reported as an error of that server, and takes no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import UUID

import pytest

from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.login import Endpoint
from dispatcher.source.mysql import log_probe
from dispatcher.source.mysql.source import ServerSource
from dispatcher.source.protocols import ViewRequest
from dispatcher.stream.batch import Closed
from dispatcher.stream.routes import Routes
from tests.support.examined import examine_hosts
from tests.support.hostile_answers import ANSWERS, DUMPS, dumps
from tests.support.hostile_server import Answers, HostileServer, Session

NOT_UNDERSTOOD = (ErrorKind.CONNECT_FAILED, ErrorKind.CONNECTION_LOST)
DAMAGED = (*NOT_UNDERSTOOD, ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time-out for a server that announces bytes and does not send them."""
    monkeypatch.setattr(log_probe, "TIMEOUT_S", 1)


@contextmanager
def hostile(answers: Answers) -> Iterator[ServerSource]:
    with HostileServer(answers) as server:
        endpoint = Endpoint("127.0.0.1", server.port, "repl", "secret 17")
        yield ServerSource([endpoint], UUID(int=7), "source", heartbeat_s=1)


def view(source: ServerSource) -> None:
    with closing(source.open(1)) as opened:
        opened.view(ViewRequest())


def read(source: ServerSource) -> None:
    """Read the log by GTIDs until an error."""

    async def batches() -> None:
        while True:
            for batch in await stream.batches():
                if isinstance(batch, Closed):
                    raise stream.ended(batch)

    with closing(source.open(1)) as opened:
        stream = opened.dump(Mode.GTID, make_executed(Mode.GTID, "", "", 4), Routes(), 1 << 20)
        with closing(stream):
            asyncio.run(asyncio.wait_for(batches(), 60))


def test_a_server_that_answers_correctly_is_read() -> None:
    with hostile(Answers()) as source:
        view(source)
        known, _ = source.survey(ViewRequest(["binlog.000001"]))
    assert known.created == {"binlog.000001": 1_700_000_001}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_malformed_answer_is_an_error_of_the_server(name: str) -> None:
    with hostile(ANSWERS[name]()) as source:
        with pytest.raises(BinlogError) as caught:
            view(source)
        assert caught.value.kind in NOT_UNDERSTOOD
        assert source.label in caught.value.where


@pytest.mark.parametrize("name", ["a word for a number", "an empty packet"])
def test_check_reports_a_malformed_answer(name: str) -> None:
    with hostile(ANSWERS[name]()) as source:
        ((label, told),) = examine_hosts(source.endpoints)
        assert label == source.label and told.kind in NOT_UNDERSTOOD


def test_the_error_names_the_statement() -> None:
    with hostile(ANSWERS["a negative size"]()) as source, pytest.raises(BinlogError) as caught:
        source.survey(ViewRequest())
    assert "SHOW BINARY LOGS" in caught.value.what and "not understood" in caught.value.what


@pytest.mark.parametrize("name", DUMPS)
def test_a_malformed_dump_by_file_is_an_error_of_the_server(name: str) -> None:
    with hostile(dumps(DUMPS[name], by_file=True)) as source:
        for ask in (view, lambda source: source.survey(ViewRequest(["binlog.000001"]))):
            with pytest.raises(BinlogError) as caught:
                ask(source)
            assert caught.value.kind in DAMAGED


@pytest.mark.parametrize("name", DUMPS)
def test_a_malformed_stream_is_an_error_of_the_server(name: str) -> None:
    with hostile(dumps(DUMPS[name], by_file=False)) as source:
        with pytest.raises(BinlogError) as caught:
            read(source)
        assert caught.value.kind in DAMAGED


@pytest.mark.parametrize("read_it", [view, read], ids=["by file", "as a stream"])
def test_an_event_of_4_gib_is_refused_at_its_header(
    read_it: Callable[[ServerSource], None],
) -> None:
    sent: list[int] = []

    def count(session: Session) -> None:
        def sendall(data: bytes, send: Callable[[bytes], None] = session.sock.sendall) -> None:
            send(data)
            sent.append(len(data))

        session.raw = sendall  # type: ignore[method-assign]
        DUMPS["an event of 4 GiB"](session)

    with (
        hostile(dumps(count, by_file=read_it is view)) as source,
        pytest.raises(BinlogError, match="4294967295 bytes") as caught,
    ):
        read_it(source)
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT
    assert sum(sent) <= 2 << 24  # at most the sockets' buffers, and the packet that has begun
