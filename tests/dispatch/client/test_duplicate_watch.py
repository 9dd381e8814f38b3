"""The client notices another daemon that runs with a copy of the state."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.dispatch import status
from dispatcher.dispatch.client.duplicate_watch import CONFIRMED_S
from dispatcher.dispatch.messages.effects import Effect, Note
from dispatcher.dispatch.messages.events import ServerPolled
from dispatcher.model.errors import ErrorKind
from tests.dispatch.plays import alone, small_log
from tests.support.simulation import World

OTHER = "connection 7 from db9:51234"


def poll(play: World, *duplicates: str) -> list[Effect]:
    play.client.offsets_to_poll()
    view = replace(play.server.view(), duplicates=duplicates)
    effects = play.client.step(ServerPolled(view, None), play.now)
    return [effect for effect in effects if isinstance(effect, Note)]


def faults(play: World) -> tuple[str | None, str | None]:
    row = status.status_row(
        play.client, play.client.consumers["a"], lambda _: (0.0, 0.0), 0.0, play.now
    )
    return row["last_error_kind"], row["last_error"]


def test_a_duplicate_that_stays_is_a_fault_until_it_has_gone() -> None:
    play = alone(small_log())
    play.connect()
    assert poll(play, OTHER) == []
    play.now += CONFIRMED_S - 1
    assert poll(play, OTHER) == []
    assert faults(play) == (None, None)
    play.now += 1
    (note,) = poll(play, OTHER)
    assert isinstance(note, Note)
    assert (note.level, note.event) == ("warning", "another daemon has this state")
    kind, error = faults(play)
    assert kind == ErrorKind.DUPLICATE_SERVER_UUID.name
    assert error is not None and OTHER in error and "KILL" in error
    assert play.client.dispatchers[1].open, "nothing stops"
    (note,) = poll(play)
    assert isinstance(note, Note) and note.level == "info"
    assert faults(play) == (None, None)


def test_what_a_process_has_left_at_the_server_for_a_moment_is_no_duplicate() -> None:
    play = alone(small_log())
    play.connect()
    poll(play, OTHER)
    play.now += CONFIRMED_S - 1
    assert poll(play) == []
    play.now += CONFIRMED_S
    assert poll(play, OTHER) == []
