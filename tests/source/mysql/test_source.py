"""Sources with separate servers: starts in the servers' logs, refused dumps, several hosts."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self
from uuid import UUID

import pytest

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, GtidSet
from dispatcher.mysql.login import Endpoint
from dispatcher.source.mysql.dump_stream import ServerStream
from dispatcher.source.mysql.source import ServerSource
from dispatcher.source.protocols import ViewRequest
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.routes import Routes
from tests.daemon.harness import until
from tests.servers.plugin import ServerFactory
from tests.servers.server import Instance
from tests.support.dumps import account
from tests.support.examined import examine_hosts
from tests.support.starts import at_gtids, at_moment, at_offset

INSTALLATION = UUID(int=7)
KINDS = ("mysql97", "mysql56", "mariadb118")
CLOCK = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"

Own = Callable[[str], tuple[Instance, Endpoint]]


@pytest.fixture(scope="module")
def own(module_server_factory: ServerFactory) -> Own:
    """Start a server (5.6 without GTIDs) with an account that may replicate."""
    servers: dict[str, tuple[Instance, Endpoint]] = {}

    def get(kind: str) -> tuple[Instance, Endpoint]:
        if kind not in servers:
            options = ("--gtid-mode=OFF",) if kind == "mysql56" else ()
            server = module_server_factory(kind, *options)  # type: ignore[arg-type]
            server.execute(
                "CREATE DATABASE d", "CREATE TABLE d.t (n INT)", "CREATE TABLE d.u (n INT)"
            )
            servers[kind] = server, account(server, "repl")
        return servers[kind]

    return get


def source_of(*endpoints: Endpoint, name: str = "source") -> ServerSource:
    return ServerSource(endpoints, INSTALLATION, name, heartbeat_s=1)


def view_of(source: ServerSource, *starts: Start) -> ServerView:
    with closing(source.open(1)) as opened:
        return opened.view(ViewRequest(starts=starts))


def end_of(server: Instance) -> tuple[str, str, int]:
    """Return executed GTIDs, file and offset."""
    name = "gtid_binlog_pos" if server.mariadb else "gtid_executed"
    gtids = "" if server.kind == "mysql56" else server.execute(f"SELECT @@GLOBAL.{name}")[0][0]
    return gtids.replace("\n", ""), *server.binlog_position()


# -- starts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A transaction, with times between the previous transaction and this one, and the end of the log before the
    transaction."""

    moments: tuple[int, ...]
    gtids: str
    file: str
    offset: int
    begins_file: bool


def flush(server: Instance, times: int) -> None:
    """Begin new files. Soon after a new file, MariaDB logs the file with which a recovery would begin. Wait until this
    is the newest file."""
    server.execute(*["FLUSH BINARY LOGS"] * times)
    if server.mariadb:
        file, _ = server.binlog_position()
        query = f"SHOW BINLOG EVENTS IN '{file}'"
        until(
            lambda: any(
                row[2] == "Binlog_checkpoint" and row[5] == file for row in server.execute(query)
            ),
            "the server has logged its checkpoint",
        )


def write(server: Instance) -> list[Written]:
    """Write transactions into several files; one file has no transaction.

    MySQL 8.0 and later log the true time of each commit, which SET TIMESTAMP does not change. The other servers log the
    time of the statement in seconds, which SET TIMESTAMP changes.
    """
    exact = server.kind == "mysql97"
    flush(server, 1)
    ((now,),) = server.execute("SELECT UNIX_TIMESTAMP()")
    written = []
    for n, files in enumerate((0, 0, 0, 1, 0, 2, 0)):
        if files:
            flush(server, files)
        ((moment,),) = server.execute(CLOCK)
        at = int(now) + 100 * (n + 1)
        end = end_of(server)
        statements = [] if exact else [f"SET TIMESTAMP = {at}"]
        server.execute(
            *statements,
            "BEGIN",
            f"INSERT INTO d.t VALUES ({n})",
            f"INSERT INTO d.u VALUES ({n})",
            "COMMIT",
        )
        moments = (int(moment),) if exact else (at * 1_000_000 - 99_999_999, at * 1_000_000)
        written.append(Written(moments, *end, begins_file=not n or bool(files)))
    return written


