"""The remedies of a log stage's faults, which replace the daemon's remedies for readers of any kind."""

from __future__ import annotations

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.log.stage import stage_fault, with_remedy
from tests.mirror.printed import commands

SEEK = "binlog-dispatcher consumers seek shop --to earliest"
RUN = "python -m spark_sink run --available-now --no-fail-on-data-loss"


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        (ErrorKind.POSITION_PURGED, [SEEK, RUN]),
        (ErrorKind.POSITION_UNKNOWN, [SEEK, RUN]),
        (ErrorKind.STORED_POSITION, [SEEK, RUN]),
        (ErrorKind.HISTORY_DIFFERS, [SEEK, RUN]),
        (
            ErrorKind.STATEMENT_FORMAT,
            ["binlog-dispatcher consumers seek shop --to POSITION", RUN],
        ),
        (ErrorKind.CONNECT_FAILED, []),
    ],
)
def test_the_commands_of_a_fault(kind: ErrorKind, printed: list[str]) -> None:
    assert commands(with_remedy(stage_fault(BinlogError(kind, "why")), "shop")) == printed
