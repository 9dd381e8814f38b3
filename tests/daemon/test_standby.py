"""Two daemons share one state in a database. One daemon is the leader, the other daemon takes over, and readers get
each change once.

The state is on a separate server, so that a test can restart this server without the server that the daemons read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.conftest import MakePair, Source
from tests.daemon.harness import (
    Daemon,
    Json,
    Problem,
    Reader,
    inserted_ids,
    load,
    until,
)
from tests.daemon.pair import (
    NEVER_S,
    Follower,
    Pair,
    reach_state_through,
    refusal,
    role_of,
    stopped,
    suspended,
    until_leads,
    until_stands_by,
)
from tests.servers import Instance
from tests.support.proxy import SWALLOWING, Proxy

# -- the standby ------------------------------------------------------------------------------------------------


def test_a_standby_lives_is_not_ready_and_names_the_leader(make_pair: MakePair) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    assert pair.b.api.text("/livez") == "ok\n"
    status, _, text = pair.b.api.request("GET", "/readyz?verbose")
    assert (status, text.decode()) == (503, f"not ready: standby: {pair.a.url} leads, term 1\n")
    assert role_of(pair.a) == {"role": "leader", "term": 1, "leader": pair.a.url}
    pair.until_one_dump()


@pytest.mark.parametrize("call", ["session", "poll", "binlog", "ack", "slices", "pause"])
def test_a_standby_refuses_each_call_of_a_consumer(make_pair: MakePair, call: str) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    at = Reader(pair.a, "d").open().position
    bodies: dict[str, Json] = {
        "session": {"after": None},
        "poll": {"session": 1, "after": at},
        "binlog": {"session": 1, "start": at, "end": at},
        "ack": {"session": 1, "position": at},
        "slices": {"session": 1, "start": at, "end": at, "n": 2},
        "pause": {},
    }
    with pytest.raises(Problem) as refused:
        pair.b.api.call("d", call, **bodies[call])
    assert (refused.value.status, refused.value.kind) == (503, "NOT_LEADER")
    assert refused.value.body["leader"] == refused.value.headers["Binlog-Leader"] == pair.a.url
    assert int(refused.value.headers["Retry-After"]) > 0


def test_metrics_and_the_list_of_consumers_tell_the_role(make_pair: MakePair) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    for daemon, leads in ((pair.a, 1), (pair.b, 0)):
        metrics = daemon.api.text("/metrics")
        assert f"\nbinlog_dispatcher_leader {leads}" in metrics
        assert "\nbinlog_dispatcher_leader_term 1" in metrics
    with pytest.raises(Problem, match="NOT_LEADER"):
        pair.b.api.get("/v1/binlogs")


def test_a_daemon_without_its_database_waits_for_it(make_pair: MakePair) -> None:
    pair = make_pair()
    with stopped(pair.store):
        until(lambda: refusal(pair.a).kind == "NOT_LEADER", "the leader has resigned")
        assert refusal(pair.a).body["leader"] is None
        pair.b.restart(kill=True)
        assert pair.b.api.request("GET", "/readyz")[0] == 503
    Follower(pair.a, pair.b).read_to(0)


# -- takeovers --------------------------------------------------------------------------------------------------


def test_a_standby_takes_over_from_a_daemon_that_was_killed(make_pair: MakePair) -> None:
    pair = make_pair()
    follower = Follower(pair.a, pair.b)
    with load(pair.server, "d") as written:
        follower.read_to(20)
        pair.a.kill()
        follower.read_to(40)
        until_leads(pair.b)
        pair.a.start()
        until_stands_by(pair.a, pair.b)
        follower.read_to(60)
    assert pair.lease() == (pair.b.url, 2)
    check_everything_was_read(pair, follower, written.ids())


def test_a_leader_that_was_stopped_longer_than_its_lease_can_acknowledge_nothing(
    make_pair: MakePair,
) -> None:
    pair = make_pair()
    follower = Follower(pair.a, pair.b)
    with load(pair.server, "d") as written:
        follower.read_to(20)
        stale = Reader(pair.a, "d", follower.reader.session, follower.reader.position)
        with suspended(pair.a):
            until_leads(pair.b)
            pair.until_one_dump()  # the server has ended the dump of the suspended daemon
            follower.reader.daemon, follower.reader.session = pair.b, 0
            follower.read_to(40)
        with pytest.raises(Problem, match="NOT_LEADER"):
            stale.acknowledge()
        until_stands_by(pair.a, pair.b)
        follower.read_to(60)
    check_everything_was_read(pair, follower, written.ids())


def test_a_daemon_that_ends_hands_over_at_once(make_pair: MakePair) -> None:
    """The test's lease lasts for an hour, so the standby cannot have waited until the lease expired."""
    pair = make_pair(NEVER_S)
    follower = Follower(pair.a, pair.b)
    with load(pair.server, "d") as written:
        follower.read_to(20)
        pair.a.stop()
        until_leads(pair.b)
        follower.read_to(40)
        pair.a.start()
        until_stands_by(pair.a, pair.b)
        pair.b.stop()
        until_leads(pair.a)
        follower.read_to(60)
    assert pair.lease() == (pair.a.url, 3)
    check_everything_was_read(pair, follower, written.ids())


