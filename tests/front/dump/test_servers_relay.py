"""The packets of the front equal the packets of real servers for the same dump of the same log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.types import EventType
from dispatcher.front.dump.options import AfterGtids, AfterPlace, Checksum, RelayOptions, Resume
from dispatcher.front.dump.relay import Relay
from dispatcher.model.gtid import GtidSet, MariadbGtids
from tests.front.dump.delivered_bytes import Delivered, delivered
from tests.front.dump.raw_dump import (
    CRC32,
    FLAG_2,
    MARIADB,
    NO_CRC,
    NON_BLOCKING,
    by_file,
    by_gtids,
    events,
    for_a_consumer,
    payloads,
    raw_dump,
)
from tests.servers import Server
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory

KINDS = ("mysql97", "mysql56", "mariadb118")
HEARTBEATS = ("SET @master_heartbeat_period = 200000000, @source_heartbeat_period = 200000000",)
SETTINGS = {Checksum.CRC32: CRC32, Checksum.NONE: NO_CRC, Checksum.UNSET: ()}


class Log:
    """A server's log of two files with transactions of two databases, and the delivered binlog of a consumer of both
    databases."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.mariadb = server.mariadb
        server.execute("CREATE DATABASE a", "CREATE DATABASE b")
        server.execute(
            "CREATE TABLE a.t (i INT PRIMARY KEY, s MEDIUMTEXT)",
            "CREATE TABLE b.t (i INT PRIMARY KEY)",
        )
        server.execute("FLUSH BINARY LOGS")
        self.file = server.binlog_position()[0]
        self.before = self.executed()
        server.execute("INSERT INTO a.t VALUES (1, 'x'), (2, 'y')", "INSERT INTO b.t VALUES (1)")
        server.execute(
            "BEGIN", "INSERT INTO a.t VALUES (3, 'z')", "INSERT INTO b.t VALUES (2)", "COMMIT"
        )
        server.execute(
            "INSERT INTO a.t VALUES (4, REPEAT('L', 200000))", "ALTER TABLE b.t ADD COLUMN c INT"
        )
        server.execute("FLUSH BINARY LOGS", "UPDATE a.t SET s = 'n' WHERE i < 3", "DELETE FROM b.t")
        self.settings = MARIADB if self.mariadb else ()
        self.whole = self.dump(by_file(self.file, 4, self.flags), Checksum.CRC32)
        self.consumer = self.of("a", "b")
        self.end = server.binlog_position()

    @property
    def flags(self) -> int:
        return NON_BLOCKING | (FLAG_2 if self.mariadb else 0)

    def of(self, *databases: str) -> Delivered:
        return delivered(self.whole, *databases, executed=self.before)

    def executed(self) -> GtidSet | MariadbGtids:
        if self.mariadb:
            return MariadbGtids.parse(self.server.execute("SELECT @@global.gtid_binlog_pos")[0][0])
        return GtidSet.parse(self.server.execute("SELECT @@global.gtid_executed")[0][0])

    def dump(
        self, command: bytes, checksum: Checksum, *settings: str, events_max: int | None = None
    ) -> bytes:
        settings = (*self.settings, *SETTINGS[checksum], *settings)
        return raw_dump(self.server, command, settings, events_max=events_max)

    def options(self, checksum: Checksum, **more: bool) -> RelayOptions:
        return RelayOptions(1, checksum, mariadb=self.mariadb, mariadb_capability=4, **more)

    def relay(self, resume: Resume, checksum: Checksum, **more: bool) -> Relay:
        return Relay(self.options(checksum, **more), resume)


def sent(relay: Relay, log: Delivered) -> bytes:
    return b"".join(relay.packets(log.parts()))


def places_of_first_file(dump: bytes) -> list[int]:
    """Returns the offset after each event that has a position, for the first file of the dump."""
    places = []
    for event in events(dump)[1:]:
        header = EventHeader.read(event)
        if header.type == EventType.ROTATE:
            break
        places.append(header.log_pos)
    return [place for place in places if place]


@pytest.fixture(scope="module")
def logs(module_server_factory: ServerFactory) -> Callable[[Kind], Log]:
    made: dict[Kind, Log] = {}

    def log(kind: Kind) -> Log:
        if kind not in made:
            made[kind] = Log(module_server_factory(kind))
        return made[kind]

    return log


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, logs: Callable[[Kind], Log]) -> Log:
    return logs(request.param)


@pytest.mark.parametrize("checksum", [Checksum.CRC32, Checksum.NONE])
def test_a_dump_from_a_files_beginning_is_the_servers(log: Log, checksum: Checksum) -> None:
    expected = list(for_a_consumer(events(log.dump(by_file(log.file, 4, log.flags), checksum))))
    relay = log.relay(AfterPlace(log.file, 4), checksum)
    assert events(sent(relay, log.consumer)) == expected
    assert relay.file == log.consumer.file


@pytest.mark.parametrize("checksum", [Checksum.CRC32, Checksum.NONE])
def test_a_dump_from_each_place_is_the_servers(log: Log, checksum: Checksum) -> None:
    """The places include places within a transaction."""
    for place in places_of_first_file(log.whole):
        command = by_file(log.file, place, log.flags)
        expected = list(for_a_consumer(events(log.dump(command, checksum))))
        assert (
            events(sent(log.relay(AfterPlace(log.file, place), checksum), log.consumer)) == expected
        )


