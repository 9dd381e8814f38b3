"""PyMySQL logs in and reads answers, on both event loops, with TLS and without."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pymysql
import pytest
from pymysql import _auth

from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.handshake import NATIVE, SHA2
from dispatcher.front.wire.listener import Refusal
from dispatcher.front.wire.login import FrontLogin
from dispatcher.front.wire.packets import Command
from dispatcher.mysql.driver import trusting_context
from tests.front.wire.fronts import (
    BYTES,
    HOST,
    LARGE,
    LOOPS,
    SECRET,
    TEXT,
    USER,
    Front,
    answer,
    rules,
    running,
    server_context,
)
from tests.support.certificates import make_certificate

Connection = pymysql.connections.Connection


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return server_context(folder)


@pytest.fixture(params=[f"{loop}-{tls}" for loop in LOOPS for tls in ("plain", "tls")])
def front(request: pytest.FixtureRequest, tls: ssl.SSLContext) -> Iterator[Front]:
    loop, kind = request.param.split("-")
    with running(loop, rules(tls=tls if kind == "tls" else None)) as front:
        yield front


def connect(front: Front, password: str = SECRET, user: str = USER, **more: Any) -> Connection[Any]:
    if front.listener.rules.tls is None:
        more["ssl_disabled"] = True
    elif not more.get("ssl_disabled"):
        more["ssl"] = trusting_context()  # PyMySQL's default context is slow to create
    return pymysql.connect(host=HOST, port=front.port, user=user, password=password, **more)


def refusal(front: Front, password: str = SECRET, user: str = USER, **more: Any) -> tuple[Any, ...]:
    with pytest.raises(pymysql.OperationalError) as refused:
        connect(front, password, user, **more)
    return refused.value.args


def use_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make PyMySQL announce mysql_native_password."""
    name = "_get_server_information"
    original = getattr(Connection, name)

    def greeted(self: Any) -> None:
        original(self)
        self._auth_plugin_name = NATIVE

    monkeypatch.setattr(Connection, name, greeted)


@pytest.mark.parametrize("method", [SHA2, NATIVE])
def test_a_client_logs_in_and_reads_a_result_set(
    front: Front, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == NATIVE:
        use_native(monkeypatch)
    with closing(connect(front, database="shop")) as connection:
        assert connection.get_server_info() == "9.7.4"  # type: ignore[no-untyped-call]
        cursor = connection.cursor()
        assert cursor.execute("SELECT everything") == 2
        secured = int(front.listener.rules.tls is not None)
        row = (USER, "shop", secured, LARGE, BYTES, TEXT)
        assert list(cursor.fetchall()) == [row, (None,) * 6]
        connection.ping(reconnect=False)
    assert front.listener.counts.logged_in == 1
    assert front.wrong == []


@pytest.mark.parametrize("method", [SHA2, NATIVE])
def test_an_unknown_user_and_a_wrong_password_are_told_the_same(
    front: Front, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == NATIVE:
        use_native(monkeypatch)
    text = "Access denied for user '{}'@'127.0.0.1' (using password: {})"
    for user in (USER, "unknown"):
        for password, given in (("wrong", "YES"), ("", "NO")):
            assert refusal(front, password, user) == (1045, text.format(user, given))
    assert front.wrong == [(user, HOST) for user in (USER, USER, "unknown", "unknown")]
    front.until(lambda: front.listener.counts.refused[Refusal.DENIED] == 4)


def test_a_name_that_controls_a_terminal_is_made_printable(front: Front) -> None:
    _, text = refusal(front, user="\x1b[2J" + "x" * 100)
    shown = r"\x1b[2J" + "x" * 76
    assert f"'{shown}'" in text
    assert front.wrong == [(shown, HOST)]


def test_a_client_with_wrong_proofs_sends_the_password_itself(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends the password as text over TLS, otherwise encrypted."""
    monkeypatch.setattr(_auth, "scramble_caching_sha2", lambda *_: bytes(32))
    with closing(connect(front)) as connection:
        connection.ping(reconnect=False)
    assert refusal(front, "wrong")[0] == 1045


def test_any_password_is_right_where_none_is_needed(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.listener.rules = rules(lambda _: None, tls=front.listener.rules.tls)
    for password in ("", "any"):
        connect(front, password).close()
    use_native(monkeypatch)
    for password in ("", "any"):
        connect(front, password).close()


def test_the_login_says_who_the_client_is(tls: ssl.SSLContext) -> None:
    logins: list[FrontLogin] = []

    async def serve(channel: Channel, login: FrontLogin) -> None:
        logins.append(login)
        await answer(channel, login)

    with running("uvloop", rules(tls=tls), serve) as front:
        connect(front, program_name="the program").close()
        connect(front, database="shop").close()
    first, second = logins
    assert (first.user, first.secret, first.host, first.tls) == (USER, SECRET, HOST, True)
    assert first.attributes["program_name"] == "the program"
    assert (first.database, second.database) == (None, "shop")
    assert (first.connection_id, second.connection_id) == (1, 2)


def test_errors_are_those_of_the_front(front: Front) -> None:
    with closing(connect(front)) as connection:
        cursor = connection.cursor()
        with pytest.raises(pymysql.NotSupportedError) as refused:
            cursor.execute("REFUSE this")
        assert refused.value.args == (1235, "not supported: refuse this")
        connection._execute_command(Command.CHANGE_USER, b"other\0")  # type: ignore[attr-defined]
        with pytest.raises(pymysql.OperationalError) as unknown:
            connection._read_ok_packet()  # type: ignore[attr-defined]
        assert unknown.value.args[0] == 1047
        connection.ping(reconnect=False)


def test_a_client_without_tls_is_refused_where_tls_is_required(front: Front) -> None:
    front.listener.rules = rules(tls=front.listener.rules.tls, require_tls=True)
    assert refusal(front, ssl_disabled=True)[0] == 3159
    assert refusal(front, "wrong", ssl_disabled=True)[0] == 3159
    assert front.wrong == []
    if front.listener.rules.tls is not None:
        connect(front).close()


def test_a_login_that_is_not_admitted_ends_with_the_error(front: Front) -> None:
    async def admit(login: FrontLogin) -> None:
        raise WireError(1049, f"Unknown database '{login.database}'")

    front.listener.rules = rules(tls=front.listener.rules.tls, admit=admit)
    assert refusal(front, database="other") == (1049, "Unknown database 'other'")
    front.until(lambda: front.listener.counts.refused[Refusal.NOT_ADMITTED] == 1)


def test_an_error_of_the_front_itself_is_reported(front: Front) -> None:
    def secrets(_: str) -> Sequence[str]:
        raise ZeroDivisionError

    async def serve(channel: Channel, login: FrontLogin) -> None:
        await channel.read_command(100, None)
        raise ZeroDivisionError

    known = front.listener.rules
    front.listener.rules = rules(secrets, tls=known.tls)
    assert refusal(front)[0] == 1105
    front.listener.rules = known
    front.listener._serve = serve
    assert refusal(front)[0] == 1105  # the error of the client's first statement, SET NAMES
    assert front.failures == ["ZeroDivisionError()"] * 2
    front.failures.clear()


def test_a_close_ends_all_connections(front: Front) -> None:
    with closing(connect(front)) as connection:
        front.call(front.listener.close())
        with pytest.raises(pymysql.OperationalError):
            connection.ping(reconnect=False)
