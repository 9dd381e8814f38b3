"""A folder of binlog files is a source, like the server that writes the files. Consumers receive the same bytes from a
copy and from the live folder of a running server, also if the daemon is restarted or killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.position import packed_seq
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import (
    Api,
    Json,
    Problem,
    Reader,
    load,
    tip_seq,
    transactions,
    until,
)
from tests.servers import Instance
from tests.servers.plugin import ServerFactory


def files(folder: Path, *, follow: bool, **more: Any) -> Json:
    return {
        "files": {"path": str(folder), "follow": follow},
        "databases": ["a"],
        "start": "earliest",
        **more,
    }


# Statements for events that only newer servers write: a tagged GTID, a compressed transaction.
MORE = {
    "mysql97": (
        "SET gtid_next = 'AUTOMATIC:weekly'",
        "INSERT INTO a.t (t) VALUES ('tagged')",
        "SET gtid_next = 'AUTOMATIC', binlog_transaction_compression = ON",
        "INSERT INTO a.t (t) SELECT REPEAT('z', 900) FROM a.t LIMIT 50",
    )
}


def write(server: Instance, *more: str) -> None:
    """Write rows of two databases, a large transaction, DDL, rotations, a transaction that is rolled back."""
    server.execute(
        "CREATE TABLE IF NOT EXISTS a.t (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT)",
        "CREATE TABLE IF NOT EXISTS b.t (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT)",
        *("INSERT INTO a.t (t) VALUES ('one'), ('two')",) * 20,
        "FLUSH BINARY LOGS",
        "INSERT INTO b.t (t) VALUES ('not for us')",
        "INSERT INTO a.t (t) VALUES (REPEAT('x', 30000))",
        *("INSERT INTO a.t (t) SELECT t FROM a.t LIMIT 60",) * 3,
        "BEGIN",
        "INSERT INTO a.t (t) VALUES ('never')",
        "ROLLBACK",
        "FLUSH BINARY LOGS",
        "UPDATE a.t SET t = CONCAT(t, '!') WHERE id % 3 = 0",
        "ALTER TABLE a.t COMMENT 'changed'",
        "DELETE FROM a.t WHERE id % 5 = 0",
        *more,
        database="a",
    )


def copy(server: Instance, folder: Path) -> None:
    """Copy the files as `cp` does. The server is still writing the newest file."""
    folder.mkdir(exist_ok=True)
    for name, _ in server.binlogs():
        shutil.copyfile(server.datadir / name, folder / name)


def read_half(reader: Reader) -> None:
    until(lambda: reader.step(max_bytes=2000) >= 0 and len(reader.chunks) >= 5, "it reads")


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_folder_of_files_delivers_the_same_bytes_as_the_server(
    kind: Any,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> None:
    server = server_factory(kind)
    server.execute("CREATE DATABASE a", "CREATE DATABASE b")
    write(server, *MORE.get(kind, ()))
    archive = tmp_path / "archive"
    copy(server, archive)
    daemon = make_daemon(
        {
            "server": source(server, "a", start="earliest"),
            "live": files(server.datadir, follow=True),
            "copy": files(archive, follow=False),
            "alone": files(archive, follow=False, use_binlog_client=False),
        }
    )
    api = daemon.start()
    readers = {name: Reader(daemon, name).open() for name in ("server", "live", "copy", "alone")}
    for name in ("live", "copy"):
        read_half(readers[name])
    again = unacknowledged(api, readers["copy"])
    daemon.kill()
    write(server, *MORE.get(kind, ()))
    copy(server, archive)  # new files, and the rest of the file that was the newest before
    api = daemon.start()
    assert transactions(again(api)) == transactions(again.data)
    write(server, *MORE.get(kind, ()))

    def at_one_place() -> bool:
        """True if both readers have the same seq. The seqs may differ for a while, because MariaDB writes a checkpoint
        event some time after it has begun a file."""
        ends = [readers[name].read_to(server).position["seq"] for name in ("server", "live")]
        return bool(ends[0] == ends[1])

    until(at_one_place, "both readers are at the end of the log")
    assert readers["live"].transactions == readers["server"].transactions
    assert len(readers["live"].transactions) > 70
    end, server_end = readers["live"].position, readers["server"].position
    keys = ("gtid", "file", "offset", "seq", "epoch")
    assert [end[key] for key in keys] == [server_end[key] for key in keys]

    read_to_the_end(api, readers["copy"])
    read_to_the_end(api, readers["alone"])
    assert readers["copy"].transactions == readers["alone"].transactions
    count = len(readers["copy"].transactions)
    assert 50 < count < len(readers["server"].transactions)
    assert readers["copy"].transactions == readers["server"].transactions[:count]
    labels = {name: row["binlog_client_name"] for name, row in api.rows().items()}
    assert labels["copy"] == labels["alone"] == f"files:{archive}"
    assert labels["live"] == f"files:{server.datadir}"
    with pytest.raises(Problem) as caught:
        api.get("/v1/consumers/copy/tables/a.t")
    assert caught.value.kind == "METADATA_MISSING" and "FULL" in caught.value.body["hint"]


class unacknowledged:  # noqa: N801 - reads as a verb
    """A range that a reader has fetched and not acknowledged. `data`: the bytes of the range. A call of the object
    fetches the range again."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._reader = reader
        self._start = reader.position
        answer = api.poll(
            reader.consumer, reader.session, self._start, max_bytes=4000, wait_ms=5000
        )
        assert answer["transactions"]
        self._end = answer["end"]
        self.data = self(api)

    def __call__(self, api: Api) -> bytes:
        reader = self._reader
        return api.binlog(reader.consumer, reader.session, self._start, self._end)


def read_to_the_end(api: Api, reader: Reader) -> None:
    """Read until the consumer's state says that the reader has read the whole log."""
    api.until_state(reader.consumer, "ended")
    until(lambda: reader.step() == 0, "everything was read")
    reader.acknowledge()
    answer = api.poll(reader.consumer, reader.session, reader.position, wait_ms=0, markers=True)
    assert answer["end"] == answer["head"] == reader.position
    row = api.row(reader.consumer)
    assert row["acknowledged"] == reader.position and row["last_error"] is None
    assert row["unacknowledged_bytes"] == 0


def test_the_daemon_follows_files_without_gtids_over_a_server_crash(
    server_factory: ServerFactory, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """The server is killed during a transaction, and truncates its newest file when it starts again."""
    server = server_factory("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    server.execute("CREATE DATABASE a", "CREATE DATABASE b")
    write(server)
    later = files(tmp_path / "later", follow=True)
    daemon = make_daemon({"live": files(server.datadir, follow=True), "later": later})
    api = daemon.start()
    row = api.until_state("later", "failed")
    assert "the folder cannot be read: No such file or directory" in row["last_error"]
    with pytest.raises(Problem) as caught:
        api.session("later")
    assert caught.value.status == 503 and "No such file" in caught.value.body["detail"]
    reader = Reader(daemon, "live").open()
    reader.read_to(server)
    with load(server, "a") as writing:
        writing.until_written(20)
        server.kill()
    server.start()
    server.execute("INSERT INTO a.t (t) VALUES ('after the crash')")
    reader.read_to(server)
    assert reader.position["gtid"] == ""
    assert (reader.position["file"], reader.position["offset"]) == server.binlog_position()
    seqs = [transaction.seq for transaction in reader.transactions]
    assert seqs == sorted(set(seqs)) and seqs[-1] == packed_seq(*server.binlog_position())
    assert seqs[-1] == tip_seq(server)