@pytest.mark.parametrize("kind", KINDS)
def test_starts_in_the_log_of_a_server(own: Own, kind: str) -> None:
    server, endpoint = own(kind)
    source = source_of(endpoint)
    written = write(server)
    future = 4_000_000_000_000_000
    starts = [at_moment(moment) for one in written for moment in one.moments]
    # Offsets at which transactions end and, for the first transaction of a file, at which the file's log begins.
    starts += [at_offset(one.file, one.offset) for one in written]
    starts += [at_gtids(one.gtids) for one in written] if server.mariadb else []
    view = view_of(source, at_moment(0), at_moment(future), *starts)

    for one in written:
        exact = make_executed(view.mode, one.gtids, one.file, one.offset)
        beginning = make_executed(view.mode, one.gtids, one.file, 4)
        assert view.starts[at_offset(one.file, one.offset)] == exact
        for moment in one.moments:
            assert view.starts[at_moment(moment)] == (beginning if one.begins_file else exact), (
                moment
            )
        if server.mariadb:
            assert view.starts[at_gtids(one.gtids)] == (beginning if one.begins_file else exact)
        assert view.created[one.file] > 0
    oldest = server.binlogs()[0][0]
    assert view.starts[at_moment(0)] == make_executed(view.mode, "", oldest, 4)
    assert view.starts[at_moment(future)] == make_executed(
        view.mode, view.executed, view.file, view.offset
    )


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_in_the_log_of_a_server(own: Own, kind: str) -> None:
    """Tests the offset of each event in the server's list of a file's events, and the offset one byte later."""
    server, endpoint = own(kind)
    server.execute("FLUSH BINARY LOGS")
    file, _ = server.binlog_position()
    server.execute("BEGIN", "INSERT INTO d.t VALUES (1)", "INSERT INTO d.u VALUES (1)", "COMMIT")
    server.execute(
        "CREATE TABLE d.other (n INT)", "DROP TABLE d.other", "INSERT INTO d.t VALUES (2)"
    )
    server.execute("FLUSH BINARY LOGS")
    events = [
        (int(row[1]), str(row[2])) for row in server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    ]
    begins = {"Format_desc", "Previous_gtids", "Gtid", "Gtid_list", "Binlog_checkpoint", "Rotate"}
    # Without GTIDs, a transaction begins with BEGIN or a DDL statement.
    begins |= {"Query"} if kind == "mysql56" else set()
    between = {at for at, name in events if name in begins}
    offsets = sorted({at + by for at, _ in events for by in (0, 1)})
    view = view_of(source_of(endpoint), *(at_offset(file, offset) for offset in offsets))
    good = {
        offset
        for offset in offsets
        if isinstance(view.starts[at_offset(file, offset)], ExecutedPosition)
    }
    assert good == between, events
    for offset in set(offsets) - good:
        found = view.starts[at_offset(file, offset)]
        assert isinstance(found, BinlogError) and found.kind is ErrorKind.SETTINGS


def test_each_start_includes_transactions_that_the_server_counts_but_never_logged(own: Own) -> None:
    """On a restored server, a person has set gtid_purged, and no file's head contains these GTIDs."""
    server, endpoint = own("mysql97")
    other = "00000000-0000-0000-0000-00000000000a:1-5:tag:1-3:7"
    server.execute(f"SET GLOBAL gtid_purged = '+{other}'", "INSERT INTO d.t VALUES (3)")
    _, file, offset = end_of(server)
    view = view_of(source_of(endpoint), at_moment(0), at_offset(file, offset))
    place, beginning = view.starts[at_offset(file, offset)], view.starts[at_moment(0)]
    assert isinstance(place, ExecutedPosition) and isinstance(beginning, ExecutedPosition)
    for found in (place, beginning):
        assert isinstance(found.gtids, GtidSet)
        assert found.gtids.contains(GtidSet.parse(view.purged))
        assert found.gtids.contains(GtidSet.parse(other))
    place = beginning
    with Reading(source_of(endpoint), view.mode, place) as reading:  # from the log's beginning
        assert reading.transactions(1)


# -- what a server refuses ------------------------------------------------------------------------------------


