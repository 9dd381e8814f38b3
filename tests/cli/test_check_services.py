"""`check` names the service that runs a server, says what to do there, and knows by which setting it purges binlogs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.server_facts import read_facts
from dispatcher.source.mysql.examination import report_of
from tests.cli.program import PASSWORD, call, consumer, write
from tests.daemon.harness import until
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.support.hostile_server import Answer, Answers, HostileServer, Session

RDS = {"version": "8.0.35", "basedir": "/rdsdbbin/mysql/"}
HOURS = "SELECT value FROM mysql.rds_configuration"


def hours(value: str | None) -> Answer:
    return lambda session, _: session.rows([(value,)])


def no_hours(session: Session, _: str) -> None:
    session.rows([], columns=1)


def refused(session: Session, _: str) -> None:
    session.error(1142, "SELECT command denied to user 'repl'@'%' for table 'rds_configuration'")


def warnings_of(variables: Mapping[str, str], statements: Mapping[str, Answer]) -> list[str]:
    """Returns what `check` warns about on a server with these variables and answers, and the remedies."""
    clock: Answer = lambda session, _: session.rows([(f"{time.time():.6f}",)])  # noqa: E731
    answers = Answers(
        variables=variables, statements={"SELECT UNIX_TIMESTAMP": clock, **statements}
    )
    with HostileServer(answers) as server:
        endpoint = Endpoint("127.0.0.1", server.port, "repl", PASSWORD)
        report = report_of(endpoint, [], (), several=False)
    assert all(finding.warning for finding in report.findings), report
    return [f"{each.error.what}; {each.error.remedy}" for each in report.findings]


def test_check_prints_the_command_of_the_service(tmp_path: Path) -> None:
    answers = Answers(variables={**RDS, "binlog_format": "MIXED"}, statements={HOURS: hours("24")})
    with HostileServer(answers) as server:
        done = call("check", "--config", write(tmp_path, ("shop", consumer(server.port, "cli"))))
    (line,) = [line for line in done.stderr.splitlines() if "binlog_format" in line]
    assert done.returncode == 2
    assert (
        "binlog_format=MIXED: statements instead of rows; aws rds modify-db-parameter-group" in line
    )


@pytest.mark.parametrize("answer", [hours(None), no_hours], ids=["NULL", "no row"])
def test_a_service_that_does_not_keep_binlogs(answer: Answer) -> None:
    """The server's own variable says 30 days, but Amazon RDS does not purge by it."""
    (warning,) = warnings_of(RDS, {HOURS: answer})
    assert warning == (
        "Amazon RDS for MySQL purges binlogs as soon as it can ('binlog retention hours' is not set);"
        " CALL mysql.rds_set_configuration('binlog retention hours', 168): a consumer that is not read for longer loses"
        " its position"
    )


def test_a_service_that_keeps_binlogs_for_some_hours() -> None:
    (warning,) = warnings_of(RDS, {HOURS: hours("6")})
    assert warning.startswith("the server purges its binlogs after 21600 s, less than a day; CALL")
    assert warnings_of(RDS, {HOURS: hours("24")}) == []


def test_an_account_that_may_not_read_how_long_binlogs_are_kept() -> None:
    (warning,) = warnings_of(RDS, {HOURS: refused})
    assert warning.startswith("Amazon RDS for MySQL purges binlogs by a setting of its own")
    assert "GRANT SELECT ON mysql.rds_configuration TO the account" in warning


@pytest.mark.parametrize(
    ("answer", "seconds"), [(hours("24"), 86_400), (hours(None), 0), (refused, None)]
)
def test_the_runway_follows_the_setting_of_the_service(answer: Answer, seconds: int | None) -> None:
    with HostileServer(Answers(variables=RDS, statements={HOURS: answer})) as server:
        endpoint = Endpoint("127.0.0.1", server.port, "repl", PASSWORD)
        with closing(connect(endpoint)) as connection:
            assert read_facts(connection).expire_seconds == seconds


def test_the_retention_of_a_service_with_a_variable() -> None:
    azure = {"version": "8.0.42-azure", "binlog_expire_logs_seconds": "3600"}
    (warning,) = warnings_of(azure, {})
    assert "3600 s" in warning
    assert "--name binlog_expire_logs_seconds --value 604800" in warning


def test_a_service_without_a_binlog_is_refused_by_its_greeting() -> None:
    """The service may not understand any other question, so `check` asks none."""
    with HostileServer(Answers(greeting="8.0.30-Vitess")) as server:
        endpoint = Endpoint("127.0.0.1", server.port, "repl", PASSWORD)
        report = report_of(endpoint, [], (), several=False)
    (finding,) = report.findings
    assert not finding.warning
    assert finding.error.what.startswith("Vitess or PlanetScale: it has no binlog")
    assert finding.error.remedy == "see docs/servers/README.md"


def test_a_galera_node_that_does_not_log_what_other_nodes_write() -> None:
    node = {"version": "11.8.9-MariaDB", "wsrep_on": "1", "log_slave_updates": "0"}
    log = {"gtid_binlog_pos": "0-1-1", "gtid_executed": ""}
    (warning,) = warnings_of({**node, **log}, {})
    assert warning.startswith("log_slave_updates=OFF: the server's binlog lacks what other nodes")
    assert warnings_of({**node, **log, "log_slave_updates": "1"}, {}) == []


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_replica_that_does_not_log_what_it_replicates(
    kind: Kind, server_factory: ServerFactory
) -> None:
    off = "--log-replica-updates=OFF" if kind == "mysql97" else "--log-slave-updates=OFF"
    primary, replica = server_factory(kind), server_factory(kind, "--server-id=2", off)
    primary.add_user("repl", PASSWORD)
    replica.add_user("own", PASSWORD)
    endpoint = Endpoint("127.0.0.1", replica.port, "own", PASSWORD)
    assert report_of(endpoint, [], (), several=False).findings == ()
    host = f"_HOST = '127.0.0.1', %s_PORT = {primary.port}, %s_USER = 'repl', %s_PASSWORD = \"{PASSWORD}\""
    if kind == "mysql97":
        change = (
            f"CHANGE REPLICATION SOURCE TO SOURCE{host}, SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1"
        )
        replica.execute(change.replace("%s", "SOURCE"), "START REPLICA")
    else:
        change = f"CHANGE MASTER TO MASTER{host}, MASTER_USE_GTID = slave_pos, MASTER_SSL_VERIFY_SERVER_CERT = 0"
        replica.execute(change.replace("%s", "MASTER"), "START SLAVE")
    primary.execute("CREATE DATABASE replicated")
    until(lambda: replica.execute("SHOW DATABASES LIKE 'replicated'"), "it is replicated")
    (finding,) = report_of(endpoint, [], (), several=False).findings
    assert (
        finding.warning
        and "=OFF: the server's binlog lacks what it replicates" in finding.error.what
    )
