"""Writes of several threads share a commit, and each thread learns how it ended."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from spark_sink.mirror.lake.group_commit import GroupCommit
from tests.daemon.harness import until


class Commits:
    """Commits that wait until `go` is set; `made`: the items of each. A commit with an item < 0 fails."""

    def __init__(self) -> None:
        self.made: list[list[int]] = []
        self.go = threading.Event()

    def __call__(self, items: list[int]) -> None:
        self.made.append(items)
        assert self.go.wait(10)
        if min(items) < 0:
            raise OSError("the disk is full")


def run(*groups: list[int]) -> tuple[list[list[int]], list[BaseException | None]]:
    """Add the first group, and the others while it is committed. Returns the commits, and how each group ended."""
    commits = Commits()
    group_commit = GroupCommit(commits)
    with ThreadPoolExecutor(len(groups)) as pool:
        ends: list[Future[None]] = []
        for number, items in enumerate(groups):
            ends.append(pool.submit(group_commit.add, items))
            until(lambda: len(commits.made) == 1, "the first commit has begun")
            until(lambda: group_commit.waiting == number, "the thread waits")  # noqa: B023
        commits.go.set()
        return commits.made, [end.exception(10) for end in ends]


def test_threads_that_wait_share_a_commit() -> None:
    made, errors = run([1], [2, 3], [4], [5, 6])
    assert made == [[1], [2, 3, 4, 5, 6]]
    assert errors == [None] * 4


def test_each_thread_of_a_failed_commit_raises_and_the_next_goes_on() -> None:
    made, errors = run([1], [2], [-1], [4])
    assert made == [[1], [2, -1, 4]]
    assert errors[0] is None
    assert [str(error) for error in errors[1:]] == ["the disk is full"] * 3


def test_a_commit_alone_raises_and_the_next_one_is_made() -> None:
    commits = Commits()
    commits.go.set()
    group_commit = GroupCommit(commits)
    with pytest.raises(OSError, match="full"):
        group_commit.add([-1])
    group_commit.add([1])
    assert commits.made == [[-1], [1]]
