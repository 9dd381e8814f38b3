"""Which position a start denotes on a server, and which positions are part of the server's history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatcher.dispatch.history import history_check
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.server_view import Boundary, ServerView
from dispatcher.dispatch.values.specs import AtFile, AtGtid, Earliest, Latest, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import packed_seq

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "0a9d88f8-c14e-11ec-bb36-244bfedf7766"
VIEW = ServerView(
    server="s1",
    mode=Mode.GTID,
    executed=f"{A}:1-100",
    purged=f"{A}:1-20",
    files=(("binlog.000003", 500), ("binlog.000004", 900)),
    file="binlog.000004",
    offset=900,
    created={"binlog.000003": 33, "binlog.000004": 44},
    boundaries={
        ("binlog.000003", 200): Boundary(whole=True, gtid=(A, 31)),
        ("binlog.000003", 299): Boundary(whole=False),
        ("binlog.000003", 300): Boundary(whole=True, gtid=(A, 25)),
    },
)
COMMITTING = replace(VIEW, owned=f"{A}:101-102,{B}:7")
AT_30 = {"gtids": f"{A}:1-30", "file": "binlog.000003", "created": 33}
FILE = replace(VIEW, mode=Mode.FILE, executed="", purged="")
MARIADB = replace(VIEW, mode=Mode.MARIADB, executed="0-1-100", purged="")
DOMAINS = replace(MARIADB, mode=Mode.DOMAINS, purged="0-1-20")


@pytest.mark.parametrize(
    ("view", "start", "executed"),
    [
        (VIEW, Earliest(), make_executed(Mode.GTID, f"{A}:1-20", "binlog.000003", 4)),
        (VIEW, Latest(), make_executed(Mode.GTID, f"{A}:1-100", "binlog.000004", 900)),
        (VIEW, AtGtid(f"{A.upper()}:1-50"), make_executed(Mode.GTID, f"{A}:1-50", "", 0)),
        (FILE, Earliest(), make_executed(Mode.FILE, "", "binlog.000003", 4)),
        (FILE, Latest(), make_executed(Mode.FILE, "", "binlog.000004", 900)),
        (FILE, AtFile("binlog.000003", 120), make_executed(Mode.FILE, "", "binlog.000003", 120)),
        (MARIADB, Latest(), make_executed(Mode.MARIADB, "0-1-100", "binlog.000004", 900)),
    ],
)  # fmt: skip
def test_starts(view: ServerView, start: Start, executed: ExecutedPosition) -> None:
    assert history_check.resolve_start(view, start) == executed
    gtids = executed.gtids
    size = len(gtids) if isinstance(gtids, GtidSet) else 0
    in_file = packed_seq(executed.file, executed.offset)
    assert executed.seq == (size if view.mode is Mode.GTID else in_file)


@pytest.mark.parametrize(
    ("view", "start", "kind", "what"),
    [
        (VIEW, AtGtid(f"{A}:1-10"), ErrorKind.POSITION_PURGED, f"has purged {A}:11-20"),
        (
            VIEW,
            AtGtid(f"{A}:1-101"),
            ErrorKind.HISTORY_DIFFERS,
            f"never executed {A}:101",
        ),
        (VIEW, AtGtid("nonsense"), ErrorKind.SETTINGS, "not a GTID set"),
        (
            VIEW,
            AtFile("binlog.000003"),
            ErrorKind.SERVER_SETTING,
            "it has GTIDs",
        ),
        (FILE, AtGtid(f"{A}:1"), ErrorKind.SERVER_SETTING, "has no MySQL GTIDs"),
        (FILE, AtFile("binlog.000002"), ErrorKind.POSITION_PURGED, "binlog.000002"),
        (
            FILE,
            AtFile("binlog.000009"),
            ErrorKind.HISTORY_DIFFERS,
            "newer than the server",
        ),
        (
            FILE,
            AtFile("binlog.000003", 501),
            ErrorKind.HISTORY_DIFFERS,
            "500 bytes",
        ),
    ],
)
def test_a_start_that_the_server_does_not_have_is_refused(
    view: ServerView, start: Start, kind: ErrorKind, what: str
) -> None:
    with pytest.raises(BinlogError, match=what) as info:
        history_check.resolve_start(view, start)
    assert info.value.kind is kind


def history(view: ServerView, gtids: str = "", file: str = "", offset: int = 4, *, server: str = "s1",
            created: int = 0, mode: Mode | None = None, anchored: bool = True) -> None:  # fmt: skip
    mode = view.mode if mode is None else mode
    executed = make_executed(mode, gtids, file, offset)
    history_check.check_history(view, mode, server, executed, created, anchored=anchored)


@pytest.mark.parametrize(
    "good",
    [
        {"gtids": f"{A}:1-20"},
        {"gtids": f"{A}:1-100", "file": "binlog.000004", "offset": 900, "created": 44},
        {"gtids": f"{A}:1-30", "file": "binlog.000003", "created": 0},
        {"gtids": f"{A}:1-30", "file": "binlog.000003", "offset": 200, "created": 33},
        # A position that is not anchored: executed transactions may follow it.
        AT_30 | {"offset": 300, "anchored": False},
        {"gtids": f"{A}:1-20", "file": "binlog.000001", "created": 11},  # purged with its file
        # Transactions of a position that is not anchored may lie in later files.
        {"gtids": f"{A}:1-30", "file": "binlog.000001", "created": 11, "anchored": False},
        {"gtids": f"{A}:1-30:50", "file": "binlog.000003", "offset": 500, "created": 33},
        # Another server, after a failover: only the GTIDs count.
        {"gtids": f"{A}:1-30", "file": "binlog.000099", "created": 11, "server": "s0"},
    ],
)  # fmt: skip
def test_gtid_positions_of_this_history_are_accepted(good: dict[str, Any]) -> None:
    history(VIEW, **good)


def test_what_the_server_has_sent_and_not_executed_yet_is_history() -> None:
    history(COMMITTING, gtids=f"{A}:1-102,{B}:7", file="binlog.000004", offset=900, created=44)
    with pytest.raises(BinlogError, match=f"never executed {A}:103;"):
        history(COMMITTING, gtids=f"{A}:1-103")
    assert history_check.resolve_start(COMMITTING, Latest()).gtids == GtidSet.parse(f"{A}:1-100")


@pytest.mark.parametrize(
    ("bad", "kind", "what"),
    [
        ({"gtids": f"{A}:1-20,{B}:1"}, ErrorKind.HISTORY_DIFFERS, f"never executed {B}:1;"),
        ({"gtids": f"{A}:1-101"}, ErrorKind.HISTORY_DIFFERS, f"never executed {A}:101;"),
        ({"gtids": f"{A}:2-30"}, ErrorKind.POSITION_PURGED, f"has purged {A}:1;"),
        ({"gtids": ""}, ErrorKind.POSITION_PURGED, f"has purged {A}:1-20;"),
        # After a RESET and the same number of new transactions: the same GTIDs, but other files.
        ({"gtids": f"{A}:1-30", "file": "binlog.000003", "created": 31}, ErrorKind.HISTORY_DIFFERS, "created at 33"),
        ({"gtids": f"{A}:1-30", "file": "binlog.000005"}, ErrorKind.HISTORY_DIFFERS, "newer than the server's newest"),
        # A RESET within one second: the file has the same creation time, but is shorter, or has other events.
        (AT_30 | {"offset": 501}, ErrorKind.HISTORY_DIFFERS, "has 500 bytes, the position is 501"),
        (AT_30 | {"offset": 299}, ErrorKind.HISTORY_DIFFERS, "no event that ends at 299"),
        (AT_30 | {"offset": 300}, ErrorKind.HISTORY_DIFFERS, f"{A}:25 begins at binlog.000003:300, and was"),
        # Restored from an older copy: the file is purged, and later files have other transactions with the same GTIDs.
        (
            {"gtids": f"{A}:1-30", "file": "binlog.000001", "created": 11},
            ErrorKind.HISTORY_DIFFERS,
            f"but not {A}:21-30",
        ),
        ({"gtids": f"{A}:1-30", "mode": Mode.FILE}, ErrorKind.HISTORY_DIFFERS, "the position is of mode file"),
    ],
)  # fmt: skip
def test_gtid_positions_of_another_history_are_refused(
    bad: dict[str, Any], kind: ErrorKind, what: str
) -> None:
    with pytest.raises(BinlogError, match=what) as info:
        history(VIEW, **bad)
    assert info.value.kind is kind


def test_another_host_of_mariadb_must_be_shown_to_have_the_gtids() -> None:
    """A newer GTID of the domain does not show this. The server that the position was read from is not searched."""
    at: dict[str, Any] = {"gtids": "0-1-90", "file": "binlog.000099", "created": 11}
    history(DOMAINS, **{**at, "file": "binlog.000003", "created": 33})
    with pytest.raises(BinlogError, match="was not searched for 0-1-90"):
        history(DOMAINS, **at, server="s0")
    start = history_check.continuation(
        Mode.DOMAINS, "s0", make_executed(Mode.DOMAINS, "0-1-90", "binlog.000099", 4)
    )
    assert start == AtGtid("0-1-90", "s0")
    found = make_executed(Mode.DOMAINS, "0-1-90", "", 0)
    history(replace(DOMAINS, starts={start: found}), **at, server="s0")
    other = BinlogError(ErrorKind.HISTORY_DIFFERS, "there it has 0-2-90")
    with pytest.raises(BinlogError, match="there it has 0-2-90"):
        history(replace(DOMAINS, starts={start: other}), **at, server="s0")
    for gtids, what in (("0-1-101", "never executed 0-1-101"), ("0-1-19", "has purged 0-1-20")):
        with pytest.raises(BinlogError, match=what):
            history(DOMAINS, gtids=gtids, server="s0")


@pytest.mark.parametrize(
    ("mode", "before", "what"),
    [(Mode.DOMAINS, Mode.MARIADB, "of one host"), (Mode.MARIADB, Mode.DOMAINS, "of several")],
)
def test_a_position_of_one_host_is_no_position_of_several(
    mode: Mode, before: Mode, what: str
) -> None:
    stored = make_executed(before, "0-1-90", "binlog.000003", 200).position("mariadb-1", 7)
    with pytest.raises(BinlogError, match=what) as caught:
        history_check.stored_position(mode, stored)
    assert "move the consumer to 0-1-90: binlog-dispatcher consumers seek" in caught.value.remedy


@pytest.mark.parametrize("view", [FILE, MARIADB])
def test_file_positions_are_compared_with_the_files(view: ServerView) -> None:
    history(view, file="binlog.000004", offset=900, created=44)
    history(view, file="binlog.000003", offset=4)
    for bad, kind in (
        ({"file": "binlog.000004", "offset": 901}, ErrorKind.HISTORY_DIFFERS),
        ({"file": "binlog.000004", "created": 43}, ErrorKind.HISTORY_DIFFERS),
        ({"file": "binlog.000005"}, ErrorKind.HISTORY_DIFFERS),
        ({"file": "binlog.000002"}, ErrorKind.POSITION_PURGED),
        ({"file": "binlog.000004", "server": "s2"}, ErrorKind.HISTORY_DIFFERS),
    ):
        with pytest.raises(BinlogError) as info:
            history(view, **bad)
        assert info.value.kind is kind


def test_the_last_offset_in_each_file_is_probed_and_a_few_more() -> None:
    assert history_check.offsets_to_probe(
        [("f2", 9), ("f1", 4), ("f2", 5), ("", 0), ("f2", 9)]
    ) == [
        ("f1", 4),
        ("f2", 5),
        ("f2", 9),
    ]
    probed = history_check.offsets_to_probe(("f1", offset) for offset in range(1000))
    assert len(probed) == 9
    assert ("f1", 999) in probed


def test_a_long_set_is_abbreviated_in_messages() -> None:
    many = ":".join(f"{n}" for n in range(1000, 3000, 2))
    with pytest.raises(BinlogError, match=r"\(1000 transactions\)"):
        history(VIEW, gtids=f"{A}:1-100:{many}")
