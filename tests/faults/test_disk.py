"""The disk is full: the daemon acknowledges nothing that it has not stored, does not disturb other consumers, and
continues when there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Problem, Reader, until
from tests.faults.churn import Copy, check_all, churn, create, reading
from tests.faults.disk import SmallDisk
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

pytestmark = pytest.mark.rotate(1, of="full disks")

MIB = 1 << 20
BIG_ROWS = 8000  # rows of 1 kB each, in one transaction


@pytest.fixture(scope="module")
def started(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory("mysql97")


@pytest.fixture
def server(started: Instance) -> Iterator[Instance]:
    create(started, ["a", "b"])
    yield started
    started.execute("DROP DATABASE a", "DROP DATABASE b")


def on_disk(daemon: Daemon, disk: SmallDisk) -> Daemon:
    daemon.within = disk.within
    daemon.state = disk.folder / "state.db"
    return daemon


def open_copies(daemon: Daemon, **databases: list[str]) -> list[Copy]:
    return [Copy(Reader(daemon, name).open(), names) for name, names in databases.items()]


def write_big(server: Instance, first: int) -> None:
    server.execute(
        f"SET cte_max_recursion_depth = {BIG_ROWS}",
        f"INSERT INTO a.churn WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {BIG_ROWS})"
        f" SELECT {first} + n, n, REPEAT('x', 1000) FROM s",
    )


def spilled(row: dict[str, Any]) -> int:
    return int(row["spilled_bytes"])


def test_a_full_disk_refuses_acknowledgements_and_sessions(
    server: Instance, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    with SmallDisk(tmp_path / "disk", MIB) as disk:
        daemon = on_disk(make_daemon({"a": source(server, "a"), "b": source(server, "b")}), disk)
        api = daemon.start()
        copies = open_copies(daemon, a=["a"], b=["b"])
        with reading(copies), churn(server, ["a", "b"]) as writing:
            writing.until_written(50)
            disk.fill()
            for copy in copies:
                until(lambda copy=copy: "STATE_STORE" in copy.problems, "nothing can be stored")  # type: ignore[misc]
            assert api.text("/livez") == "ok\n"
            for row in api.rows().values():
                assert "database or disk is full" in row["state_store_error"]
                assert row["state_store_error"].endswith(row["state_store_remedy"])
            writing.until_written(50)
            # A reader may continue only after its position is stored, and a session begins only after its number is
            # stored.
            with pytest.raises(Problem) as caught:
                api.session("a")
            assert (caught.value.status, caught.value.kind) == (503, "STATE_STORE")
            assert caught.value.body["hint"]
            disk.free()
            before = [copy.reader.position["seq"] for copy in copies]
            until(
                lambda: all(
                    copy.reader.position["seq"] > seq
                    for copy, seq in zip(copies, before, strict=True)
                ),
                "they go on",
            )
            until(lambda: api.row("a")["state_store_error"] is None, "no fault is left")
        rows = check_all(server, copies)
        with churn(server, ["a", "b"], seed=1) as writing:
            writing.until_written(20)
            disk.fill()
            writing.until_written(20)
            daemon.kill()
        disk.free()
        daemon.start()
        rows = check_all(server, copies)
        refused = sum(copy.problems.count("STATE_STORE") for copy in copies)
        print(f"state on a full disk: {refused} answers that it is full, {rows} rows equal")


@pytest.mark.parametrize("by", ["disk", "setting"])
def test_a_transaction_without_room_on_disk_waits_for_room(
    by: str, server: Instance, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    """Only the consumer of the transaction waits for room."""
    with SmallDisk(tmp_path / "disk", 24 * MIB) as disk:
        consumers = {
            "big": source(server, "a", max_bytes_in_binlog_queue=MIB),
            "other": source(server, "b"),
        }
        limit = {"state": {"max_bytes_in_spill": "2MiB"}} if by == "setting" else {}
        daemon = on_disk(make_daemon(consumers, **limit), disk)
        api = daemon.start()
        big, other = copies = open_copies(daemon, big=["a"], other=["b"])
        with churn(server, ["a", "b"]) as writing:
            writing.until_written(20)
        check_all(server, copies)
        if by == "disk":
            disk.fill(but=3 * MIB)
        write_big(server, 10**6)
        row = until(lambda: r if (r := api.row("big"))["last_error"] else None, "there is no room")
        assert row is not None
        assert "spill" in row["last_error"], row
        with churn(server, ["b"], seed=1) as writing, reading([big, other]):
            seen = other.reader.position["seq"]
            writing.until_written(50)
            until(lambda: other.reader.position["seq"] > seen + 40, "the other one reads on")
        assert big.reader.position["seq"] < other.reader.position["seq"]
        if by == "disk":
            disk.free()
        else:
            daemon.stop()
            daemon.settings["state"] = {"max_bytes_in_spill": "20MiB"}
            daemon.start()
        peak = [0]

        def arrived() -> bool:
            big.step()
            peak.append(spilled(api.row("big")))
            return len(big.tables["a"]) >= BIG_ROWS

        until(arrived, "it is read")
        rows = check_all(server, copies)
        until(lambda: spilled(api.row("big")) == 0, "what was acknowledged leaves the disk")
        print(
            f"spill, no room by {by}: {max(peak) / MIB:.1f} MiB spilled at most, {rows} rows equal"
        )
