"""Where a consumer continues after a login: at its start, at its stored position, or after a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.dispatch.client.start_position import establish, lacking_transactions
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Note, Store
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import AtGtid, Latest, OnPurged, Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.dispatch_parts import (
    CREATED,
    connecting,
    consumer_at,
    declared,
    gtids,
    stored_at,
    view,
)

REPLICA = "9f3a4c1e-0c5d-11ec-8b1a-0242ac130003"
EPOCH = 7


def new_epoch() -> int:
    return EPOCH


def progress(acknowledged: int, covered: int, created: int = CREATED["binlog.000009"]) -> Progress:
    return Progress(stored_at(acknowledged), stored_at(covered), created)


def test_a_new_consumer_stores_its_start_in_a_new_epoch() -> None:
    consumer = declared(start=Latest())
    (store,) = establish(consumer, view(30), new_epoch)
    assert isinstance(store, Store)
    assert (store.progress.acknowledged.gtid, store.progress.acknowledged.epoch) == (gtids(30), 7)
    assert consumer.started and consumer.verified


def test_of_a_start_at_a_set_transactions_may_lie_behind_its_file() -> None:
    consumer = declared(start=AtGtid(gtids(5)))
    establish(consumer, view(30), new_epoch)
    assert not consumer.queue.files.is_anchored(consumer.queue.queued)


def test_a_consumer_goes_on_at_what_is_covered_and_keeps_what_is_acknowledged() -> None:
    consumer = declared(progress=progress(10, 12))
    assert establish(consumer, view(30), new_epoch) == []
    assert consumer.queue.queued.seq == 12 and consumer.queue.acknowledged.seq == 10
    assert consumer.queue.epoch == 0


def test_another_creation_time_of_the_file_is_another_history() -> None:
    consumer = declared(progress=progress(10, 12, created=99))
    with pytest.raises(BinlogError, match="was created at") as caught:
        establish(consumer, view(30), new_epoch)
    assert caught.value.kind is ErrorKind.HISTORY_DIFFERS
    assert not consumer.started


def test_on_another_server_the_file_of_a_position_means_nothing() -> None:
    consumer = declared(progress=progress(10, 12))
    establish(consumer, view(30, server=REPLICA), new_epoch)
    assert consumer.queue.server == REPLICA and consumer.queue.queued.file == ""


def test_purged_transactions_fail_a_consumer() -> None:
    consumer = declared(progress=progress(10, 10))
    with pytest.raises(BinlogError) as caught:
        establish(consumer, view(30, purged=11), new_epoch)
    assert caught.value.kind is ErrorKind.POSITION_PURGED


def test_with_on_purged_latest_it_goes_on_at_the_end_in_the_next_epoch() -> None:
    consumer = declared(progress=progress(10, 10), on_purged=OnPurged.LATEST)
    store, note = establish(consumer, view(30, purged=11), new_epoch)
    assert isinstance(store, Store) and isinstance(note, Note)
    assert store.progress.acknowledged.gtid == gtids(30)
    assert (consumer.queue.epoch, consumer.gaps) == (1, 1)


def test_a_queue_goes_on_with_a_replica_that_has_its_transactions() -> None:
    consumer = consumer_at(12)
    assert establish(consumer, view(30, server=REPLICA), new_epoch) == []
    assert consumer.queue.server == REPLICA and consumer.queue.queued.seq == 12


def test_a_replica_gets_time_for_the_transactions_that_it_lacks() -> None:
    dispatcher = connecting(consumer_at(12))
    behind = view(11, server=REPLICA)
    error = lacking_transactions(dispatcher, behind, wait_s=5.0, now=100.0)
    assert error is not None and error.kind is ErrorKind.CONNECTION_LOST
    assert lacking_transactions(dispatcher, behind, wait_s=5.0, now=104.9) is not None
    assert lacking_transactions(dispatcher, behind, wait_s=5.0, now=105.0) is None


def test_a_replica_does_not_lack_what_it_is_committing() -> None:
    dispatcher = connecting(consumer_at(12))
    committing = replace(view(11, server=REPLICA), owned=gtids(12))
    assert lacking_transactions(dispatcher, committing, wait_s=5.0, now=100.0) is None


def test_the_same_server_lacks_nothing_for_a_while() -> None:
    dispatcher = connecting(consumer_at(12))
    assert lacking_transactions(dispatcher, view(11), wait_s=5.0, now=100.0) is None


# -- a position that the server's facts cannot show to be of its log ------------------------------------------


def purged_up_to(last: int) -> ServerView:
    """Returns the view of a server that has purged all files except the newest, and thus the transactions up to
    `last`."""
    newest = ("binlog.000010", 400)
    return view(30, purged=last, files=(newest,), file=newest[0], offset=400, created={})


def at_12() -> Consumer:
    return declared(progress=progress(10, 12))


@pytest.mark.parametrize("consumer", [consumer_at(12), at_12()], ids=["queued", "stored"])
def test_a_position_that_equals_the_purged_set_is_warned_of(consumer: Consumer) -> None:
    """A server that was restored at 1-5 and has since executed other transactions 6-12 has the same GTID sets."""
    (note,) = establish(consumer, purged_up_to(12), new_epoch)
    assert isinstance(note, Note) and note.level == "warning"
    assert "binlog.000009" in str(note.fields["warning"])
    assert f"consumers seek {consumer.name}" in str(note.fields["warning"])
    assert consumer.queue.queued.seq == 12


def test_no_warning_while_the_file_of_the_position_is_there() -> None:
    assert establish(at_12(), view(30, purged=12), new_epoch) == []


def test_no_warning_of_another_servers_files() -> None:
    assert establish(at_12(), replace(purged_up_to(12), server=REPLICA), new_epoch) == []


def test_no_warning_of_a_position_that_names_no_file() -> None:
    stored = replace(stored_at(12), file="", offset=0)
    assert (
        establish(declared(progress=Progress(stored, stored, 0)), purged_up_to(12), new_epoch) == []
    )
