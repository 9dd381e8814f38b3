"""The API with fake services that answer immediately, called without a network."""

from __future__ import annotations

from collections.abc import Callable, Collection

import httpx
import pytest

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.app import Access, Api
from dispatcher.model.timings import RequestTimings
from dispatcher.settings.api import ApiLimitSettings
from tests.support.fake_readers import FakeDeclarer, FakeReaders

READ, FULL, SCRAPE = "token-to-read-shop", "token-for-everything", "token-to-scrape"
ADMINISTER = "token-to-administer-shop"
TOKENS = (
    Token(READ, frozenset({"shop"}), frozenset({Scope.READ})),
    Token(FULL, None, frozenset({Scope.READ, Scope.ACKNOWLEDGE, Scope.METRICS})),
    Token(ADMINISTER, frozenset({"shop"}), frozenset({Scope.ADMINISTER})),
    Token(SCRAPE, None, frozenset({Scope.METRICS})),
)

Connect = Callable[..., httpx.AsyncClient]
MakeApi = Callable[..., Api]


async def _metrics() -> tuple[bytes, str]:
    return b"metric 1\n", "text/plain; charset=utf-8"


@pytest.fixture
def readers() -> FakeReaders:
    return FakeReaders()


@pytest.fixture
def declarer() -> FakeDeclarer:
    return FakeDeclarer()


@pytest.fixture
def make_api(readers: FakeReaders, declarer: FakeDeclarer) -> MakeApi:
    """Returns `make_api(tokens=..., hosts=..., open_=..., listen=..., limits=..., timings=...)`"""

    def make(
        tokens: Collection[Token] = (),
        hosts: Collection[str] = (),
        open_: Collection[str] = (),
        listen: str = "127.0.0.1",
        limits: ApiLimitSettings | None = None,
        timings: RequestTimings | None = None,
    ) -> Api:
        return Api(
            lambda: readers,
            Access(tuple(tokens), hosts, frozenset(open_)),
            limits or ApiLimitSettings(),
            administrator=lambda: readers,
            declarer=lambda: declarer,
            owners=lambda: declarer.owners,
            live=readers,
            listen=listen,
            version="1",
            metrics=_metrics,
            ready=list,
            timings=timings,
        )

    return make


@pytest.fixture
def connect(make_api: MakeApi) -> Connect:
    """Returns `connect(token, tokens=..., ...)`, which makes a client of such an API, on the loopback."""

    def client(token: str = "", **settings: object) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(make_api(**settings).asgi, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8085", headers=headers
        )

    return client
