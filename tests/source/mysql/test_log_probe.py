"""What a short dump says about an offset of the log."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from typing import Any, cast

import pymysql
import pytest

from dispatcher.binlog.event.header import parse_format_description
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.values.server_view import Boundary
from dispatcher.front.dump import made_events
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.error_map import client_error
from dispatcher.mysql.server_facts import BinlogFile, ServerFacts
from dispatcher.source.mysql.log_probe import ServerLog
from tests.support.event_encoder import event, format_description

FILE, OFFSET, SERVER_ID = "binlog.000005", 5000, 1
FACTS = ServerFacts(
    "8.4.3", "mysql", "3e11fa47-71ca-11e1-9e33-c80aa9429562", SERVER_ID, True, "ROW", "FULL", "MINIMAL", "CRC32", "ON",
    "", "", "", (BinlogFile(FILE, 9000),), FILE, 9000, None, 0,
)  # fmt: skip


# As a server sends it at the beginning of a dump from within a file.
FORMAT = made_events.format_description(
    parse_format_description(format_description()),
    begins_file=False,
    has_place=False,
    checksum=True,
)


def rotate(server_id: int = SERVER_ID) -> bytes:
    body = OFFSET.to_bytes(8, "little") + FILE.encode()
    return event(EventType.ROTATE, body, log_pos=0, server_id=server_id)


class Dump:
    """A dump that sends these events, and then fails."""

    def __init__(self, *sent: bytes, fails: BinlogError | None = None) -> None:
        self._sent, self._fails = sent, fails

    def events(self) -> Generator[list[bytes], None, None]:
        yield list(self._sent)
        if self._fails is not None:
            raise self._fails


class Log(ServerLog):
    def __init__(self, dump: Dump) -> None:
        super().__init__(cast("Any", None), FACTS)
        self._of_test = dump
        self._endpoint = cast("Any", type("Endpoint", (), {"label": "db:3306"}))

    def _dump(self, name: str, offset: int) -> Any:
        del name, offset
        return nullcontext(self._of_test)


def error(text: str) -> BinlogError:
    return client_error(pymysql.err.OperationalError(1236, text), where="db:3306")


def test_bytes_that_are_no_event_are_no_boundary() -> None:
    fails = error("bogus data in log event; the first event 'binlog.000005' at 5000")
    log = Log(Dump(rotate(), FORMAT, fails=fails))
    _, boundaries = log.probe([(FILE, OFFSET)])
    assert boundaries == {(FILE, OFFSET): Boundary(whole=False)}


@pytest.mark.parametrize(
    "text",
    [
        "memory allocation failed reading log event",
        "I/O error reading log event",
        "Binary log is not open",
        "Could not open log file",
        "unknown error reading log event on the source",
    ],
)
def test_a_fault_of_the_server_says_nothing_about_the_offset(text: str) -> None:
    with pytest.raises(BinlogError, match=text):
        Log(Dump(rotate(), FORMAT, fails=error(text))).probe([(FILE, OFFSET)])


def test_a_dump_of_another_server_than_the_facts_is_refused() -> None:
    with pytest.raises(BinlogError, match="leads to the server 2") as caught:
        Log(Dump(rotate(SERVER_ID + 1), FORMAT)).probe([(FILE, OFFSET)])
    assert caught.value.kind is ErrorKind.CONNECTION_LOST
