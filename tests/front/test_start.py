"""Where the session of a dump begins."""

from __future__ import annotations

from dispatcher.dispatch.queue.queue import HeldRange
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.dispatch.values.specs import AtFile, AtGtid, Earliest
from dispatcher.front.dump.options import AfterGtids, AfterPlace
from dispatcher.front.start import InQueue, beginning
from dispatcher.model.gtid import GtidSet, MariadbGtids

UUID, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def held(
    mode: Mode, first: tuple[str, str, int], last: tuple[str, str, int], *, anchored: bool = True
) -> HeldRange:
    """What a queue holds between two positions, each with GTIDs, file and offset."""
    acknowledged, queued = make_executed(mode, *first), make_executed(mode, *last)
    return HeldRange(mode, acknowledged, queued, anchored)


GTID = held(Mode.GTID, (f"{UUID}:1-5", "binlog.000002", 500), (f"{UUID}:1-9", "binlog.000003", 100))
MARIADB = held(Mode.MARIADB, ("0-1-5,1-1-7", "bin.000002", 500), ("0-1-9,1-1-7", "bin.000003", 100))


def test_a_place_in_the_queue() -> None:
    for file, offset in (("binlog.000002", 500), ("binlog.000002", 777), ("binlog.000003", 100)):
        assert beginning(AfterPlace(file, offset), GTID) == InQueue()


def test_places_outside_of_the_queue_are_searched_also_inside_of_transactions() -> None:
    for file, offset in (("binlog.000002", 499), ("binlog.000001", 900), ("binlog.000003", 101)):
        assert beginning(AfterPlace(file, offset), GTID) == AtFile(file, offset, inside=True)


def test_another_log_is_not_the_queue_s() -> None:
    place = AfterPlace("mysqld-bin.000002", 600)
    assert beginning(place, GTID) == AtFile("mysqld-bin.000002", 600, inside=True)


def test_without_a_file_the_log_begins_with_the_first() -> None:
    assert beginning(AfterPlace("", 4), GTID) == Earliest()


def test_the_files_of_a_queue_may_be_unknown() -> None:
    moved = held(Mode.GTID, (f"{UUID}:1-5", "", 0), (f"{UUID}:1-9", "binlog.000003", 100))
    place = AfterPlace("binlog.000003", 50)
    assert beginning(place, moved) == AtFile("binlog.000003", 50, inside=True)


def test_a_queue_that_lacks_transactions_behind_its_file_and_offset() -> None:
    """The consumer began at a set with a gap, whose transactions lie after the set's file and offset."""
    first = (f"{UUID}:1-3:5", "binlog.000002", 500)
    queue = held(Mode.GTID, first, (f"{UUID}:1-3:5-9", "binlog.000003", 100), anchored=False)
    place = AfterPlace("binlog.000002", 600)
    assert beginning(place, queue) == AtFile("binlog.000002", 600, inside=True)
    assert beginning(AfterGtids(GtidSet.parse(first[0])), queue) == InQueue()


def test_a_client_that_has_what_was_acknowledged_is_served_by_the_queue() -> None:
    for gtids in (f"{UUID}:1-5", f"{UUID}:1-6:8", f"{UUID}:1-50,{OTHER}:1-3"):
        assert beginning(AfterGtids(GtidSet.parse(gtids)), GTID) == InQueue()


def test_a_client_that_lacks_something_older_is_served_by_the_log() -> None:
    for gtids in ("", f"{UUID}:1-4", f"{UUID}:2-9"):
        assert beginning(AfterGtids(GtidSet.parse(gtids)), GTID) == AtGtid(gtids)


def test_transactions_that_the_source_has_not_executed_are_left_to_the_client() -> None:
    executed = GtidSet.parse(f"{UUID}:1-9")
    asked = AfterGtids(GtidSet.parse(f"{UUID}:1-4,{OTHER}:1-3"))
    assert beginning(asked, GTID, executed) == AtGtid(f"{UUID}:1-4")


def test_a_state_of_mariadb() -> None:
    for state in ("0-1-5,1-1-7", "0-2-8,1-1-9"):
        assert beginning(AfterGtids(MariadbGtids.parse(state)), MARIADB) == InQueue()
    for state in ("", "0-1-5", "0-1-4,1-1-7"):
        assert beginning(AfterGtids(MariadbGtids.parse(state)), MARIADB) == AtGtid(state)


def test_a_consumer_that_has_failed_reads_from_the_client_s_place() -> None:
    assert beginning(AfterPlace("binlog.000002", 600), None) == AtFile(
        "binlog.000002", 600, inside=True
    )
    assert beginning(AfterGtids(GtidSet.parse(f"{UUID}:1-5")), None) == AtGtid(f"{UUID}:1-5")


def test_gtids_of_the_other_kind_are_left_to_the_server_s_answer() -> None:
    assert beginning(AfterGtids(GtidSet()), MARIADB) == AtGtid("")
    assert beginning(AfterGtids(MariadbGtids()), GTID) == AtGtid("")