def test_a_client_that_does_not_know_checksums_gets_none(log: Log) -> None:
    def stripped(event: bytes) -> bytes:
        header = EventHeader.read(event)
        if header.type in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION):
            return bytes((header.type,))
        return event[:9] + (len(event) - 4).to_bytes(4, "little") + event[13:-4]

    expected = [stripped(event) for event in for_a_consumer(events(log.whole))]
    found = events(sent(log.relay(AfterPlace(log.file, 4), Checksum.UNSET), log.consumer))
    assert [e[4:5] if e[4] in (4, 15) else e for e in found] == expected
    assert all(e[-5] == 0 for e in found if e[4] == EventType.FORMAT_DESCRIPTION)
    with_checksums = log.dump(by_file(log.file), Checksum.UNSET)
    assert payloads(with_checksums)[-1][:3] == b"\xff\xd4\x04"  # the server refuses: 1236


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_a_dump_by_gtids_is_the_servers(logs: Callable[[Kind], Log], kind: Kind) -> None:
    log = logs(kind)
    assert isinstance(log.before, GtidSet)
    ((source, ((_, start),)),) = log.before.sources().items()
    for held in (
        log.before,
        log.before.add(source, start),
        log.before.add(source, start + 1, start + 3),
    ):
        expected = list(for_a_consumer(events(log.dump(by_gtids(held), Checksum.CRC32))))
        relay = log.relay(AfterGtids(held), Checksum.CRC32)
        assert events(sent(relay, log.consumer)) == expected
        assert relay.gtids == log.executed()
        assert list(relay.fill(log.executed(), *log.end)) == []


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_a_dump_by_gtids_within_a_file_begins_with_the_file(
    logs: Callable[[Kind], Log], kind: Kind
) -> None:
    """If its connection was lost within a transaction, a MySQL replica rolls the transaction back at a
    FORMAT_DESCRIPTION with a position."""
    log = logs(kind)
    executed = log.executed()
    assert isinstance(executed, GtidSet)
    rotate, format_, *_ = events(log.dump(by_gtids(executed), Checksum.CRC32))
    relay = log.relay(AfterGtids(executed), Checksum.CRC32)
    nothing = log.consumer.parts(log.consumer.log.committed)
    stream = b"".join(relay.packets(nothing)) + relay.arrive(*log.end)
    begin = events(stream)
    assert begin[0] == rotate
    # The timestamp is that of another file, so the checksum differs, too.
    assert begin[1][4:-4] == format_[4:-4]
    assert EventHeader.read(begin[1]).log_pos == 4 + len(format_)


def test_a_dump_by_mariadbs_gtids_is_the_servers(logs: Callable[[Kind], Log]) -> None:
    """The packets are equal except for the place in the first ROTATE, and for an artificial GTID_LIST."""
    log = logs("mariadb118")
    assert isinstance(log.before, MariadbGtids)
    state = "SET @slave_connect_state = '{}', @slave_gtid_strict_mode = 1"
    number = log.before.number(0)
    for held in (log.before, log.before.add("0-1", number + 2)):
        dump = log.dump(by_file("", 4, log.flags), Checksum.CRC32, state.format(held))
        expected = list(for_a_consumer(events(dump)))
        relay = log.relay(AfterGtids(held), Checksum.CRC32)
        found = events(sent(relay, log.consumer))
        assert found[1:] == expected[1:]
        assert relay.gtids == log.executed()


def test_annotations_only_if_asked_for(logs: Callable[[Kind], Log]) -> None:
    log = logs("mariadb118")
    command = by_file(log.file, 4, NON_BLOCKING)
    expected = list(for_a_consumer(events(log.dump(command, Checksum.CRC32))))
    relay = log.relay(AfterPlace(log.file, 4), Checksum.CRC32, annotate=False)
    assert events(sent(relay, log.consumer)) == expected


def test_mariadbs_gtids_become_begin_for_a_client_that_does_not_know_them(
    logs: Callable[[Kind], Log],
) -> None:
    log = logs("mariadb118")
    settings = ("SET @mariadb_slave_capability = 2", *CRC32)
    dump = raw_dump(log.server, by_file(log.file, 4, log.flags), settings)
    options = RelayOptions(1, Checksum.CRC32, mariadb=True, mariadb_capability=2)
    found = events(sent(Relay(options, AfterPlace(log.file, 4)), log.consumer))
    assert found == list(for_a_consumer(events(dump)))


@pytest.mark.parametrize("checksum", [Checksum.CRC32, Checksum.NONE])
def test_heartbeats_are_the_servers(log: Log, checksum: Checksum) -> None:
    v2 = (
        log.server.kind == "mysql97" and checksum is Checksum.NONE
    )  # older servers have no such flag
    flags = FLAG_2 if v2 else 0
    place = log.end
    dump = log.dump(by_file(*place, flags), checksum, *HEARTBEATS, events_max=4)
    expected = [e for e in events(dump) if e[4] != EventType.MARIADB_BINLOG_CHECKPOINT][:3]
    relay = log.relay(AfterPlace(*place), checksum, heartbeat_v2=v2)
    nothing = log.consumer.parts(log.consumer.log.committed)
    # MariaDB writes the BINLOG_CHECKPOINT of a new file in the background, at an unknown time.
    stream = b"".join(relay.packets(nothing))
    stream += relay.heartbeat(place[0], EventHeader.read(expected[-1]).log_pos)
    assert [e[:13] + e[17:] if e[4] == 15 else e for e in events(stream)][1:] == [
        e[:13] + e[17:] if e[4] == 15 else e for e in expected
    ][1:]
    assert events(stream)[0] == expected[0]
