"""Patterns that fit no table, and the lines of `tables`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from dispatcher.model.errors import UserError
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.rules.chosen_tables import require_fits
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.states import Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.table_lines import TableLine, lines_of, text_lines

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def test_a_pattern_that_fits_no_name_is_refused_whatever_the_case() -> None:
    names = [("shop", "orders"), ("Shop", "Items")]
    require_fits(names, ["SHOP.orders", "shop.items", "shop.*"])
    with pytest.raises(UserError, match=r"no table fits 'shop\.nosuch'"):
        require_fits(names, ["shop.orders", "shop.nosuch"])
    with pytest.raises(UserError, match="no table fits"):
        require_fits([], ["*.*"])


def line(table: str, state: str = "complete", **fields: Any) -> TableLine:
    values: dict[str, Any] = {"applied_lsn": 1, "waiting_rows": 0, "lag_s": None, "since": NOW}
    return TableLine("mirror", table, state, **values | {"reason": ""} | fields)


def test_tables_are_printed_below_a_heading() -> None:
    copied = CopyProgress("shop.items", 0, 900, 0, 0, 1.0, None)
    texts = text_lines(
        [
            line("shop.orders", waiting_rows=12, lag_s=3.4, requires=("timestampNtz",)),
            line("shop.items", "copying", copied=copied),
            line("shop.x", "stopped", reason="rows are missing"),
        ],
        NOW,
    )
    assert texts == [
        "consumer  table        state     rows behind  lag",
        "mirror    shop.orders  complete  12           3 s",
        "    a program that reads it must know these features of Delta: timestampNtz",
        "mirror    shop.items   copying   0            -",
        "    shop.items: its first rows are being read, of about 900 rows",
        "mirror    shop.x       stopped   0            -",
        "    rows are missing",
    ]
    assert text_lines([], NOW) == ["the mirror has no tables yet"]


@pytest.mark.parametrize(("doubted", "shown"), [(False, "its masks have changed"), (True, "")])
def test_a_copied_table_does_not_show_why_it_was_not_proved_before(
    doubted: bool, shown: str
) -> None:
    facts = Mock(waiting=lambda *_: {}, features=lambda _: (), applied=lambda _: 1)
    proof = Proof("id", "mirror", skipped="its masks have changed", doubted=doubted)
    record = TableRecord("id", "mirror", "shop", "users", "shop/users", Live(), at=NOW)
    (found,) = lines_of(facts, [record], {"id": proof})
    assert found.not_proved == shown
