"""A seek moves a consumer to a position only if the server's answers show that the server has this position. A refused
seek changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.client.seeking import (
    has_left_log,
    holds,
    is_beside_queue,
    seek_target,
)
from dispatcher.dispatch.messages.events import Added, Removed, SeekRequested
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position, packed_seq
from tests.dispatch.plays import WRITER, alone
from tests.support.event_encoder import LogWriter
from tests.support.fake_server import SERVER_NAME, executed_by, gtid_set
from tests.support.fake_source import write
from tests.support.simulation import World

MODES = tuple(Mode)
REPLICA = "9f3a4c1e-0c5d-11ec-8b1a-0242ac130003"
FILES, EACH = 4, 3


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    assert isinstance(request.param, Mode)
    return request.param


@pytest.fixture
def log(mode: Mode) -> LogWriter:
    """A log of four files with three transactions each."""
    log = LogWriter(gtid=WRITER[mode], checksum=True)
    for n in range(FILES):
        if n:
            log.rotate()
        write(log, "shop", EACH)
    return log


@pytest.fixture
def play(log: LogWriter, mode: Mode) -> World:
    """A client whose consumers `a` and `b` have read and acknowledged everything. The server has purged its first two
    files."""
    play = alone(log, mode=mode, names=("a", "b"))
    play.finish()
    play.server.purge(2)
    return play


def after(log: LogWriter, mode: Mode, count: int) -> Position:
    """Returns the position after `count` transactions."""
    held = log.transactions[:count]
    file, offset = held[-1].file, held[-1].end
    if mode.by_gtid:
        gtids = executed_by(mode, held)
        return Position(SERVER_NAME, str(gtids), file, offset, len(gtids), 0)
    gtid = f"0-1-{held[-1].gno}" if mode is Mode.MARIADB else ""
    return Position(SERVER_NAME, gtid, file, offset, packed_seq(file, offset), 0)


def refused(play: World, position: Position, name: str = "a") -> BinlogError:
    """Makes a seek that must be refused. Returns the error, and asserts that the seek changed nothing."""
    before = standing(play)
    with pytest.raises(BinlogError) as caught:
        play.step(play.seek_order(name, position))
    assert standing(play) == before
    return caught.value


def standing(play: World) -> object:
    """Returns everything that a seek could change."""
    consumers = play.client.consumers.values()
    return (
        dict(play.store),
        dict(play.to_store),
        [
            (c.started, c.failed, c.dispatcher, c.queue.queued, c.queue.acknowledged)
            for c in consumers
        ],
        [(number, link.connection) for number, link in play.links.items()],
    )


def restarted(play: World, stored: Progress) -> World:
    """Returns the world after a restart of the daemon with this stored progress of `a`. The daemon has logged in."""
    play.store["a"] = stored
    play.boot()
    play.connect()
    return play


# -- positions that the server has purged, or never had ---------------------------------------------------------


def test_a_seek_to_a_purged_position_changes_nothing(
    play: World, log: LogWriter, mode: Mode
) -> None:
    error = refused(play, after(log, mode, 2))
    assert error.kind is ErrorKind.POSITION_PURGED
    assert "consumer a" in error.where
    assert "nothing was changed" in error.remedy


def test_a_seek_back_to_a_position_that_the_server_has_is_stored(
    play: World, log: LogWriter, mode: Mode
) -> None:
    wanted = after(log, mode, 7)
    play.step(play.seek_order("a", wanted))
    play.flush()
    assert play.store["a"].acknowledged == wanted
    # With GTIDs, only the reader's position says that the set ends in this file, so no creation time is stored.
    assert play.store["a"].created == (0 if mode.by_gtid else log.files[2].created)


def test_a_seek_ahead_of_the_servers_log_changes_nothing(
    play: World, log: LogWriter, mode: Mode
) -> None:
    ahead = after(log, mode, 12)
    offset = ahead.offset + 400
    if mode.by_gtid:
        gtids = executed_by(mode, log.transactions).add(log.transactions[0].source, 500)
        ahead = replace(ahead, gtid=str(gtids), seq=len(gtids))
    else:
        ahead = replace(ahead, offset=offset, seq=packed_seq(ahead.file, offset))
    assert refused(play, ahead).kind is ErrorKind.HISTORY_DIFFERS


@pytest.mark.parametrize("mode", [Mode.FILE, Mode.MARIADB])
def test_an_offset_within_a_transaction_is_refused(play: World, log: LogWriter, mode: Mode) -> None:
    position = after(log, mode, 7)
    inside = replace(position, offset=position.offset + 40, seq=position.seq + 40)
    error = refused(play, inside)
    assert error.kind is ErrorKind.POSITION_UNKNOWN
    assert f"{inside.file}:{inside.offset}" in error.what


def test_a_file_newer_than_the_servers_newest_is_refused(
    play: World, log: LogWriter, mode: Mode
) -> None:
    position = after(log, mode, 7)
    seq = position.seq if mode.by_gtid else packed_seq("binlog.999999", 4)
    assert refused(play, replace(position, file="binlog.999999", offset=4, seq=seq)).kind is (
        ErrorKind.HISTORY_DIFFERS
    )


@pytest.mark.parametrize("server", ["x", "", "2" * 36])
def test_a_position_of_an_unknown_server_is_refused(
    play: World, log: LogWriter, mode: Mode, server: str
) -> None:
    error = refused(play, replace(after(log, mode, 7), server=server))
    assert error.kind is ErrorKind.POSITION_UNKNOWN
    assert repr(server) in error.what


def test_a_position_of_another_epoch_is_refused(play: World, log: LogWriter, mode: Mode) -> None:
    assert refused(play, replace(after(log, mode, 7), epoch=1)).kind is ErrorKind.POSITION_UNKNOWN


@pytest.mark.parametrize("mode", [Mode.GTID])
def test_a_position_ahead_of_a_new_replica_is_unavailable(
    play: World, log: LogWriter, mode: Mode
) -> None:
    ahead = replace(
        after(log, mode, 12),
        gtid=str(gtid_set(log.transactions).add(log.transactions[0].source, 13)),
        seq=13,
    )
    play.server.name = REPLICA
    assert refused(play, ahead).kind is ErrorKind.RANGE_UNAVAILABLE


@pytest.mark.parametrize("mode", [Mode.GTID])
def test_a_position_of_the_previous_server_is_accepted_after_a_failover(
    play: World, log: LogWriter, mode: Mode
) -> None:
    play.server.name = REPLICA
    wanted = after(log, mode, 7)
    play.step(play.seek_order("a", wanted))
    assert play.client.consumers["a"].queue.acknowledged.gtids == gtid_set(log.transactions[:7])


@pytest.mark.parametrize("mode", [Mode.GTID])
def test_a_replica_that_is_committing_a_readers_transaction_has_its_position(
    play: World, log: LogWriter, mode: Mode
) -> None:
    """A server sends a transaction to replicas before it adds the transaction to its executed set."""
    play.server.name = REPLICA
    newest = after(log, mode, 12)
    order = play.seek_order("a", newest)
    committing = str(gtid_set(log.transactions[11:]))
    executed = str(gtid_set(log.transactions[:11]))
    view = replace(order.view, executed=executed, owned=committing)
    target = seek_target(play.client.consumers["a"], newest, view)
    assert target.executed.gtids == gtid_set(log.transactions)


@pytest.mark.parametrize("mode", [Mode.GTID])
def test_a_file_that_is_not_listed_is_not_stored(play: World, log: LogWriter, mode: Mode) -> None:
    """With GTIDs, the file in the reader's position is only a hint."""
    play.step(play.seek_order("a", replace(after(log, mode, 7), file="../../etc/passwd")))
    play.flush()
    assert play.store["a"].acknowledged == replace(after(log, mode, 7), file="", offset=0)


