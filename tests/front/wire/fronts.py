"""Runs a listener in a thread with its own event loop, and a handler that answers a few statements."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from dispatcher.access.listening import open_sockets
from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.errors import WireError, error_packet, unknown_command
from dispatcher.front.wire.listener import FrontListener
from dispatcher.front.wire.login import FrontLogin, LoginRules
from dispatcher.front.wire.packets import Command
from dispatcher.front.wire.passwords import PasswordKey
from dispatcher.front.wire.result_set import (
    AnswerColumn,
    ColumnKind,
    ok_packet,
    text_result_set,
)
from dispatcher.yaml_settings.section import HostPort

HOST = "127.0.0.1"
VERSION = "9.7.4"
USER, SECRET = "reader", "secret-of-the-reader"
DEADLINE_S = 20.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
KEY = PasswordKey()

COLUMNS = (
    AnswerColumn("user"),
    AnswerColumn("database"),
    AnswerColumn("tls", ColumnKind.INTEGER),
    AnswerColumn("large", ColumnKind.UNSIGNED),
    AnswerColumn("bytes", ColumnKind.BYTES),
    AnswerColumn("text"),
)
LARGE, BYTES, TEXT = 2**64 - 1, b"\x00\xff\xfe", "größer 🐬 " * 60

Result = TypeVar("Result")
Serve = Callable[[Channel, FrontLogin], Awaitable[None]]


async def answer(channel: Channel, login: FrontLogin) -> None:
    """Answer commands until the client quits."""
    while True:
        command = await channel.read_command(1 << 16, DEADLINE_S)
        if command[0] == Command.QUIT:
            return
        channel.send(_answer(command, login))
        await channel.drain(DEADLINE_S)


def _answer(command: bytes, login: FrontLogin) -> list[bytes]:
    if command[0] in (Command.PING, Command.INIT_DB):
        return [ok_packet()]
    if command[0] != Command.QUERY:
        return [error_packet(unknown_command(), login.capabilities)]
    statement = command[1:].decode().lower()
    if (
        statement == "select $$"
    ):  # MySQL's client asks what the server does with this, and expects an error
        return [error_packet(WireError(1064, "syntax"), login.capabilities)]
    if statement.startswith("select"):
        row = (login.user, login.database, int(login.tls), LARGE, BYTES, TEXT)
        return text_result_set(COLUMNS, [row, (None,) * 6], login.capabilities)
    if statement.startswith("refuse"):
        error = WireError(1235, f"not supported: {statement}")
        return [error_packet(error, login.capabilities)]
    return [ok_packet()]


@dataclass
class Front:
    """A running listener. `wrong`: the users that have sent a wrong password, and their addresses; `failures`: errors
    that the loop, the handler and the log have reported. No client may cause such an error."""

    loop: asyncio.AbstractEventLoop
    listener: FrontListener
    port: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(DEADLINE_S)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true. It is evaluated on the event loop."""

        async def poll() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():  # noqa: ASYNC110 - any condition
                    await asyncio.sleep(0.002)

        self.call(poll())


def rules(
    secrets: Callable[[str], Sequence[str] | None] | None = None, **changes: Any
) -> LoginRules:
    """Returns login rules for the user USER with the password SECRET."""

    async def nothing(*_: object) -> None:
        pass

    known = secrets or (lambda user: ("another secret", SECRET) if user == USER else ())
    given = LoginRules(lambda: VERSION, known, nothing, nothing, key=KEY)
    return replace(given, **changes)


def server_context(folder: Path) -> ssl.SSLContext:
    """Returns the TLS context of a server with the files of `make_certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


class _Recorder(logging.Handler):
    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        self._failures.append(self.format(record))


@contextmanager
def running(
    loop_name: str,
    login_rules: LoginRules | None = None,
    serve: Serve = answer,
    *,
    connections_max: int = 100,
) -> Iterator[Front]:
    """Runs a front until the block ends. Asserts at the end that no task is left, and that no error was reported."""
    loop = LOOPS[loop_name]()
    thread = threading.Thread(target=loop.run_forever)
    failures: list[str] = []
    given = login_rules or rules()
    wrong: list[tuple[str, str]] = []

    async def note_wrong(user: str, host: str) -> None:
        wrong.append((user, host))
        await given.wrong(user, host)

    listener = FrontListener(
        replace(given, wrong=note_wrong),
        serve,
        lambda error: failures.append(repr(error)),
        connections_max=connections_max,
    )
    front = Front(loop, listener, wrong=wrong, failures=failures)
    loop.set_exception_handler(lambda _, context: failures.append(repr(context)))
    recorder = _Recorder(failures)
    logging.getLogger("asyncio").addHandler(recorder)
    thread.start()
    sockets = open_sockets(HostPort(host=HOST, port=0), "front.listen")
    try:
        front.port = front.call(listener.listen(sockets))
        yield front
        front.call(listener.close(grace_s=0.1))
        front.until(lambda: len(asyncio.all_tasks(loop)) == 1)
        assert listener.counts.open == listener.counts.waiting == 0
        assert failures == []
    finally:
        logging.getLogger("asyncio").removeHandler(recorder)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
