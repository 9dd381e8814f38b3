"""Requests for copies, if the settings were changed after the job was started that would copy the tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.model.errors import UserError
from spark_sink.mirror.request_commands import require_job_with_masks
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.states import Dropped, Live, State
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.settings import MirrorSettings

AT = datetime(2026, 11, 30, 20, 31, 5, tzinfo=UTC)
SETTINGS = MirrorSettings.model_validate(
    {
        "url": "http://127.0.0.1:1",
        "target": "/lake",
        "consumers": ["shop"],
        "tables": {"shop.users": {"mask": {"mail": "sha256"}}},
    }
)


def rows(began: datetime, state: State | None = None) -> ControlRows:
    record = TableRecord("id", "shop", "shop", "users", state=state or Live())
    return ControlRows({"id": record}, claimed={"shop": began})


def test_a_job_with_former_masks_copies_no_table_for_which_the_settings_have_masks() -> None:
    earlier = rows(AT - timedelta(seconds=1))
    with pytest.raises(
        UserError, match=r"mask columns of shop\.users, and were changed at 20:31:05"
    ):
        require_job_with_masks(earlier, SETTINGS, AT, [("shop", "users")])
    require_job_with_masks(earlier, SETTINGS, AT, [("shop", "orders")])
    require_job_with_masks(rows(AT + timedelta(seconds=1)), SETTINGS, AT, [("shop", "users")])


@pytest.mark.parametrize("present", [ControlRows(), rows(AT, Dropped())])
def test_a_table_that_no_job_has_is_copied_by_the_next_job(present: ControlRows) -> None:
    require_job_with_masks(present, SETTINGS, AT, [("shop", "users")])
