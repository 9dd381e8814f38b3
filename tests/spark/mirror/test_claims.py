"""Which of two jobs has a consumer, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ClaimedStage, ControlRows
from spark_sink.mirror.runtime.claims import Claims, stages_of


@dataclass
class Control:
    """A control table in memory."""

    claims: dict[tuple[str, ClaimedStage], str] = field(default_factory=dict)

    def rows(self) -> ControlRows:
        return ControlRows({}, {}, dict(self.claims), 0)

    def claim(self, run: str, consumers: Iterable[str], stages: Sequence[ClaimedStage]) -> None:
        self.claims |= {(consumer, stage): run for consumer in consumers for stage in stages}


def start(control: Control, stages: str, *consumers: str) -> Claims:
    claims = Claims(cast("ControlTable", control), consumers or ("shop",), stages_of(stages))
    claims.take()
    return claims


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        ("both", "both", True),
        ("both", "log", True),
        ("both", "apply", True),
        ("log", "both", True),
        ("apply", "both", True),
        ("log", "log", True),
        ("log", "apply", False),
        ("apply", "log", False),
    ],
)
def test_a_later_job_takes_over_the_stages_that_it_runs(
    first: str, second: str, lost: bool
) -> None:
    control = Control()
    older, newer = start(control, first), start(control, second)
    assert (older.lost("shop") is not None) is lost
    assert newer.lost("shop") is None


def test_a_job_does_not_claim_a_second_time() -> None:
    control = Control()
    older, newer = start(control, "both"), start(control, "both")
    older.take()
    assert newer.lost("shop") is None


def test_a_job_keeps_the_consumers_that_another_one_does_not_have() -> None:
    control = Control()
    older = start(control, "both", "shop", "billing")
    start(control, "both", "shop")
    assert older.lost("billing") is None and not older.any_lost
    assert older.lost("shop") is not None and older.any_lost


def test_a_lost_consumer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    control = Control()
    older = start(control, "both")
    start(control, "both")
    older.lost("shop")
    older.lost("shop")
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "shop: session fenced: a job that was started later, or adopt, has taken over this consumer, so this job"
        " neither logs nor applies it any more"
    ]
