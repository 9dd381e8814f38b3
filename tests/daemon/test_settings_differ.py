"""Daemons of one state with different settings: the standby says what a takeover would change."""

from __future__ import annotations

from tests.daemon.conftest import MakePair, Source
from tests.daemon.harness import Daemon, until
from tests.daemon.pair import NEVER_S, leads, until_leads, until_stands_by

WARNING = "warning: the settings differ from those of the leader"


def said(daemon: Daemon) -> list[str]:
    """Returns the lines of /readyz?standby&verbose."""
    return str(daemon.api.request("GET", "/readyz?standby&verbose")[2].decode()).splitlines()


def counted(daemon: Daemon) -> list[str]:
    name = "binlog_dispatcher_leader_settings_different "
    lines = daemon.api.text("/metrics").splitlines()
    return [line.removeprefix(name) for line in lines if line.startswith(name)]


def test_a_standby_names_the_consumers_that_differ(make_pair: MakePair, source: Source) -> None:
    pair = make_pair(NEVER_S, begun=False)
    a, b = pair.a, pair.b
    mine = dict(a.settings["consumers"]["d"])
    a.settings["consumers"] = {"d": mine, "only_a": mine}
    b.settings["consumers"] = {"d": {**mine, "on_purged": "latest"}, "only_b": mine}
    pair.start()
    until_stands_by(b, a)
    until(lambda: len(said(b)) > 1, "the standby has compared the settings")
    assert said(b) == [
        "ok",
        WARNING,
        "consumer d: other values of on_purged",
        "consumer only_a: only the leader has it",
        "consumer only_b: the leader does not have it",
    ]
    assert b.api.request("GET", "/readyz?standby")[2].decode() == f"ok\n{WARNING}\n"
    assert (counted(a), counted(b)) == ([], ["3.0"])
    assert "the settings differ from those of the leader" in b.log
    a.settings["consumers"]["d"] = b.settings["consumers"]["d"]
    a.reload()
    b.settings["consumers"] = dict(a.settings["consumers"])
    b.reload()
    until(lambda: said(b) == ["ok"], "the settings are the same")
    assert counted(b) == ["0.0"]
    assert "the settings are those of the leader" in b.log
    b.settings["consumers"].pop("only_a")
    b.reload()
    until(lambda: len(said(b)) > 1, "they differ again")
    a.stop()
    until_leads(b)
    a.start()
    until(lambda: "consumer only_a: the leader does not have it" in said(a), "a compares, too")
    assert leads(b) and not counted(b)
