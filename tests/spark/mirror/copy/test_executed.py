"""Which changes of the log are visible in a snapshot: decided by GTID, by place in the log, or by MariaDB's domains."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position, packed_seq
from spark_sink.mirror.rules.executed import Snapshot

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429563"


def changes(*transactions: tuple[int, str | None]) -> pa.RecordBatch:
    """Returns one change for each transaction (seq, GTID)."""
    seqs, gtids = zip(*transactions, strict=True)
    columns = {"seq": pa.array(seqs, pa.int64()), "gtid": pa.array(gtids, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def unseen(snapshot: Snapshot, *transactions: tuple[int, str | None]) -> Sequence[str | None]:
    gtids_left: list[str | None] = (
        snapshot.unseen(changes(*transactions)).column("gtid").to_pylist()
    )
    return gtids_left


def gtids(server: str, executed: str, count: int) -> Position:
    return Position(server, executed, "b.000002", 700, count, 0)


def place(server: str, gtid: str = "", offset: int = 700) -> Position:
    return Position(server, gtid, "b.000002", offset, packed_seq("b.000002", offset), 0)


def test_a_server_with_gtids_tells_by_its_set_whatever_the_order_of_its_log() -> None:
    """A transaction may commit before an earlier transaction of the log, and may have another seq on a replica."""
    snapshot = Snapshot(gtids("a", "", 0), gtids("a", f"{UUID}:1-5:9,{OTHER}:3", 7))
    found = unseen(
        snapshot,
        (5, f"{UUID}:5"),
        (6, f"{UUID}:6"),
        (7, f"{UUID}:9"),
        (8, f"{OTHER}:3"),
        (3, f"{OTHER}:4"),
    )
    assert found == [f"{UUID}:6", f"{OTHER}:4"]


def test_a_server_without_gtids_tells_by_the_place_in_its_log() -> None:
    snapshot = Snapshot(place("a", offset=4), place("a"))
    seqs = [packed_seq("b.000002", 699), packed_seq("b.000002", 700), packed_seq("b.000002", 701)]
    rotated = packed_seq("b.000003", 200)
    kept = snapshot.unseen(changes(*((seq, None) for seq in [*seqs, rotated]))).column("seq")
    assert kept.to_pylist() == [seqs[-1], rotated]


def test_mariadb_tells_by_the_place_in_its_log() -> None:
    snapshot = Snapshot(place("mariadb-1", "0-1-4", 4), place("mariadb-1", "0-1-9"))
    earlier, later = packed_seq("b.000002", 700), packed_seq("b.000002", 701)
    # Without gtid_strict_mode, a number may be out of order.
    assert unseen(snapshot, (earlier, "0-1-10"), (later, "0-1-8")) == ["0-1-8"]


def test_a_replica_of_mariadb_tells_by_the_numbers_of_its_domains() -> None:
    snapshot = Snapshot(place("mariadb-1", "0-1-4", 4), place("mariadb-2", "0-1-9,2-1-3"))
    found = unseen(snapshot, (1, "0-1-9"), (2, "0-2-10"), (3, "2-1-3"), (4, "3-1-1"))
    assert found == ["0-2-10", "3-1-1"]


def test_another_server_without_gtids_tells_nothing() -> None:
    with pytest.raises(BinlogError, match="cannot be compared"):
        unseen(Snapshot(place("a"), place("b")), (1, None))


def test_a_transaction_without_a_gtid_is_not_guessed() -> None:
    snapshot = Snapshot(gtids("a", "", 0), gtids("a", f"{UUID}:1-5", 5))
    with pytest.raises(BinlogError, match="without a GTID") as caught:
        unseen(snapshot, (5, f"{UUID}:5"), (6, None))
    assert caught.value.kind is ErrorKind.SERVER_SETTING
