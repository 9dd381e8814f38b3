"""The loop of the command `read`: what is acknowledged, and when."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.reader.change_lines import ChangeLines
from dispatcher.reader.change_sources import DaemonConsumer, ReadRange
from dispatcher.reader.outputs import CommandOutput, LineOutput, Lines, StreamOutput
from dispatcher.reader.read import copy_changes
from dispatcher.runtime.consumer_sessions import NOT_REACHED
from tests.support.rows_encoder import Delivered


def log(*queries: str) -> bytes:
    delivered = Delivered()
    for query in queries:
        delivered.ddl(query)
    return delivered.bytes()


def created(number: int) -> str:
    return f"CREATE TABLE t{number} (id INT)"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(_seconds: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", none)


class Ranges:
    """A source of some ranges. `events`: what happened, in order."""

    lower_case_table_names = 0

    def __init__(self, *data: bytes) -> None:
        self._left = list(data)
        self.events: list[str] = []

    async def read(self) -> ReadRange:
        self.events.append("read")
        data = self._left.pop(0)
        return ReadRange(data, end=(0, 2 - len(self._left)), head=(0, 2))

    async def acknowledge(self) -> None:
        self.events.append("acknowledge")


class Recorded:
    def __init__(self, source: Ranges) -> None:
        self._source = source
        self.text = b""

    async def write(self, lines: Lines) -> None:
        self._source.events.append("write")
        self.text += b"".join(lines())


async def test_a_range_is_acknowledged_after_it_was_written() -> None:
    source = Ranges(log(created(1)), b"", log(created(2)))
    output = Recorded(source)
    await copy_changes(source, ChangeLines(), output, once=True)
    step = ["read", "write", "acknowledge"]
    assert source.events == [*step, "read", "acknowledge", *step]
    assert output.text.count(b"\n") == 2


class GrowingLog(Ranges):
    """Another transaction is committed during each read."""

    async def read(self) -> ReadRange:
        delivered = await super().read()
        number = self.events.count("read")
        return delivered._replace(end=(0, number), head=(0, number + 1))


async def test_once_ends_at_the_end_of_the_log_that_was_first_known() -> None:
    source = GrowingLog(*(log(created(n)) for n in range(9)))
    await copy_changes(source, ChangeLines(), Recorded(source), once=True)
    assert source.events.count("read") == 2


class Broken:
    async def write(self, _lines: Lines) -> None:
        raise BrokenPipeError


async def test_a_range_that_was_not_written_is_not_acknowledged() -> None:
    source = Ranges(log(created(1)))
    with pytest.raises(BrokenPipeError):
        await copy_changes(source, ChangeLines(), Broken(), once=True)
    assert source.events == ["read"]


async def test_the_stream_gets_whole_lines() -> None:
    stream = io.BytesIO()
    output: LineOutput = StreamOutput(stream)
    await output.write(lambda: [b"a\n", memoryview(b"b\n")])
    assert stream.getvalue() == b"a\nb\n"


async def test_a_command_gets_its_lines_again_until_it_succeeds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = f"cd {tmp_path}; cat >> got; echo x >> tries; test $(wc -l < tries) -ge 3"
    await CommandOutput(command).write(lambda: [b"1\n", b"2\n"])
    assert (tmp_path / "got").read_text() == "1\n2\n" * 3
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("ended with exit code 1; it gets the same lines again" in line for line in said)


async def test_a_command_need_not_read_everything() -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"x" * (1 << 16) for _ in range(64))

    await asyncio.wait_for(CommandOutput("exit 0").write(pieces), 30)


class Daemon:
    """Answers the calls of one consumer. `failures`: raised by the next calls of `read`; `early`: by the next calls of
    `session`."""

    def __init__(self, *failures: BinlogError, early: Sequence[BinlogError] = ()) -> None:
        self.failures, self.early = list(failures), list(early)
        self.calls: list[tuple[str, object]] = []

    def __call__(self, operation: str, body: dict[str, object]) -> object:
        self.calls.append((operation, body.get("after", body.get("position", body.get("to")))))
        match operation:
            case "resolve":
                return {"position": position(1)}
            case "session" if self.early:
                raise self.early.pop(0)
            case "session":
                return {
                    "session": 4,
                    "position": body["after"] or position(2),
                    "lower_case_table_names": None,
                }
            case "read":
                if self.failures:
                    raise self.failures.pop(0)
                answer = {
                    "end": position(3),
                    "head": position(3),
                    "lag_bytes": 0,
                    "gap": False,
                    "transactions": 1,
                }
                return answer, log(created(1))
            case _:
                return {}


def position(seq: int) -> dict[str, object]:
    return {"server": "s", "gtid": "", "file": "binlog.000001", "offset": 4, "seq": seq, "epoch": 0}


def consumer(
    daemon: Daemon, *, acknowledges: bool = True, start: str | None = None
) -> DaemonConsumer:
    return DaemonConsumer(daemon, acknowledges=acknowledges, start=start, wait_s=0)


async def test_a_consumer_acknowledges_with_the_next_call() -> None:
    daemon = Daemon()
    source = consumer(daemon)
    await source.open()
    delivered = await source.read()
    assert delivered.end == delivered.head
    await source.close()
    assert daemon.calls[-1] == ("ack", position(2))
    await source.acknowledge()
    await source.read()
    assert daemon.calls[-1] == ("read", position(3))


async def test_a_consumer_begins_at_a_place() -> None:
    daemon = Daemon()
    source = consumer(daemon, acknowledges=False, start="earliest")
    await source.open()
    await source.close()
    assert daemon.calls == [("resolve", "earliest"), ("session", position(1))]


@pytest.mark.parametrize(
    "kind", [ErrorKind.CONNECT_FAILED, ErrorKind.NOT_LEADER, ErrorKind.TOO_MANY_REQUESTS]
)
async def test_a_fault_that_passes_is_waited_for(kind: ErrorKind) -> None:
    daemon = Daemon(BinlogError(kind, "x"), BinlogError(kind, "x"))
    source = consumer(daemon)
    await source.open()
    assert (await source.read()).data
    assert [operation for operation, _ in daemon.calls].count("read") == 3


@pytest.mark.parametrize(
    "error",
    [
        UserError(ErrorKind.SESSION_FENCED, "x"),
        BinlogError(ErrorKind.POSITION_PURGED, "x"),
        UserError(ErrorKind.UNAUTHORIZED, "x"),
    ],
)
async def test_another_fault_ends_the_command(error: BinlogError) -> None:
    source = consumer(Daemon(error))
    await source.open()
    with pytest.raises(BinlogError) as raised:
        await source.read()
    assert raised.value is error


async def test_a_daemon_that_has_just_started_is_waited_for() -> None:
    early = BinlogError(ErrorKind.RANGE_UNAVAILABLE, f"503 {NOT_REACHED} (consumer c)")
    refused = BinlogError(ErrorKind.RANGE_UNAVAILABLE, "503 access denied (consumer c)")
    await consumer(Daemon(early=[early, early])).open()
    with pytest.raises(BinlogError, match="access denied"):
        await consumer(Daemon(early=[early, refused])).open()


def test_a_call_that_waits_does_not_keep_the_program_running() -> None:
    begun, released = Event(), Event()

    def wait(_: str, __: dict[str, Any]) -> None:
        begun.set()
        assert released.wait(60)

    async def cancelled() -> None:
        consumer = DaemonConsumer(wait, acknowledges=True, start=None, wait_s=20.0)
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        Thread(
            target=lambda: begun.wait(60) and loop.call_soon_threadsafe(task.cancel), daemon=True
        ).start()
        with pytest.raises(asyncio.CancelledError):
            await consumer.open()

    program = Thread(target=asyncio.run, args=(cancelled(),), daemon=True)
    program.start()
    program.join(30)
    has_ended = not program.is_alive()
    released.set()
    assert has_ended, "the program waited for the answer"
