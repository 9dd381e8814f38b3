"""The fronts of two daemons with one state: one leads, the other refuses logins until it leads."""

from __future__ import annotations

from contextlib import closing

import pymysql
import pytest

from tests.daemon.conftest import MakePair, make_pair, source_server, state_server
from tests.daemon.harness import until
from tests.daemon.pair import NEVER_S, Pair, until_leads, until_stands_by
from tests.front.attacker import Attacker, Refused
from tests.front.fronted import tool, until_greets
from tests.servers.ports import free_port

__all__ = ["make_pair", "source_server", "state_server"]


class Fronts:
    """A pair of daemons with a front each. `a` and `b`: the ports."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.a, self.b = pair, free_port(), free_port()
        for daemon, port in ((pair.a, self.a), (pair.b, self.b)):
            daemon.settings["front"] = {"listen": f"127.0.0.1:{port}"}
        pair.start()
        until_stands_by(pair.b, pair.a)
        until_greets(self.a)
        pair.server.execute(
            "CREATE TABLE d.t (id INT PRIMARY KEY)",
        )

    def insert(self, *keys: int) -> None:
        for key in keys:
            self.pair.server.execute(f"INSERT INTO d.t VALUES ({key})")


def entered(port: int) -> Attacker | None:
    """Returns a client that has logged in; None if the daemon has not reached the server yet."""
    client = Attacker(port)
    try:
        return client.enter("d", "")
    except Refused:
        client.socket.close()
        return None


def test_a_standby_refuses_logins_and_names_the_leader(make_pair: MakePair) -> None:
    fronts = Fronts(make_pair(NEVER_S, begun=False))
    leader = fronts.pair.a.url
    with pytest.raises(pymysql.err.OperationalError) as refused:
        pymysql.connect(host="127.0.0.1", port=fronts.b, user="d", password="any")
    number, text = refused.value.args
    assert number == 1053 and f"{leader} leads" in text
    with closing(pymysql.connect(host="127.0.0.1", port=fronts.a, user="d", password="any")):
        pass


@pytest.mark.parametrize("gtids", [False, True], ids=["file", "gtid"])
def test_a_client_goes_on_at_the_daemon_that_takes_over(make_pair: MakePair, gtids: bool) -> None:
    fronts = Fronts(make_pair(begun=False))
    server = fronts.pair.server
    file, offset = server.binlog_position()
    executed = str(server.execute("SELECT @@gtid_executed")[0][0]).replace("\n", "")
    fronts.insert(1, 2, 3)
    with Attacker(fronts.a).enter("d", "") as client:
        if gtids:
            client.dump_gtids(executed)
        else:
            client.dump_file(file, offset)
        place = client.until_rows(3)
        stored = str(server.execute("SELECT @@gtid_executed")[0][0]).replace("\n", "")
        fronts.pair.a.kill()
        with pytest.raises((ConnectionError, Refused)):
            client.until_rows(1)
    fronts.insert(4)
    until_leads(fronts.pair.b)
    second = until(lambda: entered(fronts.b), "the new leader has reached the server")
    assert second is not None
    with second as client:
        if gtids:
            client.dump_gtids(stored)
        else:
            client.dump_file(file, place)
        client.until_rows(1)
        fronts.insert(5, 6)
        client.until_rows(2)
    printed = tool(server.kind, fronts.b, "d", "-vv", f"--start-position={offset}", file)
    assert printed.count("### INSERT INTO `d`.`t`") == 6


def test_a_dump_ends_when_its_daemon_leads_no_more(make_pair: MakePair) -> None:
    """The client connects again, and is refused by a standby or served by the leader."""
    fronts = Fronts(make_pair(NEVER_S, begun=False))
    file, offset = fronts.pair.server.binlog_position()
    fronts.insert(1)
    with Attacker(fronts.a).enter("d", "") as client:
        client.dump_file(file, offset)
        client.until_rows(1)
        fronts.pair.a.stop()
        with pytest.raises(Refused) as refused:
            client.until_rows(1)
    assert refused.value.number == 1053
    until_leads(fronts.pair.b)
    fronts.pair.a.start()
    until_stands_by(fronts.pair.a, fronts.pair.b)

    def refused_by_a() -> bool:
        with pytest.raises(Refused) as refused, Attacker(fronts.a) as client:
            client.enter("d", "")
        return refused.value.number == 1053 and fronts.pair.b.url in refused.value.text

    until(refused_by_a, "the former leader names the new one")
