"""How often the mirror logs what it has applied, and how far its start is."""

from __future__ import annotations

import logging
import re

import pytest

from spark_sink.mirror.job import logged_phase
from spark_sink.mirror.runtime.consumer import APPLIED_EVERY_S, UnloggedSteps
from tests.daemon.harness import until


def test_the_first_step_is_logged_at_once_and_later_ones_together() -> None:
    steps = UnloggedSteps()
    assert steps.take(0.0) is None
    steps.add("shop.a", 3)
    assert steps.take(1.0) == {"rows": 3, "steps": 1, "tables": 1}
    assert steps.take(2.0) is None
    for table, rows in (("shop.a", 1), ("shop.b", 2), ("shop.a", 4)):
        steps.add(table, rows)
    assert steps.take(APPLIED_EVERY_S) is None
    assert steps.take(1.0 + APPLIED_EVERY_S) == {"rows": 7, "steps": 3, "tables": 2}
    assert steps.take(9 * APPLIED_EVERY_S) is None


def test_a_phase_of_the_start_is_logged_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "spark_sink.mirror")
    with logged_phase("opening the target", every_s=0.001):
        until(lambda: len(caplog.messages) > 2, "two lines say that the phase goes on")
    assert caplog.messages[0] == "opening the target"
    assert all(re.fullmatch(r"opening the target: \d+ s so far", m) for m in caplog.messages[1:])
