"""The daemon's log: a change of its level while the daemon runs, and faults that occur again and again."""

from __future__ import annotations

import json

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, until
from tests.servers import Server


def test_the_level_changes_at_a_reload_and_a_repeated_fault_is_said_once(
    mysql97: Server, make_daemon: MakeDaemon, source: Source
) -> None:
    lost = source(mysql97, "d", user="lost")
    lost["mysql"] = f"{lost['mysql'].partition(':')[0]}:1"  # nothing listens there
    daemon = make_daemon({"d": source(mysql97, "d"), "lost": lost})
    daemon.start()
    daemon.settings["log"] = {"level": "info"}
    daemon.reload()
    said, tried = daemon.log.rindex('"settings reloaded"'), tries(daemon)
    until(lambda: tries(daemon) >= tried + 3, "the daemon has tried again")
    assert daemon.log[said:].count('"not connected"') == 1
    assert '"level": "debug"' not in daemon.log[said:]
    daemon.settings["log"] = {"level": "debug"}
    daemon.reload()
    said = len(daemon.log)
    until(lambda: '"not connected"' in daemon.log[said:], "each line is written at debug")
    daemon.stop()
    last = json.loads(daemon.log.splitlines()[-1])
    assert (last["level"], last["event"]) == ("info", "stopped")
    assert '"repeated": ' in daemon.log[said:]


def tries(daemon: Daemon) -> float:
    """Returns how often a connection could not be made."""
    name = "binlog_dispatcher_source_connection_faults_total{"
    lines = daemon.api.text("/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
