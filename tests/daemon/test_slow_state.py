"""The database of the state answers slowly: the daemon says how slowly, and names a lease with which it leads."""

from __future__ import annotations

import re

from tests.daemon.conftest import MakePair
from tests.daemon.harness import until
from tests.daemon.pair import reach_state_through, until_leads
from tests.servers import Instance
from tests.support.proxy import Proxy, Weather

FAR_S = 0.35  # about 15 answers until the lease is read
LEASE_S = 4


def test_a_daemon_names_the_lease_that_its_database_requires(
    make_pair: MakePair, state_server: Instance
) -> None:
    with Proxy(state_server.port) as proxy:
        pair = make_pair(LEASE_S, begun=False)
        daemon = pair.a
        reach_state_through(daemon, proxy.port)
        proxy.set(Weather(delay_s=FAR_S))
        daemon.start()

        def told() -> str:
            status, _, text = daemon.api.request("GET", "/readyz")
            assert status == 503
            return text.decode() if "answered after" in text.decode() else ""

        text = until(told, "the daemon says that its database is too slow")
        assert f"the lease is {LEASE_S} s" in text
        assert "firewall" not in text
        assert text.count("can lead only if the database answers within 1 s") == 1
        (named,) = re.findall(r"set state\.lease: (\d+) ", text)
        daemon.settings["state"]["lease"] = int(named)
        daemon.restart(kill=True)
        until_leads(daemon)
    assert "state database too slow" in daemon.log
