"""Questions that proxies, managed replicas and their setup programs ask a source when they start. The front answers or
refuses each of them at once, and the connection stays usable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pymysql
import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.front.fronted import Fronted, until_greets
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

# ProxySQL's monitor, and what it sends on each connection to a server.
PROXY = (
    "SET wait_timeout=800", "SET autocommit=1", "SET NAMES utf8mb4", "SET SESSION session_track_gtids='OWN_GTID'",
    "SET sql_mode='', time_zone='+00:00'", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SELECT @@global.read_only read_only", "SELECT @@global.super_read_only read_only",
    "SELECT @@global.innodb_read_only read_only", "SELECT @@global.read_only&@@global.innodb_read_only read_only",
    "SELECT @@global.read_only|@@global.innodb_read_only read_only",
    "SHOW SLAVE STATUS", "SHOW REPLICA STATUS", "SHOW ALL SLAVES STATUS", "SHOW SLAVE 'x' STATUS",
    "SELECT MAX(ROUND(TIMESTAMPDIFF(MICROSECOND, ts, SYSDATE(6)))) AS Seconds_Behind_Master FROM percona.heartbeat",
    "SELECT viable_candidate, read_only, transactions_behind FROM sys.gr_member_routing_candidate_status",
    "SELECT * FROM performance_schema.replication_group_members",
    "SELECT SERVER_ID, SESSION_ID, LAST_UPDATE_TIMESTAMP, REPLICA_LAG_IN_MILLISECONDS, CPU FROM"
    " INFORMATION_SCHEMA.REPLICA_HOST_STATUS WHERE REPLICA_LAG_IN_MILLISECONDS > 0 OR SESSION_ID = 'MASTER_SESSION_ID'",
    "SELECT (SELECT VARIABLE_VALUE FROM INFORMATION_SCHEMA.GLOBAL_STATUS WHERE VARIABLE_NAME='WSREP_LOCAL_STATE')"
    " wsrep_local_state, @@read_only read_only, @@wsrep_desync wsrep_desync",
    "SHOW GLOBAL STATUS LIKE 'wsrep_%'", "SHOW GLOBAL VARIABLES LIKE 'wsrep_%'", "SELECT CONNECTION_ID()", "SELECT 1",
    "SHOW WARNINGS", "SELECT VERSION()", "SHOW PROCESSLIST",
)  # fmt: skip
# A stock replica of MySQL and MariaDB.
REPLICA = (
    "SELECT UNIX_TIMESTAMP()", "SELECT @@GLOBAL.SERVER_ID", "SHOW VARIABLES LIKE 'SERVER_ID'",
    "SET @master_heartbeat_period = 30000001024, @source_heartbeat_period = 30000001024",
    "SET @source_binlog_checksum = @@global.binlog_checksum, @master_binlog_checksum = @@global.binlog_checksum",
    "SELECT @source_binlog_checksum", "SELECT @master_binlog_checksum", "SELECT @@GLOBAL.GTID_MODE",
    "SELECT @@GLOBAL.SERVER_UUID", "SELECT @@GLOBAL.COLLATION_SERVER", "SELECT @@GLOBAL.TIME_ZONE",
    "SET @replica_uuid = '3e11fa47-71ca-11e1-9e33-c80aa9429562'", "SELECT @@global.rpl_semi_sync_source_enabled",
    "SELECT @@global.rpl_semi_sync_master_enabled", "SET @rpl_semi_sync_replica = 1",
    "SET @mariadb_slave_capability = 4", "SELECT @@GLOBAL.gtid_domain_id",
    "SET @slave_connect_state = ''", "SET @slave_gtid_strict_mode = 1",
    "SET @slave_gtid_ignore_duplicates = 0", "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'",
    "SELECT @@GLOBAL.read_only", "SELECT @@GLOBAL.gtid_binlog_state",
)  # fmt: skip
# The set-up of replicas in Amazon RDS, Aurora and Cloud SQL, and the dumps with which they begin.
CLOUD = (
    "CALL mysql.rds_set_external_master('h', 3306, 'u', 'p', 'binlog.000001', 4, 0)",
    "CALL mysql.rds_set_external_source_with_auto_position('h', 3306, 'u', 'p', 0)",
    "CALL mysql.rds_start_replication", "CALL mysql.rds_set_configuration('binlog retention hours', 24)",
    "CALL mysql.rds_show_configuration", "SELECT name, value FROM mysql.rds_configuration", "SELECT AURORA_VERSION()",
    "SELECT @@aurora_version", "SELECT @@aurora_server_id", "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS",
    "SHOW BINARY LOGS", "SHOW MASTER LOGS", "SHOW GRANTS", "SHOW GRANTS FOR CURRENT_USER()", "SELECT CURRENT_USER()",
    "SELECT USER()", "SHOW DATABASES", "SHOW SCHEMAS", "SELECT @@version_comment LIMIT 1",
    "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@server_id, @@gtid_mode, @@enforce_gtid_consistency",
    "SHOW VARIABLES LIKE 'log_bin'", "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('gtid_mode', 'log_bin', 'version')",
    "SHOW VARIABLES LIKE 'gtid\\_mode'", "SELECT @@GLOBAL.GTID_EXECUTED", "SELECT @@GLOBAL.GTID_PURGED",
    "FLUSH TABLES WITH READ LOCK", "FLUSH /*!40101 LOCAL */ TABLES", "LOCK INSTANCE FOR BACKUP", "UNLOCK TABLES",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */", "SHOW STATUS LIKE 'binlog_snapshot_%'",
    "SELECT COUNT(*) FROM information_schema.tables WHERE engine <> 'InnoDB'",
    "SELECT table_schema, SUM(data_length + index_length) FROM information_schema.tables GROUP BY 1",
    "SELECT user, host FROM mysql.user", "SELECT definer FROM information_schema.views",
    "SHOW ENGINE INNODB STATUS", "SHOW PLUGINS", "PURGE BINARY LOGS TO 'binlog.000001'", "RESET MASTER",
    "CREATE USER 'r'@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO 'r'@'%'",
    "SELECT * FROM shop.t", "SELECT * FROM other.t", "INSERT INTO shop.t VALUES (5, 'x')", "SELECT SLEEP(100)",
    "SELECT GET_LOCK('x', 100)", "SELECT WAIT_FOR_EXECUTED_GTID_SET('3e11fa47-71ca-11e1-9e33-c80aa9429562:9', 100)",
    "SELECT MASTER_POS_WAIT('binlog.000009', 4, 100)", "SELECT MASTER_GTID_WAIT('0-1-99', 100)",
    "HELP 'x'", "", ";", "SELECT", "\\0",
)  # fmt: skip
TIMEOUT_S = 5


@pytest.fixture(params=["mysql97", "mariadb1011", "mariadb118"])
def asked(
    request: pytest.FixtureRequest,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> Iterator[Fronted]:
    kind: Kind = request.param
    server = server_factory(kind)
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    front = free_port()
    daemon = make_daemon({"shop": source(server, "shop")}, front={"listen": f"127.0.0.1:{front}"})
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    until_greets(front)
    with closing(Fronted(server, daemon, front)) as fronted:
        yield fronted


@pytest.mark.parametrize("questions", [PROXY, REPLICA, CLOUD], ids=["proxy", "replica", "cloud"])
def test_each_question_is_answered_or_refused(asked: Fronted, questions: tuple[str, ...]) -> None:
    connection = pymysql.connect(
        host="127.0.0.1", port=asked.port, user="shop", password="", read_timeout=TIMEOUT_S
    )
    with closing(connection), connection.cursor() as cursor:
        refused = []
        for sql in questions:
            try:
                cursor.execute(sql)
                cursor.fetchall()
            except pymysql.err.MySQLError as error:
                refused.append((sql, *error.args))
            connection.ping(reconnect=False)
        cursor.execute("SELECT VERSION()")
        assert cursor.fetchone() is not None
    # A number from 2000 to 2999 is a lost connection, or an answer that did not arrive in time.
    assert [question for question in refused if 2000 <= question[1] < 3000] == []
    assert [question for question in refused if not question[2]] == []
    assert asked.server.execute("SELECT COUNT(*) FROM shop.t") == ((0,),)


def test_each_command_is_answered_or_refused(asked: Fronted) -> None:
    """A proxy may send COM_CHANGE_USER, COM_RESET_CONNECTION, COM_STATISTICS and others."""
    for command in (0x02, 0x04, 0x09, 0x0A, 0x0D, 0x0E, 0x11, 0x16, 0x1B, 0x1F):
        with closing(asked.connect()) as connection:
            connection._execute_command(command, b"\0\0")  # type: ignore[attr-defined]
            connection._sock.settimeout(TIMEOUT_S)  # type: ignore[attr-defined]
            assert connection._sock.recv(1 << 16)  # type: ignore[attr-defined]
        with closing(asked.connect()) as connection:
            connection.ping(reconnect=False)
