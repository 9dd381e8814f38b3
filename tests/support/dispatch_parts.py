"""Makes consumers and dispatchers at given positions of one log, for tests of single modules of the rules."""

from __future__ import annotations

from typing import Any

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.tables.versions import Versions
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ConsumerSpec, Earliest, Progress
from dispatcher.model.position import Position
from dispatcher.stream.routes import Routes

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FILES = (("binlog.000007", 1000), ("binlog.000008", 500), ("binlog.000009", 300))
CREATED = {name: 100 + n for n, (name, _) in enumerate(FILES)}


def gtids(last: int) -> str:
    """Returns the GTID set of the server's transactions 1 to `last`."""
    return f"{SERVER}:1-{last}" if last else ""


def at(last: int, file: str = "binlog.000009", offset: int = 100) -> ExecutedPosition:
    return make_executed(Mode.GTID, gtids(last), file, offset)


def stored_at(last: int, *, server: str = SERVER, epoch: int = 0) -> Position:
    return at(last).position(server, epoch)


def view(executed: int = 30, purged: int = 0, **more: Any) -> ServerView:
    """Returns the answers of a server with MySQL's GTIDs. `executed`, `purged`: the last transaction of each set."""
    fields: dict[str, Any] = {
        "server": SERVER,
        "mode": Mode.GTID,
        "executed": gtids(executed),
        "purged": gtids(purged),
        "files": FILES,
        "file": FILES[-1][0],
        "offset": FILES[-1][1],
        "created": CREATED,
    }
    return ServerView(**fields | more)


def declared(
    name: str = "shop", *databases: str, progress: Progress | None = None, **more: Any
) -> Consumer:
    """A consumer without a position."""
    queue_bytes_max = more.pop("queue_bytes_max", 1 << 20)
    start = more.pop("start", Earliest())
    spec = ConsumerSpec(name, databases or (name,), None, queue_bytes_max, start, **more)
    return Consumer(spec, progress)


def consumer_at(last: int, name: str = "shop", *databases: str, **more: Any) -> Consumer:
    """A consumer whose queue has the transactions 1 to `last`."""
    consumer = declared(name, *databases, **more)
    consumer.queue.reset(SERVER, Mode.GTID, 0, at(last), CREATED["binlog.000009"])
    consumer.started = True
    return consumer


def connecting(*consumers: Consumer, number: int = 1) -> Dispatcher:
    dispatcher = Dispatcher(number, "repl@db1:3306", Routes(), Versions())
    for consumer in consumers:
        dispatcher.attach(consumer)
    dispatcher.connect()
    return dispatcher


def streaming(*consumers: Consumer, number: int = 1, now: float = 0.0) -> Dispatcher:
    """Returns a dispatcher that streams from the positions of its consumers on."""
    dispatcher = connecting(*consumers, number=number)
    dispatcher.view = view()
    dispatcher.start_dump(dispatcher.view, now)
    return dispatcher
