"""HEAD is answered as GET, without the body: load balancers and monitoring send HEAD."""

from __future__ import annotations

import pytest

from tests.api.conftest import FULL, TOKENS, Connect


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/readyz?verbose", "/login", "/metrics"])
async def test_head_has_the_status_and_headers_of_get(connect: Connect, path: str) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.headers) == (get.status_code, get.headers)
    assert get.status_code == 200


async def test_head_needs_the_token_of_get(connect: Connect) -> None:
    async with connect(tokens=TOKENS) as client:
        assert (await client.head("/v1/binlogs")).status_code == 401


async def test_head_of_a_stream_ends(connect: Connect) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        assert (await client.head("/status/events")).status_code == 200
        assert (await client.get("/status/viewer")).json()["viewers"] == 0


async def test_head_of_a_call_that_changes_something_is_405(connect: Connect) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        assert (await client.head("/v1/consumers/shop/seek")).status_code == 405
