"""Which settings of two daemons that share a state count as different, and that no secret leaves a daemon."""

from __future__ import annotations

import pytest

from dispatcher.settings.comparison import differences, digests_of
from tests.support.settings_texts import Load

TOKEN = "{token: t-123456789-123456789-123456789, consumers: %s}"
FILE = """
consumers:
  shop: {{mysql: {address}, password: {password}, databases: [{databases}]{more}}}
api: {{advertise: "http://{host}:8085", tokens: [{token}]}}
state: {{mysql: "dispatcher@db2/state", password: secret-of-state, lease: {lease}}}
"""
SAME = {
    "address": "repl@db1",
    "password": "secret-of-shop",
    "databases": "shop",
    "more": "",
    "host": "a",
    "token": TOKEN % "all",
    "lease": "4",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"password": "another-one"}, {}),
        ({"more": ", tls: {mode: required}"}, {}),
        ({"host": "b"}, {}),
        ({"databases": "shop, crm"}, {"consumer shop": "other values of databases"}),
        ({"address": "repl@db9"}, {"consumer shop": "other values of mysql"}),
        (
            {"databases": "crm", "more": ", on_purged: latest"},
            {"consumer shop": "other values of databases, on_purged"},
        ),
        ({"lease": "9"}, {"state": "other values of lease"}),
        ({"token": TOKEN % "[shop]"}, {"api": "other values of tokens"}),
    ],
)
def test_what_counts_as_different(
    settings: Load, changed: dict[str, str], expected: dict[str, str]
) -> None:
    leader = digests_of(settings(FILE.format(**SAME)))
    own = digests_of(settings(FILE.format(**{**SAME, **changed})))
    assert differences(leader, own) == expected


def test_consumers_that_one_daemon_does_not_have(settings: Load) -> None:
    text = "consumers: {%s: {mysql: repl@db1, password: x, databases: [shop]}}\n"
    leader, own = digests_of(settings(text % "one")), digests_of(settings(text % "two"))
    assert differences(leader, own) == {
        "consumer one": "only the leader has it",
        "consumer two": "the leader does not have it",
    }


def test_the_digests_hold_no_setting(settings: Load) -> None:
    text = str(digests_of(settings(FILE.format(**SAME))))
    assert "secret" not in text
    assert "t-123456789" not in text
    assert "db1" not in text
