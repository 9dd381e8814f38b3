"""The history behind the plots, and the picture of a client."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import dispatcher
from dispatcher.dispatch.topology import connection_view
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.runtime.live_status import LiveStatus
from dispatcher.runtime.status.history import SAMPLES_MAX, Sample, StatusHistory
from dispatcher.runtime.status.timeline import KINDS, Timeline
from tests.support.fake_clients import Daemon, declared, open_session, poll, position, until


class Lines:
    """A Logger that keeps the events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def log(self, level: int, event: str, **fields: object) -> None:  # noqa: ARG002
        self.events.append(event)


def fill(history: StatusHistory, now_s: float, **values: float) -> None:
    samples = ((name, Sample(value, 0.0, 1.0, 2.0)) for name, value in values.items())
    for _ in history.fill(now_s, samples):
        pass


def test_the_history_keeps_the_newest_samples_in_order() -> None:
    history = StatusHistory()
    assert history.of("c")["time"] == []
    for now in range(SAMPLES_MAX + 7):
        fill(history, float(now), c=now)
    of = history.of("c")
    assert of["time"] == of["bytes"] == [float(now) for now in range(7, SAMPLES_MAX + 7)]
    assert of["delivered_bytes_per_sec"] == [1.0] * SAMPLES_MAX


def test_the_history_forgets_consumers_that_go() -> None:
    history = StatusHistory()
    fill(history, 1.0, stays=1, goes=1)
    fill(history, 2.0, stays=2, comes=2)
    assert history.of("goes")["time"] == []
    assert history.of("comes") == {
        "time": [2.0], "bytes": [2.0], "lag_seconds": [0.0], "delivered_bytes_per_sec": [1.0],
        "dispatcher_bytes_read_per_sec": [2.0],
    }  # fmt: skip
    assert history.of("stays")["bytes"] == [1.0, 2.0]


async def test_the_picture_of_a_client(daemon: Daemon) -> None:
    readers = await daemon.start(declared("c"), declared("other", "b"))
    await daemon.until_queued("c", "other")
    (client,) = daemon.clients.clients()
    view = connection_view(client, lambda _: (1.0, 2.0))
    assert view["consumers"] == ["c", "other"]
    (dispatcher,) = view["dispatchers"]
    assert (dispatcher["name"], dispatcher["main"], dispatcher["state"]) == (
        "c:1",
        True,
        "streaming",
    )
    assert dispatcher["consumers"] == ["c", "other"]
    assert dispatcher["mysql_binlog_pos"] == daemon.row("c")["dispatcher_mysql_binlog_pos"]

    live = LiveStatus(lambda: readers, daemon.clients.clients, Timeline(Lines()))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    await live.sample()
    assert live.history("c")["bytes"] == [daemon.row("c")["bytes"]] != [0.0]
    await readers.acknowledge("c", session, end)
    assert live.row("c")["acknowledged"] == end.as_dict()
    assert live.row("c").keys() == daemon.row("c").keys()
    with pytest.raises(UserError) as caught:
        live.row("unknown")
    assert caught.value.kind is ErrorKind.UNKNOWN_CONSUMER


async def test_the_timeline_tells_a_changed_consumer_from_a_removed_one(daemon: Daemon) -> None:
    await daemon.start(declared("c"), declared("goes"))
    await daemon.declare(declared("c", "a", "b"))
    told = [(event.kind, event.consumers) for event in daemon.timeline.events()]
    assert [one for one in told if one[0] in ("changed", "removed")] == [
        ("removed", ("goes",)),
        ("changed", ("c",)),
    ]


async def test_a_poll_that_is_cancelled_leaves_no_reader(daemon: Daemon) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60))  # noqa: TID251
    await until(lambda: daemon.row("c")["acknowledgement_age_seconds"] is not None, "it waits")
    assert daemon.row("c")["reader"] == "waiting"
    waiting.cancel()
    await until(lambda: daemon.row("c")["reader"] == "gone", "the reader is gone")


def test_the_timeline_passes_every_line_on() -> None:
    lines = Lines()
    timeline = Timeline(lines)
    for event in ("streaming", "paused", "detached"):
        timeline.log(20, event, client="repl@db1:3306", consumer="c")
    assert lines.events == ["streaming", "paused", "detached"]
    assert [event.kind for event in timeline.events()] == ["connected", "detached"]


def test_every_event_of_the_timeline_is_one_of_the_log_and_has_a_colour() -> None:
    root = Path(dispatcher.__file__).parent
    files = [*root.glob("*.py")]
    for folder in ("dispatch", "leadership", "runtime", "state", "terms"):
        files += (root / folder).rglob("*.py")
    code = "".join(file.read_text(encoding="utf-8") for file in files if file.name != "timeline.py")
    assert [event for event in KINDS if f'"{event}"' not in code] == []
    script = (root / "api/static/timeline.mjs").read_text(encoding="utf-8")
    tones = re.findall(r"\b([a-z]+): \"(?:good|calm|warn|bad)\"", script)
    assert sorted(tones) == sorted({*KINDS.values()})
