"""A client as the status page draws it: its connection, its dispatchers, and the consumers that are attached to each
dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.status import PHASE_STATES, dispatcher_name


def connection_view(
    client: Client, rate: Callable[[Dispatcher], tuple[float, float]]
) -> dict[str, Any]:
    """Returns what the status page draws of a client. `rate`: returns the events and bytes that a dispatcher reads per
    second. Two clients may have the same `name`."""
    main = client.main
    return {
        "name": client.label,
        "merges": client.merges,
        "consumers": list(client.consumers),
        "dispatchers": [
            _dispatcher_view(client, dispatcher, rate(dispatcher), main=dispatcher is main)
            for dispatcher in sorted(client.dispatchers.values(), key=lambda d: (d is not main, d.number))
        ],
    }  # fmt: skip


def _dispatcher_view(
    client: Client, dispatcher: Dispatcher, rate: tuple[float, float], *, main: bool
) -> dict[str, Any]:
    events, bytes_ = rate
    read = dispatcher.read
    return {
        "name": dispatcher_name(client, dispatcher),
        "main": main,
        "state": PHASE_STATES[dispatcher.phase],
        "consumers": dispatcher.consumers,
        "mysql_binlog_name": read.file if read else "",
        "mysql_binlog_pos": read.offset if read else 0,
        "events_read_per_sec": round(events, 1),
        "bytes_read_per_sec": round(bytes_, 1),
        "reconnects": dispatcher.reconnects,
        "last_error": str(dispatcher.error) if dispatcher.error else None,
    }
