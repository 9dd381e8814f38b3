"""The daemon spills a transaction that is larger than its consumers' queues to disk. It delivers the transaction
completely, needs little memory for it, and leaves no file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.event.types import EventType
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, events, until
from tests.servers import Server

MIB = 1 << 20
ROWS = 8000
LIMIT = {"max_bytes_in_binlog_queue": "1MiB"}


def spilled(daemon: Daemon) -> int:
    """Returns the number of spill files that the daemon has mapped into memory. These files have no names."""
    assert list((daemon.folder / "state.db.spill").iterdir()) == []
    maps = Path(f"/proc/{daemon.pid}/maps").read_text(encoding="utf-8")
    return sum("state.db.spill/" in line for line in maps.splitlines())


def peak_bytes(daemon: Daemon) -> int:
    """Returns the peak of the resident size since `forget_peak`."""
    status = Path(f"/proc/{daemon.pid}/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def forget_peak(daemon: Daemon) -> None:
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5", encoding="ascii")


def text(n: int) -> str:
    """Returns an SQL expression whose value is a text of 7.5 kB."""
    return 117 * hashlib.sha256(str(n).encode()).hexdigest()


def write(server: Server, database: str) -> None:
    """Write one transaction of 60 MB with different rows."""
    numbers = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(20))
    server.execute(
        "INSERT INTO t SELECT a.n + 20 * b.n + 400 * c.n, REPEAT(SHA2(a.n + 20 * b.n + 400 * c.n, 256), 117)"
        f" FROM ({numbers}) a, ({numbers}) b, ({numbers}) c",
        "INSERT INTO t VALUES (100000, 'after')",
        database=database,
    )


def test_a_transaction_larger_than_the_queues_is_spilled_to_disk(
    mysql97: Server, new_database: Callable[[Server], str], make_daemon: MakeDaemon, source: Source
) -> None:
    server, database = mysql97, new_database(mysql97)
    # The engine stores no rows, because the test needs only the log.
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, b TEXT CHARACTER SET ascii) ENGINE=BLACKHOLE",
        database=database,
    )
    daemon = make_daemon({name: source(server, database, **LIMIT) for name in ("one", "two")})
    daemon.start()
    readers = [Reader(daemon, name).open() for name in ("one", "two")]
    forget_peak(daemon)
    base = peak_bytes(daemon)
    write(server, database)
    for reader in readers:
        # Both readers read at the same time: the first one acknowledges only after the second one has the transaction,
        # too.
        while not reader.chunks:
            reader.step(max_bytes=1)
    assert spilled(daemon) >= 2
    assert readers[0].chunks == readers[1].chunks
    (change,) = (c for c in readers[0].changes(f"{database}.t") if isinstance(c, TableChanges))
    rows = {row["id"]: row["b"] for row in change.batch.column("after").to_pylist()}
    assert rows == {n: text(n) for n in range(ROWS)}
    for reader in readers:
        reader.read_to(server)
    until(lambda: spilled(daemon) == 0, "the disk has its space back")
    for reader in readers:
        records = sum(
            kind == EventType.IGNORABLE for chunk in reader.chunks for kind, _ in events(chunk)
        )
        assert records == 2
    more = peak_bytes(daemon) - base
    assert more < 30 * MIB, f"{more / MIB:.0f} MiB more than before"
