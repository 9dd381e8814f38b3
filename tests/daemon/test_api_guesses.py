"""A running daemon counts wrong tokens, by the address of the client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.access.guesses import FREE
from tests.daemon.harness import PASSWORD, Daemon, until

TOKEN = "token-of-all-the-consumers"
FORWARDED = "203.0.113.9"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    # No server is needed.
    consumer = {"mysql": "reader@127.0.0.1:1", "password": PASSWORD, "databases": ["d"]}
    api = {"tokens": [{"token": TOKEN, "consumers": "all"}]}
    daemon = Daemon(tmp_path, {"consumers": {"c": consumer}, "api": api})
    daemon.token = TOKEN
    try:
        yield daemon
    finally:
        daemon.close()


def guess(daemon: Daemon, token: str, timeout_s: float = 30) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=timeout_s)) as client:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"10.9.9.9, {FORWARDED}"}
        client.request("GET", "/v1/binlogs", headers=headers)
        return client.getresponse().status


def addresses(daemon: Daemon) -> set[str]:
    lines = [json.loads(line) for line in daemon.log.splitlines() if line[:1] == "{"]
    return {line["address"] for line in lines if line["event"] == "wrong token"}


def test_a_client_cannot_choose_the_address_that_it_is_counted_by(daemon: Daemon) -> None:
    daemon.start()
    assert guess(daemon, "wrong") == 401
    assert addresses(daemon) == {"127.0.0.1"}


def test_a_proxy_of_the_settings_names_the_address(daemon: Daemon) -> None:
    daemon.settings["api"]["proxies"] = ["127.0.0.0/8"]
    daemon.start()
    assert guess(daemon, "wrong") == 401
    assert addresses(daemon) == {FORWARDED}


def test_guesses_wait_and_the_right_token_is_accepted_beside_them(daemon: Daemon) -> None:
    daemon.start()
    guessers = 20
    with ThreadPoolExecutor(guessers) as pool:
        first = list(pool.map(lambda n: guess(daemon, f"wrong{n}"), range(FREE + 1)))
        waiting = [pool.submit(guess, daemon, f"wrong{n}") for n in range(guessers)]
        until(lambda: any(each.done() for each in waiting), "a turn comes")
        assert not all(each.done() for each in waiting)
        assert guess(daemon, TOKEN) == 200
        assert guess(daemon, TOKEN, timeout_s=5) == 200
        assert {*first, *(each.result() for each in waiting)} == {401}
