"""The API with a certificate."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon.harness import PASSWORD, Daemon
from tests.support.certificates import make_certificate


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    make_certificate(tmp_path)
    tls = {"cert": str(tmp_path / "ca.pem"), "key": str(tmp_path / "key.pem")}
    # No server is needed.
    consumer = {"mysql": "reader@127.0.0.1:1", "password": PASSWORD, "databases": ["d"]}
    daemon = Daemon(tmp_path, {"consumers": {"c": consumer}, "api": {"tls": tls}})
    daemon.ca = tmp_path / "ca.pem"
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()


def test_an_idle_client_does_not_delay_the_end(daemon: Daemon) -> None:
    trusting = ssl.create_default_context(cafile=str(daemon.ca))
    with closing(http.client.HTTPSConnection("127.0.0.1", daemon.port, context=trusting)) as idle:
        idle.request("GET", "/livez")
        assert idle.getresponse().read() == b"ok\n"
        daemon.stop()
    assert "the shutdown took more than" not in daemon.log


def test_a_client_that_does_not_know_the_authority_is_refused(daemon: Daemon) -> None:
    distrustful = http.client.HTTPSConnection("127.0.0.1", daemon.port)
    with closing(distrustful), pytest.raises(ssl.SSLCertVerificationError):
        distrustful.request("GET", "/livez")