# -- a consumer that has failed ------------------------------------------------------------------------------------


def purged_at_login(log: LogWriter, mode: Mode, play: World) -> World:
    stored = after(log, mode, 2)
    play = restarted(play, Progress(stored, stored, log.files[0].created))
    failed = play.client.consumers["a"].failed
    assert failed is not None and failed.kind is ErrorKind.POSITION_PURGED
    return play


def test_a_seek_to_a_position_that_the_server_has_recovers_a_consumer_that_failed_at_the_login(
    play: World, log: LogWriter, mode: Mode
) -> None:
    play = purged_at_login(log, mode, play)
    play.resume("a", after(log, mode, 7))
    assert play.client.consumers["a"].failed is None
    assert play.store["a"].acknowledged == after(log, mode, 7)
    reader = play.readers["a"]
    reader.positions[:] = [after(log, mode, 7)]
    before = reader.transactions
    play.finish()
    assert reader.transactions - before == 5


def test_a_seek_to_a_purged_position_leaves_a_consumer_failed(
    play: World, log: LogWriter, mode: Mode
) -> None:
    play = purged_at_login(log, mode, play)
    assert refused(play, after(log, mode, 3)).kind is ErrorKind.POSITION_PURGED


def another_log(play: World, log: LogWriter, mode: Mode) -> tuple[World, LogWriter]:
    """Returns a world whose server was reset while the daemon was down, and has since written more than before the
    reset."""
    other = LogWriter(gtid=WRITER[mode], checksum=True, now=log.files[0].created + 500)
    write(other, "shop", 4, size=900)
    for _ in range(FILES):
        other.rotate()
        write(other, "shop", 8, size=170)
    play.server.log, play.server.oldest, play.server.purged = other, 0, ""
    stored = after(log, mode, 7)
    play = restarted(play, Progress(stored, stored, log.files[2].created))
    failed = play.client.consumers["a"].failed
    assert failed is not None and failed.kind is ErrorKind.HISTORY_DIFFERS
    return play, other


