"""The database of the state answers slowly: the daemon says how slowly, and names a lease with which it can lead."""

from __future__ import annotations

import re

import pytest

from tests.daemon.conftest import MakePair
from tests.daemon.harness import until
from tests.daemon.pair import leads, reach_state_through
from tests.servers import Instance
from tests.support.proxy import Conditions, Proxy

LEASE_S = 4
DEADLINE_S = 300.0  # it takes about 15 answers until the lease is read


@pytest.mark.timeout(900)
@pytest.mark.parametrize("far_s", [0.35, pytest.param(2.0, marks=pytest.mark.deep)])
def test_a_daemon_names_the_lease_that_its_database_requires(
    far_s: float, make_pair: MakePair, state_server: Instance
) -> None:
    with Proxy(state_server.port) as proxy:
        pair = make_pair(LEASE_S, begun=False)
        daemon = pair.a
        reach_state_through(daemon, proxy.port)
        proxy.set(Conditions(delay_s=far_s))
        daemon.start()

        def told() -> str:
            status, _, text = daemon.api.request("GET", "/readyz")
            assert status == 503
            return text.decode() if "answered after" in text.decode() else ""

        text = until(told, "the daemon says that it is too slow", timeout_s=DEADLINE_S)
        assert f"the lease is {LEASE_S} s" in text
        assert "firewall" not in text
        assert text.count("can lead only if the database answers within 1 s") == 1
        (named,) = re.findall(r"set state\.lease: (\d+) ", text)
        daemon.settings["state"]["lease"] = int(named)
        daemon.restart(kill=True)
        until(lambda: leads(daemon), "the daemon leads", timeout_s=DEADLINE_S)
    assert "state database too slow" in daemon.log