def test_a_daemon_ends_also_if_its_database_does_not_answer(
    make_pair: MakePair, state_server: Instance
) -> None:
    with Proxy(state_server.port) as proxy:
        pair = make_pair(NEVER_S, begun=False)
        for daemon in (pair.a, pair.b):
            reach_state_through(daemon, proxy.port)
        pair.start()
        proxy.set(SWALLOWING)
        pair.a.stop()
        pair.b.stop()


@pytest.mark.parametrize("kill", [False, True])
def test_the_database_of_the_state_is_restarted(make_pair: MakePair, kill: bool) -> None:
    pair = make_pair()
    follower = Follower(pair.a, pair.b)
    with load(pair.server, "d") as written:
        follower.read_to(20)
        pair.store.restart(kill=kill)
        follower.read_to(40)
    check_everything_was_read(pair, follower, written.ids())


def test_the_state_may_be_on_the_server_that_is_read(make_pair: MakePair) -> None:
    """In this case, the daemons' own writes are transactions in the log that the daemons read."""
    pair = make_pair(on_source=True)
    follower = Follower(pair.a, pair.b)
    with load(pair.server, "d") as written:
        follower.read_to(20)
        pair.a.kill()
        follower.read_to(40)
        pair.a.start()
        follower.read_to(60)
    check_everything_was_read(pair, follower, written.ids())


def test_a_standby_takes_over_with_the_settings_of_its_last_reload(
    make_pair: MakePair, source: Source
) -> None:
    pair = make_pair(NEVER_S)
    until_stands_by(pair.b, pair.a)
    pair.b.settings["consumers"]["new"] = source(pair.server, "d")
    pair.b.reload()
    pair.a.stop()
    until_leads(pair.b)
    assert sorted(pair.b.api.rows()) == ["d", "new"]


def test_a_daemon_can_lead_again_and_again_in_one_process(make_pair: MakePair) -> None:
    pair = make_pair(1)
    follower = Follower(pair.a, pair.b)
    open_files: list[int] = []
    with load(pair.server, "d") as written:
        for leader, other in ((pair.a, pair.b), (pair.b, pair.a)) * 3:
            until_leads(leader)
            follower.read_to(len(follower.reader.transactions) + 10)
            with suspended(leader):
                until_leads(other)
            until_stands_by(leader, other)
            if leader is pair.a:
                open_files.append(files_of(leader))
        until(lambda: files_of(pair.b) <= open_files[0] + 2, "terms leave nothing open")
    check_everything_was_read(pair, follower, written.ids())


# -- what the tests share ---------------------------------------------------------------------------------------


def check_everything_was_read(pair: Pair, follower: Follower, ids: list[int]) -> None:
    """Assert that the reader has received each row once, in order, and that the server sends one dump."""
    until(lambda: read_all(follower, ids), "the reader has all rows")
    pair.until_one_dump()


def read_all(follower: Follower, ids: list[int]) -> bool:
    follower.read_to(len(follower.reader.transactions))
    follower.reader.step(wait_ms=100)
    follower.reader.acknowledge()
    return inserted_ids(follower.reader, "d.load") == ids


def files_of(daemon: Daemon) -> int:
    """Returns the number of open file descriptors of the process."""
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
