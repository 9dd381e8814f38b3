"""Makes a history from a seed: the daemons, the faults, and the end that must be reached."""

from __future__ import annotations

import random

from tests.leadership_simulation.judge import calm_s
from tests.leadership_simulation.transcript import Transcript
from tests.leadership_simulation.world import World

FAULTS = (8, 15, 30)
FINISH_MAX_S = 120.0
_FAULTS = (
    "stop", "stop", "kill", "end", "end in calm", "cut", "cut", "noise", "noise", "source", "crash", "loss",
    "connections", "clock", "nothing", "nothing",
)  # fmt: skip


def play(seed: int, transcript: Transcript | None = None) -> World:
    """Play a seed. Raises AssertionError, or any error of the rules."""
    rng = random.Random(seed)
    daemons = rng.choice((2, 2, 3))
    lease_s = rng.choice((1.0, 4.0, 4.0, 10.0, 40.0))
    world = World(rng, transcript or Transcript(kept=False), daemons=daemons, lease_s=lease_s)
    for name in world.names:
        world.agenda.after(rng.uniform(0, 2), lambda name=name: world.start(name))  # type: ignore[misc]
    for number in range(rng.choice((1, 2, 3))):
        world.add_reader(f"c{number}", checkpoint=rng.random() < 0.5)
    world.run(3.0)
    for _ in range(rng.choice(FAULTS)):
        _fault(world, rng)
        world.write(rng.choice((0, 1, 5)))
        world.run(rng.choice((0.05, 0.5, 2.0, 5.0)) * rng.uniform(0.5, 1.5))
    _finish(world)
    return world


def trace(seed: int) -> list[str]:
    transcript = Transcript(kept=True)
    play(seed, transcript)
    assert transcript.lines is not None
    return transcript.lines


def _fault(world: World, rng: random.Random) -> None:
    """Let one fault happen, most of them to the leader."""
    names = [name for name in world.names if name in world.processes]
    leaders = [name for name in names if world.processes[name].serves]
    if not names:
        return
    name = rng.choice(leaders if leaders and rng.random() < 0.7 else names)
    lease_s = world.lease_s
    duration_s = rng.choice((rng.uniform(0.01, lease_s), rng.uniform(lease_s, 4 * lease_s)))
    fault = rng.choice(_FAULTS)
    match fault:
        case "stop":
            world.stop(name, duration_s)
        case "kill":
            world.kill(name, back_after_s=duration_s)
        case "end":
            world.hand_over(name)
        case "end in calm":
            _end_in_calm(world, rng, name)
        case "cut":
            world.cut_database(name, duration_s)
        case "noise":
            world.disturb_database(name, duration_s)
        case "source":
            world.cut_source(name, duration_s)
        case "crash" | "loss":
            world.crash_database(duration_s, loses=fault == "loss")
        case "connections":
            world.end_connections(name)
        case "clock":
            world.set_database_clock(rng.uniform(-1.5, 1.5) * lease_s)


def _end_in_calm(world: World, rng: random.Random, name: str) -> None:
    """Send SIGTERM when no fault has an effect any more, while readers acknowledge."""
    world.run(calm_s(world.lease_s))
    world.write(5)
    world.run(rng.uniform(0.0, 0.4))
    if name in world.processes:
        world.hand_over(name)


def _finish(world: World) -> None:
    """Without faults, one daemon leads soon, and readers get everything."""
    world.heal()
    world.write(3)
    deadline_s = world.agenda.now + max(FINISH_MAX_S, 6 * world.lease_s)
    while not world.judge.finished():
        assert world.agenda.now < deadline_s, "the readers do not get everything"
        world.run(0.5)
