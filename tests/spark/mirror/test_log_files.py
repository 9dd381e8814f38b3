"""Reads the files of the log from its commits."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, cast

import pytest

from spark_sink.mirror.log.files import (
    LogCommit,
    LogFile,
    LogFiles,
    _Known,
    _of,
    added_file,
    parse_commit,
)

DAY = date(2026, 11, 22)


def add(path: str, **more: Any) -> str:
    action = {"path": path, "partitionValues": {"consumer": "a b", "day": "2026-11-22"}} | more
    return json.dumps({"add": action})


def test_a_commit_names_files_with_their_lsns_and_paths_that_are_gone() -> None:
    stats = json.dumps({"numRecords": 3, "minValues": {"lsn": 5}, "maxValues": {"lsn": 9}})
    text = "\n".join(
        (
            '{"commitInfo":{"operation":"OPTIMIZE"}}',
            '{"txn":{"appId":"x","version":7}}',
            add("consumer=a%20b/day=2026-11-22/one.parquet", stats=stats),
            '{"remove":{"path":"consumer=a%20b/day=2026-11-22/old.parquet","dataChange":false}}',
            "",
        )
    )
    assert parse_commit(text) == LogCommit(
        (LogFile("consumer=a b/day=2026-11-22/one.parquet", "a b", DAY, 5, 9),),
        frozenset(("consumer=a b/day=2026-11-22/old.parquet",)),
    )


@pytest.mark.parametrize("separator", ["\u2028", "\u0085"])
def test_only_a_newline_ends_an_action(separator: str) -> None:
    """Delta writes the characters of a comment unescaped, and `str.splitlines` also splits at these."""
    comment = json.dumps({"commitInfo": {"comment": f"a{separator}b"}}, ensure_ascii=False)
    commit = parse_commit(f"{comment}\n{add('one.parquet')}")
    assert [file.path for file in commit.added] == ["one.parquet"]


def test_a_file_without_stats_may_hold_any_lsn() -> None:
    found = added_file("f", {"consumer": "c", "day": "2026-11-22"}, None)
    assert (found.first, found.last) == (0, 2**63 - 1)
    assert parse_commit(add("f")).added[0].last == 2**63 - 1


def test_files_that_are_not_kept_in_memory_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    day = date(2026, 1, 1)
    stored = [LogFile(f"f{i}", "shop", day, i, i) for i in range(1, 9)]
    loads: list[int] = []

    class Stored(LogFiles):
        def _load(self, consumer: str, floor: int) -> _Known:
            loads.append(floor)
            return _Known(0, floor, _of(consumer, floor, stored))

    monkeypatch.setattr("spark_sink.mirror.log.files.delta_version", lambda *_: 0)
    monkeypatch.setattr("spark_sink.mirror.log.files.FILES_MAX", 4)
    files = Stored(cast("Any", None), "log")
    for after in (0, 6, 2, 8):
        assert [f.last for f in files.after("shop", after)] == list(range(after + 1, 9))
    assert loads == [0, 6, 2]
