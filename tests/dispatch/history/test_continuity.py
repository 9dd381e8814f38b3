"""Whether the next file of a dump continues the log that was read before."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.dispatch.history.continuity import (
    Continuity,
    HeadVerdict,
    QueuedPosition,
    history_error,
    may_skip,
)
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Mode,
    make_executed,
    parse_gtids,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.gtid import GtidSet
from dispatcher.stream.batch import Batch, Head
from tests.support.fake_batch import batch_of

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "0a9d88f8-c14e-11ec-bb36-244bfedf7766"
TAGGED = f"{A}:1-30:tag:1-4,{B}:1-7:9"
GTIDS = {
    Mode.GTID: f"{A}:1-30",
    Mode.MARIADB: "0-1-30,7-2-5",
    Mode.DOMAINS: "0-1-30,7-2-5",
    Mode.FILE: "",
}
CLOSED = 1000


def view(mode: Mode, **more: Any) -> ServerView:
    fields: dict[str, Any] = {
        "server": "s1",
        "mode": mode,
        "executed": GTIDS[mode],
        "purged": "",
        "files": (("binlog.000002", 500), ("binlog.000003", CLOSED - 60)),
        "file": "binlog.000003",
        "offset": CLOSED - 60,
        "created": {"binlog.000003": 33},
    }
    return ServerView(**fields | more)


def read_to(mode: Mode, gtids: str | None = None, file: str = "binlog.000003") -> ExecutedPosition:
    return make_executed(mode, GTIDS[mode] if gtids is None else gtids, file, CLOSED - 60)


def begun(
    mode: Mode, *, anchored: bool = True, gtids: str | None = None, **more: Any
) -> Continuity:
    continuity = Continuity()
    continuity.begin(read_to(mode, gtids), view(mode, **more), anchored=anchored)
    return continuity


def head(
    mode: Mode,
    previous: str | None = None,
    *,
    before: str = "binlog.000003",
    file: str = "binlog.000004",
    transactions: int = 0,
) -> Batch:
    """Returns the first batch of a file. `previous`: the GTID set in the file's head, None if it is not received
    yet."""
    gtids = None if previous is None else parse_gtids(mode, previous)
    return batch_of(file, 200, Head(before, CLOSED, gtids), transactions=transactions)


@pytest.mark.parametrize(
    ("mode", "gtids"),
    [
        (Mode.GTID, GTIDS[Mode.GTID]),
        (Mode.GTID, TAGGED),
        (Mode.MARIADB, GTIDS[Mode.MARIADB]),
        (Mode.DOMAINS, GTIDS[Mode.DOMAINS]),
    ],
)
def test_a_head_with_exactly_the_read_gtids_follows(mode: Mode, gtids: str) -> None:
    continuity = begun(mode, gtids=gtids, file="binlog.000009")
    batch = head(mode, gtids)
    assert continuity.judge(batch, mode, read_to(mode, gtids)) is HeadVerdict.FOLLOWS


@pytest.mark.parametrize(
    ("mode", "previous"),
    [
        (Mode.GTID, f"{A}:1-50"),  # more transactions than were read
        (Mode.GTID, f"{A}:1-20"),  # fewer transactions than were read
        (Mode.GTID, ""),
        (Mode.GTID, f"{A}:1-30,{B}:1"),
        (Mode.MARIADB, "0-1-50,7-2-5"),
        (Mode.MARIADB, "0-1-20,7-2-5"),
        (Mode.MARIADB, "0-1-30"),
        (Mode.MARIADB, "0-3-30,7-2-5"),
        (Mode.MARIADB, ""),
        (Mode.DOMAINS, "0-1-50,7-2-5"),
        (Mode.DOMAINS, "0-1-20,7-2-5"),
        (Mode.DOMAINS, "0-1-30"),
        (Mode.DOMAINS, ""),
    ],
)
def test_a_head_with_other_gtids_differs_and_is_accepted_after_a_login(
    mode: Mode, previous: str
) -> None:
    continuity, batch = begun(mode, file="binlog.000009"), head(mode, previous)
    assert continuity.judge(batch, mode, read_to(mode)) is HeadVerdict.DIFFERS
    continuity.begin(read_to(mode), view(mode, file="binlog.000009"), anchored=True)
    assert continuity.judge(batch, mode, read_to(mode)) is HeadVerdict.FOLLOWS


def test_a_mariadb_head_may_list_domains_that_were_not_read() -> None:
    continuity = begun(Mode.MARIADB, file="binlog.000009")
    batch = head(Mode.MARIADB, "0-1-30,7-2-5,9-1-1000")
    assert continuity.judge(batch, Mode.MARIADB, read_to(Mode.MARIADB)) is HeadVerdict.FOLLOWS


def test_gtids_executed_before_the_stream_may_lie_behind_the_head() -> None:
    """After a start at a GTID set, or after a failover, only the transactions that this stream has read must lie before
    the head."""
    held, read = f"{A}:1-10:20-30", f"{A}:1-12:20-30"
    continuity = begun(Mode.GTID, anchored=False, gtids=held, file="binlog.000009")
    assert continuity.judge(head(Mode.GTID, f"{A}:1-12"), Mode.GTID, read_to(Mode.GTID, read)) is (
        HeadVerdict.FOLLOWS
    )
    continuity = begun(Mode.GTID, anchored=False, gtids=held, file="binlog.000009")
    assert continuity.judge(head(Mode.GTID, f"{A}:1-11"), Mode.GTID, read_to(Mode.GTID, read)) is (
        HeadVerdict.DIFFERS
    )


def test_a_dump_by_gtids_may_begin_in_an_older_file() -> None:
    continuity = begun(Mode.GTID)
    for before, file, previous in (
        ("", "binlog.000001", ""),
        ("binlog.000001", "binlog.000002", f"{A}:1-9"),
        ("binlog.000002", "binlog.000003", f"{A}:1-20"),
    ):
        batch = head(Mode.GTID, previous, before=before, file=file)
        assert continuity.judge(batch, Mode.GTID, read_to(Mode.GTID)) is HeadVerdict.FOLLOWS


@pytest.mark.parametrize("mode", [Mode.GTID, Mode.MARIADB, Mode.DOMAINS])
def test_a_head_without_gtids_yet_is_unknown(mode: Mode) -> None:
    continuity = begun(mode)
    assert continuity.judge(head(mode), mode, read_to(mode)) is HeadVerdict.UNKNOWN
    # If a transaction comes first, the server is asked.
    assert continuity.judge(head(mode, transactions=1), mode, read_to(mode)) is HeadVerdict.ASK


@pytest.mark.parametrize("mode", list(Mode))
def test_the_server_is_asked_about_a_file_that_was_open_when_the_dump_began(
    mode: Mode,
) -> None:
    continuity, batch = begun(mode), head(mode, GTIDS[mode])
    assert continuity.judge(batch, mode, read_to(mode)) is HeadVerdict.ASK
    assert continuity.confirm(batch, {"binlog.000003": CLOSED, "binlog.000004": 200})
    assert continuity.judge(batch, mode, read_to(mode)) is HeadVerdict.FOLLOWS


@pytest.mark.parametrize(
    ("size", "good"), [(CLOSED, True), (CLOSED + 512, True), (None, True), (CLOSED - 1, False)]
)
def test_the_previous_file_has_the_size_that_was_read_or_was_purged(
    size: int | None, good: bool
) -> None:
    """An encrypted file is larger than its events, by the size of the encryption header."""
    continuity, batch = begun(Mode.FILE), head(Mode.FILE)
    sizes = {"binlog.000004": 200} | ({} if size is None else {"binlog.000003": size})
    assert continuity.confirm(batch, sizes) is good
    assert continuity.confirm(batch, sizes)  # a login has found no fault since


def test_a_folder_of_files_is_not_asked() -> None:
    continuity = begun(Mode.FILE, knows_tables=False)
    assert continuity.judge(head(Mode.FILE), Mode.FILE, read_to(Mode.FILE)) is HeadVerdict.FOLLOWS


def test_a_stream_is_anchored_where_the_log_ended_at_the_login() -> None:
    continuity = begun(Mode.GTID, anchored=False, executed=f"{A}:1-60,{B}:1-9")
    nothing = BatchGtids.of(batch_of("binlog.000003", CLOSED, None))
    continuity.advance(make_executed(Mode.GTID, "", "binlog.000003", CLOSED - 61), nothing)
    assert not continuity.anchored
    continuity.advance(make_executed(Mode.GTID, "", "binlog.000003", CLOSED - 60), nothing)
    assert continuity.anchored


def test_a_view_is_compared_with_the_queued_positions() -> None:
    executed = read_to(Mode.GTID)
    at = QueuedPosition(Mode.GTID, "s1", executed, 33, anchored=True)
    assert history_error(view(Mode.GTID), [at]) is None
    shorter = (("binlog.000003", CLOSED - 61),)
    others: list[dict[str, Any]] = [
        {"executed": f"{A}:1-29"},
        {"files": shorter},
        {"created": {"binlog.000003": 34}},
        {"files": (("binlog.000002", 99),)},
    ]
    for other in others:
        assert history_error(view(Mode.GTID, **other), [at]) is not None, other
    # The next login decides about these views.
    others = [
        {"server": "s2", "executed": ""},
        {"files": (("binlog.000004", 99),), "purged": f"{A}:1-31", "executed": f"{A}:1-31"},
    ]
    for other in others:
        assert history_error(view(Mode.GTID, **other), [at]) is None, other
    assert history_error(view(Mode.FILE), [at]) is None


def test_a_dump_from_a_set_with_gaps_may_skip_transactions() -> None:
    def skips(held: str, executed: str) -> bool:
        return may_skip(GtidSet.parse(held), GtidSet.parse(executed))

    assert not skips(f"{A}:1-5", f"{A}:1-9")
    assert not skips(f"{A}:1-9", f"{A}:1-9")
    assert skips(f"{A}:1-5:7", f"{A}:1-9")
    assert skips(f"{A}:1-5,{B}:1", f"{A}:1-9,{B}:1")


def test_an_executed_transaction_may_lie_behind_one_that_is_being_committed() -> None:
    """The log contains transaction 31, which was sent before it was in the executed set, and after it transaction 32,
    which the consumer has."""
    held, read = f"{A}:1-30:32", f"{A}:1-32"
    continuity = begun(
        Mode.GTID, anchored=False, gtids=held, owned=f"{A}:31-32", file="binlog.000009"
    )
    batch = batch_of("binlog.000003", CLOSED, None, transactions=1)
    continuity.advance(read_to(Mode.GTID, read), BatchGtids.of(batch))
    assert not continuity.anchored
