"""A folder is used by one thread at a time."""

from __future__ import annotations

import threading

from spark_sink.mirror.runtime.busy_folders import BusyFolders

DEADLINE_S = 20.0


def test_a_move_waits_for_the_folder_that_maintenance_uses() -> None:
    busy, moved, others = BusyFolders(), threading.Event(), threading.Event()

    def move(folders: list[str], done: threading.Event) -> None:
        with busy.using(folders):
            done.set()

    with busy.using(["db/t"]):
        waits = threading.Thread(target=move, args=(["db/t", "db/u"], moved))
        waits.start()
        other = threading.Thread(target=move, args=(["db/v"], others))
        other.start()
        assert others.wait(DEADLINE_S)
        assert not moved.is_set()
    assert moved.wait(DEADLINE_S)
    for thread in (waits, other):
        thread.join(DEADLINE_S)
    with busy.using(["db/t", "db/u", "db/v"]):
        pass


def test_a_failure_frees_the_folders() -> None:
    busy = BusyFolders()
    try:
        with busy.using(["db/t"]):
            raise ValueError
    except ValueError:
        pass
    with busy.using(["db/t"]):
        pass
