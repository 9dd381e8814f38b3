"""The rules of a client, tested one at a time. `tests.simulation` tests all rules together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.effects import Close, Connect, Retire, StartDump, Store
from dispatcher.dispatch.messages.events import Acknowledged, Added, LoggedIn, Lost, Removed, Tick
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import (
    ClientLimits,
    ConsumerSpec,
    Earliest,
    OnPurged,
    Progress,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from tests.dispatch.plays import (
    FAR,
    WRITER,
    alone,
    at,
    long_log,
    numbers,
    read_and_poll,
    small_log,
    spec,
    until_paused,
)
from tests.support.event_encoder import LogWriter
from tests.support.fake_server import SERVER_NAME, Server, executed_by, gtid_set
from tests.support.random_log import Wanted, random_log, random_statement
from tests.support.simulation import Reader, World

# -- rules one at a time --------------------------------------------------------------------------------------


def test_a_position_is_stored_before_the_dump_begins() -> None:
    play = alone(small_log())
    effects = play.client.step(LoggedIn(1, play.server.view()), 0.0)
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Store) < kinds.index(StartDump)


def test_several_consumers_share_one_dump_from_their_intersection() -> None:
    log = small_log()
    first, *_, last = log.transactions
    stored = {"a": at(log, 3), "b": at(log, 1, SERVER_NAME, last)}
    play = alone(log, stored=stored, names=("a", "b"))
    (dump,) = (
        e
        for e in play.client.step(LoggedIn(1, play.server.view()), 0.0)
        if isinstance(e, StartDump)
    )
    assert dump.executed.gtids == gtid_set([first])
    play = alone(log, stored=stored, names=("a", "b"))
    play.finish()


def test_reconnects_while_a_queue_is_full_add_nothing_to_it() -> None:
    log = random_log(random.Random(4), transactions=200, size_max=2000, files=False)
    play = alone(log, limit=1)
    until_paused(play)
    held = play.client.consumers["a"].queue.held_bytes
    for _ in range(5):
        play.lose()
        play.connect()
        assert play.paused
        play.read()
    assert play.client.consumers["a"].queue.held_bytes <= held
    play.finish()


@pytest.mark.parametrize("began", [0.0, 123.003])  # 123.003 + 5 - 123.003 < 5
def test_a_long_pause_closes_the_connection_until_there_is_room(began: float) -> None:
    log = random_log(random.Random(4), transactions=200, size_max=2000, files=False)
    play = alone(log, limit=1)
    play.now = began
    until_paused(play)
    wakeup = play.client.next_wakeup()
    assert wakeup == play.now + 5.0
    play.now = wakeup
    play.step(Tick())
    play.flush()
    assert play.client.dispatchers[1].phase is Phase.BACKPRESSURE_CLOSED
    assert play.connection is None
    # Closing the connection raises an error in the task that reads from it. This error changes nothing.
    assert (
        play.client.step(Lost(1, BinlogError(ErrorKind.CONNECTION_LOST, "closed")), play.now) == []
    )
    waiting = []
    for _ in range(2):  # the second poll acknowledges the range of the first poll
        play.poll("a", 1 << 26, ack=True)
        waiting.append(play.connect_at is None)
    assert waiting == [True, False]
    play.finish()


def test_backoff_grows_and_a_login_ends_it() -> None:
    play = alone(small_log())
    waits = []
    for _ in range(9):
        effects = play.client.step(Lost(1, BinlogError(ErrorKind.CONNECT_FAILED, "no")), 0.0)
        waits += [effect.after_s for effect in effects if isinstance(effect, Connect)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    play.client.step(LoggedIn(1, play.server.view()), 0.0)
    effects = play.client.step(Lost(1, BinlogError(ErrorKind.CONNECTION_LOST, "cut")), 0.0)
    assert [effect.after_s for effect in effects if isinstance(effect, Connect)] == [0.5]


def test_a_fault_that_an_operator_must_mend_is_retried_slowly() -> None:
    play = alone(small_log())
    effects = play.client.step(Lost(1, BinlogError(ErrorKind.ACCESS_DENIED, "no")), 0.0)
    assert [effect.after_s for effect in effects if isinstance(effect, Connect)] == [10.0]
    assert play.client.consumers["a"].error is not None


def damaged(log: LogWriter, k: int) -> None:
    """Damage the last event of the k-th transaction, in the file."""
    target = log.transactions[k].parts[-1].raw
    events = log.file.events
    n = next(n for n, (raw, _) in enumerate(events) if raw is target)
    events[n] = (target[:-1] + bytes((target[-1] ^ 1,)), events[n][1])


def test_damage_in_the_log_fails_after_three_attempts_and_what_precedes_it_is_delivered() -> None:
    log = small_log(12)
    damaged(log, 7)
    play = alone(log)
    for _ in range(2000):
        play.connect()
        play.read()
        play.poll("a", ack=True)
    consumer = play.client.consumers["a"]
    assert consumer.failed is not None
    assert consumer.failed.kind is ErrorKind.CHECKSUM_MISMATCH
    assert play.readers["a"].position.seq == 7
    assert play.log.count("Lost") == 3
    assert not play.client.dispatchers


def test_damage_on_the_network_is_read_again() -> None:
    log = small_log(12)
    good = list(log.file.events)
    damaged(log, 7)
    play = alone(log)
    while "Lost" not in play.log:
        play.connect()
        play.read()
    log.file.events[:] = good
    play.finish()


@pytest.mark.parametrize("mode", Mode)
def test_a_fault_fails_the_consumers_that_it_concerns_unless_they_are_past_it(mode: Mode) -> None:
    log = small_log(3, gtid=WRITER[mode])
    log.begin()
    log.query("INSERT INTO t VALUES (1)", "shop")
    bad = log.commit()
    log.ddl("CREATE TABLE shop.x (id int)", tables=(("shop", "x"),))
    server = Server(log, mode)
    if mode.by_gtid:
        gtids = executed_by(mode, log.transactions[:4])
        position = Position(SERVER_NAME, str(gtids), bad.file, bad.end, len(gtids), 0)
        past = Progress(position, position, log.file.created)
    else:
        gtid = f"0-1-{bad.gno}" if mode is Mode.MARIADB else ""
        position = Position(SERVER_NAME, gtid, bad.file, bad.end, packed_seq(bad.file, bad.end), 0)
        past = Progress(position, position, log.file.created)
    specs = [ConsumerSpec(n, ("shop",), None, 1 << 20, Earliest()) for n in ("a", "past")]
    play = World(random.Random(0), server, specs, {"past": past})
    for _ in range(300):
        play.connect()
        play.read()
        for name in ("a", "past"):
            play.poll(name, ack=True)
    assert play.client.consumers["past"].failed is None
    assert play.readers["past"].transactions == 1
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is ErrorKind.STATEMENT_FORMAT
    assert "consumer a" in failed.where
    assert "INSERT as a statement" in failed.what
    # A reader can seek past the fault and continue.
    after = past.covered
    play.resume("a", after)
    play.readers["a"].positions.append(after)
    play.finish()
    assert play.client.consumers["a"].failed is None


def test_a_fault_that_fails_all_consumers_closes_the_connection() -> None:
    log = small_log(3)
    log.add(250, b"of a later version")
    log.ddl("CREATE TABLE shop.x (id int)")
    play = alone(log)
    for _ in range(300):
        play.connect()
        play.read()
        play.poll("a", ack=True)
    assert play.connection is None
    assert not play.client.dispatchers
    assert play.readers["a"].position.seq == 3


def test_a_position_of_another_history_fails_its_consumer_only() -> None:
    log = small_log()
    play = alone(log, stored={"a": at(log, 2, "another")}, names=("a", "b"))
    play.server.purged = str(gtid_set(log.transactions[:1]))
    foreign = Position(SERVER_NAME, f"{'0' * 8}-1111-1111-1111-{'0' * 12}:1", "", 0, 1, 0)
    play.store["a"] = Progress(foreign, foreign, 0)
    play.boot()
    for _ in range(200):
        play.connect()
        play.read()
        play.poll("b", ack=True)
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is ErrorKind.HISTORY_DIFFERS
    assert play.readers["b"].position.seq == 6


@pytest.mark.parametrize(("before", "now"), [(a, b) for a in Mode for b in Mode if a is not b])
def test_a_server_in_another_mode_has_another_history(before: Mode, now: Mode) -> None:
    log = small_log(gtid=WRITER[before])
    play = alone(log, mode=before)
    play.finish()
    play.poll("a", ack=True)
    stored = dict(play.store)
    if {before, now} == {Mode.FILE, Mode.MARIADB}:
        return  # both use files and offsets; the server names differ
    play = alone(small_log(gtid=WRITER[now]), mode=now, stored=stored)
    effects = play.client.step(LoggedIn(1, play.server.view()), 0.0)
    failed = play.client.consumers["a"].failed
    assert failed is not None
    assert failed.kind is ErrorKind.HISTORY_DIFFERS
    assert any(isinstance(effect, Retire) for effect in effects)


def test_a_bare_marker_is_stored_after_a_second_and_moves_the_covered_position_only() -> None:
    log = LogWriter()
    for _ in range(3):
        log.begin()
        log.commit()
    play = alone(log)
    for _ in range(50):
        play.connect()
        play.read()
    assert play.client.next_wakeup() is not None
    play.now += 1
    play.tick_quietly()
    progress = play.store["a"]
    assert (progress.acknowledged.seq, progress.covered.seq) == (0, 3)
    assert progress.covered.gtid == str(GtidSet.parse(progress.covered.gtid))
    assert play.client.next_wakeup() is None
    play.restart()
    play.finish()


def test_refused_acknowledgements_change_nothing() -> None:
    log = small_log()
    play = alone(log)
    play.finish()
    end = play.readers["a"].position
    for bad, kind in (
        (
            Position(end.server, end.gtid, end.file, end.offset, end.seq, 1),
            ErrorKind.POSITION_UNKNOWN,
        ),
        (
            Position(end.server, end.gtid, end.file, end.offset, end.seq + 1, 0),
            ErrorKind.POSITION_UNKNOWN,
        ),
        (Position(end.server, "?", end.file, end.offset, 0, 0), ErrorKind.SETTINGS),
    ):
        with pytest.raises(BinlogError) as info:
            play.client.progress_after("a", bad)
        assert info.value.kind is kind
    play.acknowledge("a", end)
    assert play.client.progress_after("a", end) is None


@pytest.mark.parametrize("mode", Mode)
def test_the_stored_position_counts_although_the_queue_has_moved_on(mode: Mode) -> None:
    log = random_log(random.Random(4), transactions=20, files=False, gtid=WRITER[mode])
    nothing = replace(spec("a"), databases=("absent",))
    play = World(random.Random(0), Server(log, mode), [nothing], {})
    queue = play.client.consumers["a"].queue
    play.connect()
    play.read_all()
    first = queue.position(queue.queued)
    progress = play.client.progress_after("a", first)
    assert progress is not None and progress.acknowledged == first
    for _ in range(2):  # the first batch moves `queued`, the second `covered`
        log.begin()
        log.statement(random_statement(random.Random(5), 200))
        log.commit()
        play.read_all()
    play.step(Acknowledged("a", progress.acknowledged, progress.covered))
    assert queue.position(queue.acknowledged) == first
    stored = play.client.consumers["a"].store_progress().progress
    assert stored.acknowledged == first and stored.covered.seq == queue.queued.seq
    play.finish()


# -- several dispatchers ---------------------------------------------------------------------------------------


def test_distant_consumers_get_own_dispatchers_and_end_on_one() -> None:
    log = long_log()
    stored = {"a": at(log, 0), "b": at(log, 30), "c": at(log, 59)}
    play = alone(log, stored=stored, names=("a", "b", "c"), limits=FAR)
    play.connect()
    assert numbers(play) == [1, 2, 3]
    assert play.client.dispatchers[1].consumers == ["c"], "the consumer furthest ahead stays"
    read_and_poll(play, lambda: len(numbers(play)) == 1, "a", "b", "c")
    assert play.client.merges == 2
    play.finish()


def test_near_consumers_share_one_dispatcher_from_the_beginning() -> None:
    log = long_log()
    stored = {f"c{n}": at(log, n) for n in range(50)}
    play = alone(log, stored=stored, names=tuple(stored))
    play.connect()
    assert numbers(play) == [1]
    play.finish()


def test_a_consumer_that_has_the_open_transaction_merges_inside_it() -> None:
    log = long_log(3)
    log.begin()
    rng = random.Random(5)
    for _ in range(60):
        log.statement(random_statement(rng, 2000))
    huge = log.commit()
    assert huge.end - huge.start > 30_000
    stored = {"a": at(log, 3), "b": at(log, 4)}
    play = alone(log, stored=stored, names=("a", "b"))
    behind = play.client
    play.connect()
    assert numbers(play) == [1]
    while behind.dispatchers[1].open_transaction is None:
        play.read()
    for name, held, number in (("ahead", 4, 1), ("late", 3, 2)):
        play.readers[name] = Reader(Wanted(("shop", "billing", "crm"), None))
        play.store[name] = at(log, held)
        play.step(Added(spec(name), play.store[name]))
        play.connect()
        # The second dispatcher lacks the beginning of the transaction, so all consumers attach to the dispatcher that
        # has not read the transaction yet.
        assert behind.consumers[name].dispatcher == number
        assert numbers(play) == [number]
    assert behind.dispatchers[2].open_transaction is None
    play.finish()


def test_with_on_purged_latest_a_consumer_skips_what_was_purged() -> None:
    log = small_log()
    specs = [spec("a", on_purged=OnPurged.LATEST), spec("b")]
    stored = {"a": at(log, 1), "b": at(log, 1)}
    server = Server(log, Mode.GTID)
    server.purged = str(gtid_set(log.transactions[:3]))
    play = World(random.Random(0), server, specs, stored)
    play.connect()
    a, b = (play.client.consumers[name] for name in ("a", "b"))
    assert b.failed is not None
    assert b.failed.kind is ErrorKind.POSITION_PURGED
    assert a.failed is None
    assert a.gaps == 1
    progress = play.store["a"]
    assert (progress.acknowledged.epoch, progress.acknowledged.seq) == (1, 6)
    assert progress.covered == progress.acknowledged
    play.restart()
    play.connect()
    assert play.client.consumers["a"].gaps == 0


def test_a_replica_that_takes_over_is_given_time_to_catch_up() -> None:
    log = small_log()
    play = alone(log, stored={"a": at(log, 5)}, limits=ClientLimits(failover_wait_s=10.0))
    lagging = ServerView(
        "0a9d88f8-c14e-11ec-bb36-244bfedf7766", Mode.GTID, str(gtid_set(log.transactions[:4])), "",
        ((log.file.name, 100),), log.file.name, 100, {},
    )  # fmt: skip
    client = play.client
    failed = None
    for now, last in ((0.0, False), (9.0, False), (10.0, True)):
        effects = client.step(LoggedIn(1, lagging), now)
        failed = client.consumers["a"].failed
        assert (failed is not None) is last
        if not last:
            assert [e for e in effects if isinstance(e, Close)] == [
                Close(1, "the server is behind", next_host=True)
            ]
            assert any(isinstance(effect, Connect) for effect in effects)
    assert failed is not None
    assert failed.kind is ErrorKind.HISTORY_DIFFERS


def test_after_a_failover_the_files_of_the_previous_server_are_dropped() -> None:
    log = small_log()
    play = alone(log, stored={"a": at(log, 5)})
    view = play.server.view()
    other = replace(view, server="0a9d88f8-c14e-11ec-bb36-244bfedf7766", created={log.file.name: 7})
    play.client.step(LoggedIn(1, view), 0.0)
    for now, seen in ((1.0, other), (2.0, other), (3.0, view)):
        play.client.step(Lost(1, BinlogError(ErrorKind.CONNECTION_LOST, "cut")), now)
        play.client.step(LoggedIn(1, seen), now)
        assert play.client.consumers["a"].failed is None
        assert play.client.consumers["a"].queue.queued.file == ""


def test_a_duplicate_uuid_is_retried_soon_once_a_minute_and_slowly_otherwise() -> None:
    play = alone(small_log())
    error = BinlogError(ErrorKind.DUPLICATE_SERVER_UUID, "a replica with the same server_uuid")
    waits = []
    for now in (0.0, 30.0, 100.0):
        play.client.step(LoggedIn(1, play.server.view()), now)
        effects = play.client.step(Lost(1, error), now)
        waits += [effect.after_s for effect in effects if isinstance(effect, Connect)]
    assert waits == [0.5, 10.0, 0.5]


def test_a_seek_leaves_other_consumers_on_their_connection() -> None:
    log = long_log()
    play = alone(log, names=("a", "b"), limits=FAR)
    play.finish()
    connection = play.links[1].connection
    start = play.readers["a"].positions[0]
    play.readers["a"].positions[1:] = []
    play.resume("a", start)
    assert play.links[1].connection is connection
    assert play.client.dispatchers[1].consumers == ["b"]
    assert play.client.dispatchers[2].consumers == ["a"]
    play.finish()
    read_and_poll(play, lambda: len(numbers(play)) == 1, "a", "b")


def test_readers_ahead_of_the_stored_position_skip_forward_on_their_shared_dispatcher() -> None:
    log = long_log()
    names = tuple(f"c{n}" for n in range(20))
    play = alone(log, names=names)
    play.finish()
    positions = {name: reader.position for name, reader in play.readers.items()}
    play.store = {name: at(log, 10) for name in names}
    play.boot()
    play.connect()
    for name in names:
        play.resume(name, positions[name])
        play.opened.add(name)
    assert numbers(play) == [1]
    play.finish()


def test_consumers_are_added_and_removed_while_others_go_on() -> None:
    log = long_log()
    play = alone(log, names=("a", "b"))
    play.finish()
    connection = play.links[1].connection
    play.step(Removed("b"))
    assert play.client.dispatchers[1].consumers == ["a"]
    play.step(Added(spec("b"), play.store["b"]))
    play.opened.discard("b")
    play.finish()
    read_and_poll(play, lambda: len(numbers(play)) == 1, "a", "b")
    assert [link.connection is connection for link in play.links.values()] == [True]
    play.step(Removed("a"))
    play.step(Removed("b"))
    assert not play.client.dispatchers
    assert not play.links


def test_the_file_of_a_bare_set_is_unknown_until_a_transaction_follows() -> None:
    log = long_log()
    bare = Position(SERVER_NAME, str(gtid_set(log.transactions[:30])), "", 0, 30, 0)
    play = alone(log, stored={"a": Progress(bare, bare, 0)})
    play.connect()
    dispatcher = play.client.dispatchers[1]
    while dispatcher.read is not None and dispatcher.read.seq == 30:
        assert dispatcher.read.file == ""
        play.read()
    assert dispatcher.read is not None
    assert dispatcher.read.file == log.file.name


def test_a_log_that_the_server_cannot_read_is_requested_once_more_before_it_is_reported() -> None:
    play = alone(small_log())
    error = BinlogError(ErrorKind.SERVER_LOG, "I/O error reading log event")
    kinds = []
    for now in (0.0, 1.0, 2.0):
        play.client.step(LoggedIn(1, play.server.view()), now)
        play.client.step(Lost(1, error), now)
        error_seen = play.client.consumers["a"].error
        kinds.append(error_seen.kind if error_seen else None)
    assert kinds == [ErrorKind.CONNECTION_LOST, ErrorKind.SERVER_LOG, ErrorKind.SERVER_LOG]


def test_a_consumer_detached_before_a_reset_attaches_only_after_a_login() -> None:
    old, new = (
        random_log(random.Random(n), transactions=200, files=False, gtid="anonymous")
        for n in (4, 4)
    )
    specs = [spec("slow", 20_000, wait_max_s=1.0), spec("fast")]
    play = World(random.Random(0), Server(old, Mode.FILE), specs, {})
    slow = play.client.consumers["slow"]
    read_and_poll(play, lambda: slow.detaches == 1, "fast")
    new.file.created = old.file.created + 1000
    play.server = Server(new, Mode.FILE)
    play.lose()
    play.connect()
    assert play.client.consumers["fast"].failed is not None, "its file has another creation time"
    play.readers["late"] = Reader(Wanted(("shop", "billing", "crm"), None))
    play.step(Added(spec("late"), None))
    play.connect()
    assert play.client.dispatchers[1].consumers == ["late"]
    # The queue of `slow` gets room while the first dispatcher's stream is shortly before the position of `slow`.
    for _ in range(4):
        play.poll("slow", 1 << 20, ack=True)
    assert slow.queue.held_bytes == 0
    assert play.client.dispatchers[1].consumers == ["late"]
    play.connect()
    assert slow.failed is not None
    assert slow.failed.kind is ErrorKind.HISTORY_DIFFERS


def test_a_login_of_another_dispatcher_shows_that_the_log_was_reset() -> None:
    log = long_log()
    play = alone(log)
    play.finish()
    play.server = Server(small_log(2), Mode.GTID)
    play.readers["late"] = Reader(Wanted(("shop", "billing", "crm"), None))
    play.step(Added(spec("late"), None))
    (link,) = (link for link in play.links.values() if not link.logged_in)
    play.log_in(link)
    play.logged_in(link)
    assert not play.client.dispatchers[1].open
    play.connect()
    failed = play.client.consumers["a"].failed
    assert failed is not None and failed.kind is ErrorKind.HISTORY_DIFFERS
    assert play.client.consumers["late"].failed is None