class Reading:
    """A dispatcher's stream, which is read on a separate event loop."""

    def __init__(
        self, source: ServerSource, mode: Mode, place: ExecutedPosition, number: int = 1
    ) -> None:
        opened = source.open(number)
        try:
            self.stream: ServerStream = opened.dump(mode, place, Routes(), 1 << 16)
        except BaseException:
            opened.close()
            raise
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._loop.close()

    def _batches(self) -> list[Batch | Closed]:
        return self._loop.run_until_complete(asyncio.wait_for(self.stream.batches(), 20))

    def transactions(self, count: int) -> int:
        """Read until `count` transactions were received."""
        return len(self.gtids(count))

    def gtids(self, count: int) -> list[tuple[str, int]]:
        """Read until `count` transactions were received; returns the source and number of each."""
        seen: list[tuple[str, int]] = []
        while len(seen) < count:
            for batch in self._batches():
                if isinstance(batch, Closed):
                    raise self.stream.ended(batch)
                names = [*batch.sources, ""]
                numbers = zip(batch.tx.source.tolist(), batch.tx.gno.tolist(), strict=True)
                seen += [(names[source], number) for source, number in numbers]
        return seen

    def end(self) -> BinlogError:
        """Read until the dump ends; returns its error."""
        with pytest.raises(BinlogError) as caught:
            self.transactions(1 << 30)
        return caught.value


def refusal(source: ServerSource, mode: Mode, place: ExecutedPosition) -> BinlogError:
    try:
        reading = Reading(source, mode, place)
    except BinlogError as error:
        return error
    with reading:
        return reading.end()


def test_a_dump_of_purged_or_unknown_gtids_is_refused(own: Own) -> None:
    server, endpoint = own("mysql97")
    source = source_of(endpoint)
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (4)")
    newest, _ = server.binlog_position()
    oldest = server.binlogs()[0][0]
    server.execute(f"PURGE BINARY LOGS TO '{newest}'")
    purged = refusal(source, Mode.GTID, make_executed(Mode.GTID, "", "", 0))
    assert purged.kind is ErrorKind.POSITION_PURGED and "purged" in purged.what
    ((uuid,),) = server.execute("SELECT @@server_uuid")
    ahead = refusal(source, Mode.GTID, make_executed(Mode.GTID, f"{uuid}:1-1000000", "", 0))
    assert ahead.kind is ErrorKind.HISTORY_DIFFERS and "more GTIDs" in ahead.what
    gone = refusal(source, Mode.FILE, make_executed(Mode.FILE, "", oldest, 4))
    assert gone.kind is ErrorKind.POSITION_PURGED
    beyond = refusal(source, Mode.FILE, make_executed(Mode.FILE, "", newest, 1 << 30))
    assert beyond.kind is ErrorKind.HISTORY_DIFFERS


def test_a_search_stops_at_transactions_without_gtids(own: Own) -> None:
    """gtid_mode was OFF for a while: a search by file reports the transactions of that time."""
    server, endpoint = own("mysql97")
    server.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    server.execute("INSERT INTO d.t VALUES (5)")
    between = server.binlog_position()
    server.execute(
        "SET GLOBAL gtid_mode = ON_PERMISSIVE",
        "SET GLOBAL gtid_mode = ON",
        "INSERT INTO d.t VALUES (6)",
    )
    after = server.binlog_position()
    ((moment,),) = server.execute(CLOCK)
    server.execute("INSERT INTO d.t VALUES (7)")
    starts = [at_moment(int(moment)), at_offset(*between), at_offset(*after)]
    view = view_of(source_of(endpoint), *starts)
    assert view.starts[starts[0]] == view.starts[starts[2]]
    refused = view.starts[starts[1]]
    assert isinstance(refused, BinlogError) and refused.kind is ErrorKind.UNSUPPORTED_EVENT
    assert "gtid_mode=ON" in refused.remedy
    assert isinstance(view.starts[starts[2]], ExecutedPosition)
    server.execute(f"PURGE BINARY LOGS TO '{after[0]}'")


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "shortened": lambda log, _: log[:-30],
    "an event's size is too large": lambda log, at: log[: at + 9] + (1 << 31).to_bytes(4, "little") + log[at + 13 :],
    "an event's size is too small": lambda log, at: log[: at + 9] + (5).to_bytes(4, "little") + log[at + 13 :],
    "not a binlog": lambda log, _: b"what" + log[4:],
    "empty": lambda _log, _at: b"",
    "gone": lambda _log, _at: b"gone",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_of_the_server_is_reported(own: Own, kind: str) -> None:
    server, endpoint = own(kind)
    mode = Mode.MARIADB if server.mariadb else Mode.FILE
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (7)", "FLUSH BINARY LOGS")
    name = server.binlogs()[-2][0]
    path = server.datadir / name
    log = path.read_bytes()
    third = 4
    for _ in range(2):
        third += int.from_bytes(log[third + 9 : third + 13], "little")
    # Only with GTIDs can another host replace the first host.
    hosts = [endpoint, replace(endpoint)] if kind == "mysql97" else [endpoint]
    for how, damage in DAMAGES.items():
        source = source_of(*hosts)
        if how == "gone":
            path.rename(path.with_suffix(".away"))
        else:
            overwrite(path, damage(log, third))
        found = refusal(source, mode, make_executed(mode, "", name, 4))
        if found.kind is ErrorKind.CONNECTION_LOST:
            # A busy server may close a dump without sending its error. Then the daemon connects again.
            found = refusal(source, mode, make_executed(mode, "", name, 4))
        assert found.kind is ErrorKind.SERVER_LOG, (how, found)
        assert source.endpoint is hosts[-1], how  # the other host's file may be undamaged
        if how == "gone":
            path.with_suffix(".away").rename(path)
        overwrite(path, log)
    variable = "source_verify_checksum" if kind == "mysql97" else "master_verify_checksum"
    server.execute(f"SET GLOBAL {variable} = ON")
    overwrite(path, log[: third + 20] + bytes([log[third + 20] ^ 1]) + log[third + 21 :])
    found = refusal(source_of(endpoint), mode, make_executed(mode, "", name, 4))
    assert found.kind is ErrorKind.CHECKSUM_MISMATCH and "MySQL error 1236" in found.what
    server.execute(f"SET GLOBAL {variable} = OFF")
    found = refusal(source_of(endpoint), mode, make_executed(mode, "", name, 4))
    # The daemon itself has found the damage.
    assert found.kind is ErrorKind.CHECKSUM_MISMATCH and "1236" not in found.what
    overwrite(path, log)


