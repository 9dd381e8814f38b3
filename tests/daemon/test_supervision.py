"""The daemon under a service manager. The test acts as the service manager, and listens on NOTIFY_SOCKET."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import until
from tests.servers import Server


def test_a_service_manager_is_told_of_start_reload_and_end(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    said: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)

        def told(message: str, *, since: int = 0) -> bool:
            try:
                while True:
                    said.append(manager.recv(4096).decode())
            except BlockingIOError:
                return any(one.startswith(message) for one in said[since:])

        daemon = make_daemon({"d": source(mysql97, "d")})
        daemon.environment = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        daemon.start()
        assert told("READY=1") and said[0] == "STATUS=loading kernels"
        until(lambda: told("STATUS=1 consumer: 1 streaming"), "the status says what streams")
        until(lambda: said.count("WATCHDOG=1") > 3 or told("never"), "the watchdog is fed")

        begun = len(said)
        daemon.reload()
        until(lambda: told("READY=1", since=begun), "the reload is over")
        order = [one.partition("\n")[0] for one in said[begun:]]
        assert order.index("RELOADING=1") < order.index("READY=1")

        begun, right = len(said), daemon.settings
        daemon.settings = {**right, "defaults": {"no_such_key": 1}}
        daemon.hang_up("settings not reloaded")
        until(lambda: told("READY=1", since=begun), "a reload of wrong settings ends, too")
        daemon.settings = right

        daemon.stop()
        assert told("STOPPING=1")
