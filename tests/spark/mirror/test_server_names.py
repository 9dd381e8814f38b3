"""Names of tables in the mirror's settings, which the daemon's server compares with or without case."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.model.errors import UserError
from spark_sink.mirror.rules.chosen_tables import selected
from spark_sink.mirror.rules.states import Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.server_names import with_server_names
from spark_sink.mirror.values.settings import MirrorSettings
from tests.support.fake_daemon import FakeDaemon


def settings_of(daemon: FakeDaemon, *excluded: str) -> MirrorSettings:
    values: dict[str, Any] = {
        "url": daemon.url,
        "consumers": {"shop": {"exclude": excluded}},
        "target": "/t",
        "retry_timeout_seconds": 1,
    }
    return MirrorSettings.model_validate(values)


@pytest.mark.parametrize("value", [0, 1, 2])
def test_the_daemon_tells_how_the_server_compares_names(daemon: FakeDaemon, value: int) -> None:
    daemon.lower_case_table_names = value
    settings = with_server_names(settings_of(daemon, "Shop.Secret"))
    assert settings.excludes("shop", ("shop", "secret")) == (value > 0)
    assert settings.excludes("shop", ("Shop", "Secret")) == (value == 0)
    assert daemon.session == 0, "a reader was fenced"


def test_names_in_lower_case_need_no_daemon(daemon: FakeDaemon) -> None:
    settings = settings_of(daemon, "shop.secret")
    assert with_server_names(settings) is settings
    assert daemon.calls == []


def test_a_job_does_not_start_with_names_whose_meaning_is_not_known(daemon: FakeDaemon) -> None:
    daemon.lower_case_table_names = None
    with pytest.raises(UserError, match=r"the settings name Shop\.Secret, and the daemon does not"):
        with_server_names(settings_of(daemon, "Shop.Secret"))


def test_a_request_for_a_name_in_another_case_is_refused_with_the_name() -> None:
    record = TableRecord("t1", "shop", "shop", "orders", "shop/orders", Live())
    assert selected([record], ["shop.orders"]) == [record]
    with pytest.raises(UserError, match=r"no table .* 'Shop\.O\*', but without case shop\.orders"):
        selected([record], ["Shop.O*"])
    with pytest.raises(UserError, match=r"no table of the mirror fits 'Shop\.x';"):
        selected([record], ["Shop.x"])
