"""A server with semisynchronous replicas sends a transaction before it executes it. It executes the transaction after a
replica has acknowledged it."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.daemon.harness import PASSWORD, Daemon, Reader, until
from tests.servers.plugin import ServerFactory


def test_a_transaction_that_waits_for_a_replica_is_history(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    server.add_user("waiting", PASSWORD)
    consumer = {"mysql": f"waiting@{server.host}:{server.port}", "password": PASSWORD}
    daemon = Daemon(tmp_path, {"consumers": {"d": {**consumer, "databases": ["d"]}}})
    reader = Reader(daemon, "d")
    writer = threading.Thread(target=server.execute, args=("INSERT INTO d.t VALUES (1)",))
    try:
        daemon.start()
        reader.open()
        server.execute(
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
            "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
            "SET GLOBAL rpl_semi_sync_source_enabled = ON",
        )
        writer.start()
        until(reader.step, "the transaction that waits is read")
        reader.acknowledge()
        ((executed, owned),) = server.execute("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_owned")
        gtid = str(reader.position["gtid"])
        assert gtid != executed and str(owned).partition("#")[0] != "", "it is not executed"

        api = daemon.restart()
        api.until_state("d", "streaming")
        assert api.session("d", reader.position)["position"] == reader.position
        assert writer.is_alive()
    finally:
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        writer.join()
        daemon.close()
    assert server.execute("SELECT id FROM d.t") == ((1,),)