def overwrite(path: Path, data: bytes) -> None:
    """Overwrite the file in place, so that its owner and mode stay the same."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_duplicate_server_uuid_is_reported_with_its_host(own: Own, kind: str) -> None:
    """Two installations have one identity. Each reads again as soon as the other has ended its dump."""
    server, endpoint = own(kind)
    ours, theirs = source_of(endpoint), source_of(endpoint)
    view = view_of(ours)
    end = make_executed(view.mode, view.executed, view.file, view.offset)
    ends: list[BinlogError] = []
    with Reading(ours, view.mode, end, number=2) as another, ExitStack() as stack:
        last: Reading | None = None
        for n, source in enumerate((ours, theirs, ours, theirs), 1):
            reading = stack.enter_context(Reading(source, view.mode, end))
            server.execute("INSERT INTO d.t VALUES (8)")  # this also wakes the dump that has to end
            assert reading.transactions(n) == n
            if last is not None:
                ends.append(last.end())
            last = reading
        assert another.transactions(4) == 4  # own dispatchers are no duplicates
    # 5.6 may end the first dump without a reason.
    named = ends.pop()
    assert all(end.kind is ErrorKind.DUPLICATE_SERVER_UUID for end in ends) or kind == "mysql56"
    assert named.kind is ErrorKind.DUPLICATE_SERVER_UUID
    assert "server uuid" in named.what and "server id" in named.what
    # MariaDB shows its replicas only to administrators.
    seen = f"; when this daemon connected, {socket.gethostname()} had this uuid and id"
    assert (seen in named.what) == (not server.mariadb)


@pytest.mark.parametrize("kind", KINDS)
def test_another_daemon_with_the_same_state_is_seen_by_both(own: Own, kind: str) -> None:
    """The dispatchers of the two daemons have different server ids, so the server ends neither dump."""
    server, endpoint = own(kind)
    ours, theirs = (source_of(endpoint, name="copied") for _ in range(2))
    view = view_of(ours)
    end = make_executed(view.mode, view.executed, view.file, view.offset)

    def duplicates(source: ServerSource) -> tuple[str, ...]:
        return source.survey(ViewRequest())[0].duplicates

    with Reading(ours, view.mode, end), Reading(ours, view.mode, end, number=3):
        assert duplicates(ours) == ()
        with Reading(theirs, view.mode, end, number=2):
            (theirs_as_seen,) = duplicates(ours)
            assert re.fullmatch(r"connection [0-9]+ from .+:[0-9]+", theirs_as_seen)
            assert len(duplicates(theirs)) == 2
        server.execute("INSERT INTO d.t VALUES (9)")  # makes the server notice the dump's end
        until(lambda: duplicates(ours) == (), "the other one has ended")
    # A successor takes the lock over from a predecessor whose end the server has not noticed.
    with Reading(ours, view.mode, end):
        server.execute("INSERT INTO d.t VALUES (9)")
        assert duplicates(ours) == ()
        until(lambda: len(duplicates(theirs)) == 1, "the others of it have ended")


# -- several hosts --------------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def test_a_host_that_fails_is_replaced_and_one_that_works_stays(own: Own, closed_port: int) -> None:
    server, good = own("mysql97")
    closed, stranger = replace(good, port=closed_port), replace(good, password="not it")
    server.add_user("no_replica", good.password, "SELECT ON *.*")
    powerless = replace(good, user="no_replica")
    source = source_of(closed, stranger, powerless, good)
    assert source.label == f"repl@127.0.0.1:{closed_port}" + f",127.0.0.1:{server.port}" * 3
    kinds = []
    for _ in range(3):
        with pytest.raises(BinlogError) as caught:
            source.open(1)
        kinds.append(caught.value.kind)
    assert kinds == [ErrorKind.CONNECT_FAILED, ErrorKind.ACCESS_DENIED, ErrorKind.GRANT_MISSING]
    for _ in range(2):
        assert view_of(source).server == server.execute("SELECT @@server_uuid")[0][0]
        assert source.endpoint is good
    # Surveys go to the current host, and a failed survey does not change the current host.
    assert source.survey(ViewRequest())[0].executed
    assert source.definitions([]) == []
    for _ in range(2):  # a second dispatcher on the same host changes nothing
        source.next_host(1)
        assert source.endpoint is closed
    asks = (
        partial(source.survey, ViewRequest()),
        partial(source.definitions, []),
        lambda: list(source.read_log("binlog.000001", 4, Routes())),
    )
    for ask in asks:
        with pytest.raises(BinlogError):
            ask()
        assert source.endpoint is closed


def test_dispatchers_that_fail_together_move_on_by_one_host(own: Own) -> None:
    _, endpoint = own("mysql97")
    hosts = [endpoint, replace(endpoint), replace(endpoint)]
    source = source_of(*hosts)
    first, second = source.open(1), source.open(2)
    for opened in (first, second):
        opened.close()
        with pytest.raises(BinlogError):
            opened.dump(
                Mode.FILE, make_executed(Mode.FILE, "", "binlog.000001", 4), Routes(), 1 << 16
            )
    assert source.endpoint is hosts[1]


def test_hosts_are_examined_one_by_one(own: Own, closed_port: int) -> None:
    (_, with_gtids), (_, without), (_, mariadb) = (own(kind) for kind in KINDS)
    assert [error for _, error in examine_hosts([with_gtids])] == []
    alone = [error.what for _, error in examine_hosts([without]) + examine_hosts([mariadb])]
    assert not any("another host" in what for what in alone)
    found = examine_hosts(
        [with_gtids, without, replace(with_gtids, port=closed_port), mariadb], ["d"]
    )
    assert [(label, error.kind) for label, error in found if "metadata" not in error.what] == [
        (without.label, ErrorKind.SERVER_SETTING),
        (f"repl@127.0.0.1:{closed_port}", ErrorKind.CONNECT_FAILED),
    ]
    assert sum("another host's log is another history" in error.what for _, error in found) == 1


def test_a_survey_returns_the_end_the_files_and_their_creation_times(own: Own) -> None:
    server, endpoint = own("mysql97")
    source = source_of(endpoint)
    server.execute("SET GLOBAL binlog_expire_logs_seconds = 1234", "FLUSH BINARY LOGS")
    names = [name for name, _ in server.binlogs()][-2:]
    view, expire_s = source.survey(ViewRequest([*names, "binlog.999999"]))
    assert expire_s == 1234 and list(view.created) == names
    assert (view.executed, view.file, view.offset) == end_of(server)
    assert view.files == tuple(server.binlogs())
    with closing(source.open(1)) as opened:
        assert {**opened.view(ViewRequest(names)).created} == view.created
    server.execute("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
    again, expire_s = source.survey(ViewRequest(names))
    assert expire_s is None and again.created == view.created


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_tells_which_offsets_are_boundaries(own: Own, kind: str) -> None:
    server, endpoint = own(kind)
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (1)")
    before, file, between = end_of(server)
    server.execute("INSERT INTO d.t VALUES (2)")
    with closing(source_of(endpoint).open(1)) as opened:

        def probe() -> tuple[int, ServerView] | None:
            """Returns the log's end, and a view of places near it; None while MariaDB appends a checkpoint, which SHOW
            BINARY LOGS does not count yet."""
            end = server.binlog_position()[1]
            offsets = (4, between, between + 3, end - 5, end, end + 1)
            places = [*((file, offset) for offset in offsets), ("binlog.999999", 4)]
            view = opened.view(ViewRequest(places=places))
            is_end = server.binlog_position()[1] == end and (file, end) in view.files
            return (end, view) if is_end else None

        probed = until(probe, "a view of the log's end")
        assert probed is not None
        end, view = probed
    found = {offset: at for (_, offset), at in view.boundaries.items()}
    assert {offset: at.whole for offset, at in found.items()} == {
        between: True,
        between + 3: False,
        end - 5: False,
        end: True,
    }
    assert found[end].gtid is None
    if view.mode is Mode.GTID:
        new = GtidSet.parse(view.executed).subtract(GtidSet.parse(before))
        ((source, ((number, _),)),) = new.sources().items()
        assert found[between].gtid == (source, number)
    else:
        assert found[between].gtid is None
    assert view.created == opened.view(ViewRequest([file])).created


def test_a_host_of_mariadb_that_does_not_log_what_it_replicates_is_refused(
    own: Own, server_factory: ServerFactory
) -> None:
    server = server_factory("mariadb118", "--skip-log-slave-updates", "--server-id=7")
    endpoint, (_, other) = account(server, "repl"), own("mariadb118")
    assert examine_hosts([endpoint]) == []
    source = source_of(endpoint, other)
    with pytest.raises(BinlogError, match="log_slave_updates=OFF") as caught:
        source.open(1)
    checked = [str(error) for _, error in examine_hosts([endpoint, other])]
    assert checked == [str(without_place(caught.value))]
    view = view_of(source)
    assert source.endpoint is other and view.mode is Mode.DOMAINS


def test_a_dump_of_mariadb_by_gtid_sends_what_follows_in_each_domain(
    own: Own,
) -> None:
    server, endpoint = own("mariadb118")
    source = source_of(endpoint, replace(endpoint))
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (1)")
    newest, _ = server.binlog_position()
    server.execute("SET SESSION gtid_domain_id = 9", *["INSERT INTO d.u VALUES (1)"] * 3)
    server.execute("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS")
    held = DomainGtids.parse(end_of(server)[0])
    (zero, last), (nine, third) = held.domains()[0], held.domains()[9]
    start = make_executed(Mode.DOMAINS, f"0-{zero}-{last - 1},9-{nine}-{third - 2}", "", 0)
    with Reading(source, Mode.DOMAINS, start) as reading:
        read = reading.gtids(3)
    assert sorted(read) == sorted(
        [(f"9-{nine}", third - 1), (f"9-{nine}", third), (f"0-{zero}", last)]
    )
    # A file that a dump reads is not purged, and the server notices the end of a dump late.
    purge = f"PURGE BINARY LOGS TO '{server.binlogs()[-1][0]}'"
    until(lambda: server.execute(purge) or len(server.binlogs()) == 1, "the files are purged")
    purged = refusal(source, Mode.DOMAINS, start)
    assert purged.kind is ErrorKind.POSITION_PURGED, purged
    absent = refusal(source, Mode.DOMAINS, make_executed(Mode.DOMAINS, f"0-77-{last}", "", 0))
    assert absent.kind is ErrorKind.HISTORY_DIFFERS, absent
    view = view_of(source)
    assert view.purged == str(held) and newest not in dict(view.files)


def test_a_host_that_no_other_can_replace_is_refused_and_stays_current(
    own: Own, closed_port: int
) -> None:
    _, endpoint = own("mysql56")
    other = replace(endpoint, port=closed_port)
    source = source_of(endpoint, other)
    checked = [str(error) for _, error in examine_hosts([endpoint, other])]
    for _ in range(3):
        with pytest.raises(BinlogError, match="another host's log is another history") as caught:
            source.open(1)
        assert caught.value.kind is ErrorKind.SERVER_SETTING
        assert str(without_place(caught.value)) in checked
        assert source.endpoint is endpoint
    # If a host cannot be reached, the next host becomes current. The daemon also refuses that host.
    source = source_of(other, endpoint)
    kinds = []
    for _ in range(3):
        with pytest.raises(BinlogError) as caught:
            source.open(1)
        kinds.append(caught.value.kind)
    assert kinds == [ErrorKind.CONNECT_FAILED, ErrorKind.SERVER_SETTING, ErrorKind.SERVER_SETTING]


def without_place(error: BinlogError) -> BinlogError:
    """Return the error without `where`, because `check` prints the place separately."""
    return BinlogError(error.kind, error.what, remedy=error.remedy)
