"""Each play of `plays/`. Its text states a rule of dispatching and shows what the client does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.plays import PLAYS, Stage
from tests.simulation.scripts import require_transcript


@pytest.mark.parametrize("play", sorted(PLAYS.glob("*.txt")), ids=lambda play: play.stem)
def test_a_play_has_the_transcript_that_its_file_shows(
    play: Path, request: pytest.FixtureRequest
) -> None:
    require_transcript(play, Stage(), rewrite=request.config.getoption("--rewrite-plays"))


def test_there_are_fifteen_plays_at_least() -> None:
    assert len(list(PLAYS.glob("*.txt"))) >= 15
