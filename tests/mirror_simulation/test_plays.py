"""Each play of `plays/`. Its text states a rule of the mirror and shows what the rules decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mirror_simulation.plays import PLAYS, Stage
from tests.simulation.scripts import require_transcript


@pytest.mark.parametrize("play", sorted(PLAYS.glob("*.txt")), ids=lambda play: play.stem)
def test_a_play_has_the_transcript_that_its_file_shows(
    play: Path, request: pytest.FixtureRequest
) -> None:
    require_transcript(play, Stage(), rewrite=request.config.getoption("--rewrite-plays"))
