"""Converts the declarations of the settings to the values that the rules use."""

from __future__ import annotations

import pytest

from dispatcher.model.subscription import Subscription
from dispatcher.runtime.client.from_settings import consumer_spec
from dispatcher.settings.model import StateSettings, SubscriptionSettings


@pytest.mark.parametrize("databases", [["*"], ["state*", "shop"]])
def test_the_database_of_the_state_is_hidden_from_patterns(databases: list[str]) -> None:
    settings = SubscriptionSettings.model_validate({"databases": databases})
    state = StateSettings.model_validate({"mysql": "u@h/state", "password": "p"})

    def subscription(state: StateSettings | None) -> Subscription:
        spec = consumer_spec("shop", settings, state)
        return Subscription(spec.databases, spec.tables, spec.exclude_tables)

    hiding = subscription(state)
    assert not hiding.has_table("state", "lease") and not hiding.has_database("state")
    assert hiding.has_table("shop", "orders") and hiding.has_database("shop")
    for shown in (subscription(None), subscription(StateSettings())):
        assert shown.has_table("state", "lease")
