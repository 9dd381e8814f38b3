"""Plays one history, which its seed determines."""

from __future__ import annotations

from tests.snapshot_simulation.world import World


def play(seed: int, lines: list[str] | None = None) -> World:
    """Raises AssertionError if the history breaks a rule."""
    world = World(seed, (lambda _: None) if lines is None else lines.append)
    world.run()
    world.check()
    return world
