"""Each play of `plays/`, whose text says a rule of dispatching and shows what the client does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.plays import PLAYS, played


@pytest.mark.parametrize("play", sorted(PLAYS.glob("*.txt")), ids=lambda play: play.stem)
def test_a_play_has_the_transcript_that_its_file_shows(
    play: Path, request: pytest.FixtureRequest
) -> None:
    text = play.read_text(encoding="utf-8")
    now = played(text)
    if request.config.getoption("--rewrite-plays"):
        play.write_text(now, encoding="utf-8")
    else:
        assert now.splitlines() == text.splitlines()


def test_there_are_fifteen_plays_at_least() -> None:
    assert len(list(PLAYS.glob("*.txt"))) >= 15
