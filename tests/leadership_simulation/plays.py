"""Plays written as text: what happens to the daemons and their database, and what each daemon's rules answer.

A file of `plays/` begins with the rule that it shows; see `tests.simulation.scripts` for its lines. Regular reads and
renewals that change nothing are left out. The moves, where HOST is a, b or c:

    lease SECONDS            how long a lease lasts; first
    start HOST               a daemon starts
    kill HOST, end HOST      SIGKILL, SIGTERM
    stop HOST SECONDS        SIGSTOP, and SIGCONT after that time
    cut HOST SECONDS         it does not reach the database
    crash SECONDS            the database crashes, and starts after that time. `crash SECONDS newest`: it loses the
                             commits of its newest second
    clock SECONDS            somebody sets the clock of the database
    write N                  the source commits transactions; a reader acknowledges them over all daemons
    wait SECONDS             time passes
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from dispatcher.leadership.messages import Effect, Event, ReadLease, Renew, SendRequest
from tests.leadership_simulation.transcript import Transcript
from tests.leadership_simulation.world import World
from tests.simulation.scripts import parsed

PLAYS = Path(__file__).parent / "plays"


class _Even(random.Random):
    """Chooses the middle, so that clocks are right and each message takes as long as the others."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def random(self) -> float:
        return 0.5


class _Brief(Transcript):
    """Leaves out regular requests, and answers that change nothing."""

    def stepped(self, now: float, name: str, event: Event, effects: Sequence[Effect]) -> None:
        shown = [effect for effect in effects if not _is_regular(effect)]
        if shown:
            super().stepped(now, name, event, shown)


def _is_regular(effect: Effect) -> bool:
    return isinstance(effect, SendRequest) and isinstance(effect.request, ReadLease | Renew)


class Stage:
    def __init__(self) -> None:
        self._transcript = _Brief(kept=True)
        self._world: World | None = None

    def move(self, text: str) -> list[str]:
        verb, arguments, _ = parsed(text)
        lines = self._transcript.lines
        assert lines is not None
        shown = len(lines)
        if verb == "lease":
            seconds = float(arguments[0])
            self._world = World(_Even(), self._transcript, daemons=3, lease_s=seconds)
            self._world.add_reader("reader", checkpoint=True)
        else:
            assert self._world is not None, "the first move is lease"
            self._make(self._world, verb, arguments)
        return lines[shown:]

    def _make(self, world: World, verb: str, arguments: list[str]) -> None:
        match verb, *arguments:
            case "start", host:
                world.start(host)
                world.run(0.3)
            case "kill", host:
                world.kill(host, back_after_s=None)
            case "end", host:
                world.hand_over(host)
                world.run(1.0)
            case "stop", host, seconds:
                world.stop(host, float(seconds))
            case "cut", host, seconds:
                world.cut_database(host, float(seconds))
            case "crash", seconds, *what:
                world.crash_database(float(seconds), loses=what == ["newest"])
            case "clock", seconds:
                world.set_database_clock(float(seconds))
            case "write", count:
                world.write(int(count))
                world.run(1.0)
                (reader,) = world.readers
                stored = world.database.contents.acknowledged.get(reader.consumer, 0)
                world.say(f"the reader has {reader.received}, and {stored} are acknowledged")
            case "wait", seconds:
                world.run(float(seconds))
            case _:
                raise ValueError("no such move")
