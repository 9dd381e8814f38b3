"""What a reload may change in a running daemon."""

from __future__ import annotations

from uuid import UUID

import pytest

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.runtime.client.from_settings import client_decls
from dispatcher.settings.reload import until_restart
from tests.support.settings_texts import Load

CONSUMER = 'consumers: {a: {mysql: repl@db1, password: x, databases: ["*"]}}\n'
TOKEN = "{token: t-123456789-123456789-123456789, scopes: [read], consumers: all}"
PUBLIC = f'api: {{listen: "0.0.0.0:8085", tokens: [{TOKEN}]}}\n'
STATE = 'state: {mysql: "repl@db1/%s", password: x}\n'


@pytest.mark.parametrize("written", ["", 'api: {listen: "127.0.0.1:8085"}\n'])
def test_a_daemon_that_others_reach_keeps_its_tokens(settings: Load, written: str) -> None:
    running = settings(CONSUMER + PUBLIC)
    with pytest.raises(
        UserError, match=r"until a restart the daemon listens on 0\.0\.0\.0:8085"
    ) as caught:
        until_restart(settings(CONSUMER + written), running)
    assert caught.value.kind is ErrorKind.SETTINGS
    assert until_restart(running, running) == running


def test_a_daemon_on_a_loopback_address_needs_no_tokens(settings: Load) -> None:
    local = settings(CONSUMER)
    assert until_restart(local, local) == local


def test_the_database_of_the_running_state_stays_hidden(settings: Load) -> None:
    running = settings(CONSUMER + STATE % "binlog_state")
    applied = until_restart(settings(CONSUMER + STATE % "other_state"), running)
    (decl,) = client_decls(applied, UUID(int=0)).values()
    assert decl.consumers[0].spec.exclude_tables == (("binlog_state", "*"),)