@pytest.mark.parametrize("count", [2, 5, 6, 7, 8])
def test_a_position_from_before_a_reset_is_refused_however_long_the_new_log_is(
    play: World, log: LogWriter, mode: Mode, count: int
) -> None:
    play, _ = another_log(play, log, mode)
    error = refused(play, after(log, mode, count))
    assert error.kind in (ErrorKind.HISTORY_DIFFERS, ErrorKind.POSITION_UNKNOWN)


def test_after_a_reset_a_position_of_the_new_log_is_accepted(
    play: World, log: LogWriter, mode: Mode
) -> None:
    play, other = another_log(play, log, mode)
    play.resume("a", after(other, mode, 9))
    assert play.client.consumers["a"].failed is None
    assert play.store["a"].acknowledged == after(other, mode, 9)


@pytest.mark.parametrize("how", ["at the start", "added"])
def test_an_unreadable_stored_position_fails_its_consumer_only(
    play: World, log: LogWriter, mode: Mode, how: str
) -> None:
    fault = BinlogError(ErrorKind.STORED_POSITION, "not JSON", where="consumer a, state.db")
    if how == "added":
        play.step(Removed("a"))
        play.step(Added(play.specs[0], fault))
    else:
        progress: dict[str, Progress | BinlogError] = {"a": fault, "b": play.store["b"]}
        play.client = Client(play.client.label, play.specs, progress)
        play.links.clear()
        play.execute(play.client.start())
    play.connect()
    consumers = play.client.consumers
    assert consumers["a"].failed is fault
    assert consumers["b"].failed is None
    assert consumers["b"].dispatcher is not None
    assert play.resume("a", after(log, mode, 7))
    play.flush()
    assert play.client.consumers["a"].failed is None
    assert play.store["a"].acknowledged == after(log, mode, 7)


# -- the others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: replace(p, seq=p.seq + 1),
        lambda p: replace(p, epoch=7),
        lambda p: replace(p, server="x"),
    ],
)
def test_an_invalid_position_moves_no_consumer(
    play: World, log: LogWriter, mode: Mode, spoil: Callable[[Position], Position]
) -> None:
    wrong = spoil(after(log, mode, 7))
    before = standing(play)
    with pytest.raises(BinlogError):
        play.step(SeekRequested("a", wrong, play.server.view()))
    assert standing(play) == before


@pytest.mark.parametrize("mode", [Mode.FILE, Mode.MARIADB])
def test_a_file_number_of_thousands_of_digits_is_refused(
    play: World, log: LogWriter, mode: Mode
) -> None:
    wrong = replace(after(log, mode, 7), file="binlog." + "9" * 5000)
    assert refused(play, wrong).kind is ErrorKind.POSITION_UNKNOWN


# -- a client of the front ---------------------------------------------------------------------------------------


def has_left(play: World) -> bool:
    """True if, by the server's present answers, its log is not the one that the consumer `a` has read."""
    consumer = play.client.consumers["a"]
    return has_left_log(consumer, play.server.view([consumer.queue.queued.file]))


def test_the_log_that_a_consumer_reads_is_not_left(play: World, log: LogWriter) -> None:
    assert not has_left(play)
    log.rotate()
    write(log, "shop", EACH)
    assert not has_left(play)


def test_a_log_is_left_after_a_reset_however_long_the_new_one_is(
    play: World, log: LogWriter, mode: Mode
) -> None:
    other = LogWriter(gtid=WRITER[mode], checksum=True, now=log.files[0].created + 500)
    for _ in range(FILES):
        write(other, "shop", 2 * EACH)
        other.rotate()
    play.server.log, play.server.oldest, play.server.purged = other, 0, ""
    assert has_left(play)


def test_a_consumer_that_failed_at_another_log_has_left_it(
    play: World, log: LogWriter, mode: Mode
) -> None:
    play, _ = another_log(play, log, mode)
    assert has_left(play)


def test_a_position_is_beside_the_queue_if_only_its_seq_is_in_it(
    play: World, log: LogWriter, mode: Mode
) -> None:
    consumer = play.client.consumers["a"]
    newest = after(log, mode, FILES * EACH)
    assert holds(consumer, newest) and not is_beside_queue(consumer, newest)
    other = {
        Mode.GTID: replace(newest, gtid=f"{REPLICA}:1-{newest.seq}"),
        Mode.DOMAINS: replace(newest, gtid=newest.gtid.replace("0-", "7-", 1)),
    }.get(mode, replace(newest, server=REPLICA))
    assert is_beside_queue(consumer, other)
    assert not is_beside_queue(consumer, replace(other, seq=newest.seq + 1))
