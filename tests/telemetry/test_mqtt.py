"""Messages that wait for the broker, topics and bodies of messages, and the events that are made from lines of the
log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatcher.telemetry.bodies import STATUS_KEYS, Bodies
from dispatcher.telemetry.lifecycle import AnnouncingLog, LifecycleEvent
from dispatcher.telemetry.mqtt.topics import Topics
from dispatcher.telemetry.outbox import MessageKind, Outbox
from tests.support.hostile_text import HOSTILE, acts

EVENT, STATUS, COMMIT = MessageKind.EVENT, MessageKind.STATUS, MessageKind.COMMIT


def taken(outbox: Outbox, count: int = 100) -> list[tuple[str, bytes]]:
    return [(message.key, message.body) for message in outbox.take(count)]


def test_of_statuses_the_newest_is_sent_once() -> None:
    outbox = Outbox(10)
    for body in (b"1", b"2", b"2"):
        outbox.put(STATUS, "a", body)
    assert taken(outbox) == [("a", b"2")]
    outbox.put(STATUS, "a", b"2")
    assert taken(outbox) == []
    outbox.put(STATUS, "a", b"")
    assert outbox.topics() == set() and taken(outbox) == [("a", b"")]


def test_the_oldest_commits_and_events_are_dropped_and_counted() -> None:
    outbox = Outbox(2)
    for n in range(5):
        outbox.put(COMMIT, "c", b"%d" % n)
        outbox.put(EVENT, "e", b"%d" % n)
    assert outbox.dropped == {EVENT: 3, STATUS: 0, COMMIT: 3}
    assert outbox.waiting() == 4
    assert taken(outbox) == [("e", b"3"), ("e", b"4"), ("c", b"3"), ("c", b"4")]


def test_what_was_not_delivered_is_sent_again_first_unless_there_is_something_newer() -> None:
    outbox = Outbox(2)
    for body in (b"1", b"2"):
        outbox.put(EVENT, "e", body)
    outbox.put(STATUS, "s", b"old")
    outbox.put(STATUS, "t", b"same")
    messages = outbox.take(10)
    outbox.put(STATUS, "s", b"new")
    outbox.put(EVENT, "e", b"3")
    outbox.put_back(messages)
    # There is room for one of the two events; the older one is dropped.
    assert outbox.dropped[EVENT] == 1
    assert sorted(taken(outbox)) == [("e", b"2"), ("e", b"3"), ("s", b"new"), ("t", b"same")]


def test_after_a_new_connection_all_statuses_are_sent_again() -> None:
    outbox = Outbox(2)
    outbox.put(STATUS, "a", b"1")
    outbox.put(STATUS, "b", b"1")
    outbox.take(10)
    outbox.send_all_statuses()
    assert taken(outbox) == [("a", b"1"), ("b", b"1")]
    outbox.clear_all_statuses()
    assert taken(outbox) == [("a", b""), ("b", b"")] and outbox.topics() == set()


def test_each_message_wakes_the_publisher() -> None:
    outbox, calls = Outbox(2), []
    outbox.on_message = lambda: calls.append(outbox.waiting())
    outbox.put(EVENT, "e", b"1")
    outbox.put(STATUS, "s", b"1")
    assert calls == [1, 2]


@pytest.mark.parametrize(
    ("event", "topic"),
    [
        (LifecycleEvent("started", 0), "p/events/started"),
        (LifecycleEvent("failed", 0, "r@db:1", "shop"), "p/consumers/shop/events/failed"),
        (LifecycleEvent("merged", 0, "r@db1:1,db2:2"), "p/connections/r@db1:1,db2:2/events/merged"),
        (LifecycleEvent("ended", 0, "files:/a/b+#"), "p/connections/files:%2Fa%2Fb%2B%23/events/ended"),
    ],
)  # fmt: skip
def test_topics(event: LifecycleEvent, topic: str) -> None:
    assert Topics("p").event(event) == topic


def test_a_body_has_no_secret_and_says_which_daemon_made_it() -> None:
    bodies = Bodies("id-1", ["geheim"])
    details = {"error": "login with geheim failed", "retry_s": 0.5}
    event = LifecycleEvent("disconnected", 1.5, "repl@db1:3306", details=details)
    body = bodies.event(event)
    assert json.loads(body) == {
        "event": "disconnected",
        "at": "1970-01-01T00:00:01.500000Z",
        "connection": "repl@db1:3306",
        "details": {"error": "login with [secret] failed", "retry_s": 0.5},
        "daemon": "id-1",
    }
    assert bodies.is_own(body) and not Bodies("id-2", ()).is_own(body)
    assert not bodies.is_own(b"online") and not bodies.is_own(b"[1]")


def test_a_body_holds_foreign_text_exactly_and_as_escapes_of_json() -> None:
    row = dict.fromkeys(STATUS_KEYS.values()) | {"last_error": HOSTILE}
    body = Bodies("id-1", ()).status(row)
    assert json.loads(body)["last_error"] == HOSTILE and acts(body.decode()) == []


def test_a_status_tells_the_faults_of_consumer_and_store_without_secrets() -> None:
    row = dict.fromkeys(row_key for row_key in STATUS_KEYS.values())
    bodies = Bodies("id-1", ["geheim"])
    healthy = json.loads(bodies.status(row))
    assert healthy["last_error"] is healthy["state_store_error"] is None
    row |= {"last_error": "no login with geheim", "state_store_error": "disk full in /geheim"}
    faulty = json.loads(bodies.status(row))
    assert faulty["last_error"] == "no login with [secret]"
    assert faulty["state_store_error"] == "disk full in /[secret]"


class LogBehind:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def log(self, level: int, event: str, **fields: Any) -> None:  # noqa: ARG002
        self.lines.append((event, fields))


@pytest.fixture
def announced() -> tuple[AnnouncingLog, LogBehind, list[LifecycleEvent]]:
    behind, events = LogBehind(), list[LifecycleEvent]()
    return AnnouncingLog(behind, events.append), behind, events


def kinds(events: list[LifecycleEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.consumer) for event in events]


def test_a_line_of_the_log_makes_an_event(
    announced: tuple[AnnouncingLog, LogBehind, list[LifecycleEvent]],
) -> None:
    log, behind, events = announced
    log.log(20, "detached", client="r@db", consumer="shop", held_bytes=7)
    log.log(20, "looked up tables", client="r@db", found=3)
    assert [event for event, _ in behind.lines] == ["detached", "looked up tables"]
    (event,) = events
    assert (event.connection, event.consumer, event.details) == ("r@db", "shop", {"held_bytes": 7})
    log.daemon("started", version="1")
    assert kinds(events[1:]) == [("started", "")]


def test_a_lost_connection_is_announced_once_and_so_is_the_next_one(
    announced: tuple[AnnouncingLog, LogBehind, list[LifecycleEvent]],
) -> None:
    log, behind, events = announced
    place = {"client": "r@db", "dispatcher": 1}
    log.log(20, "streaming", **place, consumers=["a"])
    for _ in range(3):
        log.log(30, "not connected", **place, error="refused")
    log.log(30, "not connected", client="r@db", dispatcher=2, error="refused")
    log.log(20, "streaming", **place, consumers=["a"])
    log.log(20, "streaming", **place, consumers=["a"])
    assert len(behind.lines) == 7
    expected = ["connected", "disconnected", "disconnected", "reconnected", "connected"]
    assert [event.kind for event in events] == expected


def test_a_merge_says_who_has_caught_up(
    announced: tuple[AnnouncingLog, LogBehind, list[LifecycleEvent]],
) -> None:
    log, _, events = announced
    log.log(20, "merged", client="r@db", consumers=["a"], caught_up=["b", "c"])
    assert kinds(events) == [("merged", ""), ("caught_up", "b"), ("caught_up", "c")]
