"""The statements that clients sent to real servers, from the servers' general logs.

A client's statements are in the order in which it sent them, without repetitions, and with their original indentation.
The consumer of the tests reads the database `shop` with the table `items`. REFUSED are statements that the front
refuses, with the number of its error.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.servers.installs import KINDS, Kind

MYSQL: tuple[Kind, ...] = ("mysql97", "mysql56")
MARIADB: tuple[Kind, ...] = ("mariadb1011", "mariadb118")


class Recording(NamedTuple):
    client: str
    servers: tuple[Kind, ...]
    statements: tuple[str, ...]


_CONNECTOR_J = (
    "/* mysql-connector-j-9.1.0 (Revision: cf2917ea44ae2e43a4514a33771035aa99de73bf) */SELECT "
    " @@session.auto_increment_increment AS auto_increment_increment, @@character_set_client AS character_set_client,"
    " @@character_set_connection AS character_set_connection, @@character_set_results AS character_set_results,"
    " @@character_set_server AS character_set_server, @@collation_server AS collation_server,"
    " @@collation_connection AS collation_connection, @@init_connect AS init_connect,"
    " @@interactive_timeout AS interactive_timeout, @@license AS license,"
    " @@lower_case_table_names AS lower_case_table_names, @@max_allowed_packet AS max_allowed_packet,"
    " @@net_write_timeout AS net_write_timeout, @@performance_schema AS performance_schema,{} @@sql_mode AS sql_mode,"
    " @@system_time_zone AS system_time_zone, @@time_zone AS time_zone, @@{} AS transaction_isolation,"
    " @@wait_timeout AS wait_timeout"
)
_QUERY_CACHE = " @@query_cache_size AS query_cache_size, @@query_cache_type AS query_cache_type,"
_CHECKSUM = "SET @master_binlog_checksum= @@global.binlog_checksum"

RECORDINGS = (
    Recording(
        "mysqlbinlog 9.7",
        MYSQL,
        (
            "SELECT VERSION()",
            "SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'",
        ),
    ),
    Recording(
        "mariadb-binlog",
        MARIADB,
        (
            "SELECT VERSION()",
            "SET @master_binlog_checksum='NONE'",
            "SET @mariadb_slave_capability=4",
            "SET @slave_connect_state='0-1-3'",
        ),
    ),
    Recording(
        "mysql 9.7",
        MYSQL,
        ("select @@version_comment limit 1", "show databases", "show tables", "select 1"),
    ),
    Recording("mariadb 11.8", MARIADB, ("show databases",)),
    Recording(
        "replica, MySQL 9.7",
        ("mysql97",),
        (
            "SELECT UNIX_TIMESTAMP()",
            "SELECT @@GLOBAL.SERVER_ID",
            "SET @master_heartbeat_period = 2000000000, @source_heartbeat_period = 2000000000",
            "SET @master_binlog_checksum = @@global.binlog_checksum,"
            " @source_binlog_checksum = @@global.binlog_checksum",
            "SELECT @source_binlog_checksum",
            "SELECT @@GLOBAL.GTID_MODE",
            "SELECT @@GLOBAL.SERVER_UUID",
            "SET @slave_uuid = 'fb18ad44-e955-11f1-8f12-02fc00000001',"
            " @replica_uuid = 'fb18ad44-e955-11f1-8f12-02fc00000001'",
            "SELECT @@global.rpl_semi_sync_source_enabled",
            "SET @rpl_semi_sync_replica = 1",
        ),
    ),
    Recording(
        "replica, MySQL 5.6",
        ("mysql56",),
        (
            "SELECT UNIX_TIMESTAMP()",
            "SHOW VARIABLES LIKE 'SERVER_ID'",
            "SET @master_heartbeat_period= 2000000000",
            _CHECKSUM,
            "SELECT @master_binlog_checksum",
            "SELECT @@GLOBAL.GTID_MODE",
            "SHOW VARIABLES LIKE 'SERVER_UUID'",
            "SET @slave_uuid= '02f58d6b-e956-11f1-bf10-02fc00000001'",
        ),
    ),
    Recording(
        "replica, MariaDB, by GTID",
        MARIADB,
        (
            "SELECT UNIX_TIMESTAMP()",
            "SHOW VARIABLES LIKE 'SERVER_ID'",
            "SET @master_heartbeat_period= 2000000000",
            _CHECKSUM,
            "SELECT @master_binlog_checksum",
            "SET @mariadb_slave_capability=4",
            "SELECT @@GLOBAL.gtid_domain_id",
            "SET @slave_connect_state=''",
            "SET @slave_gtid_strict_mode=1",
            "SET @slave_gtid_ignore_duplicates=0",
            "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'",
            "SET @rpl_semi_sync_slave= 1",
        ),
    ),
    Recording(
        "replica, MariaDB, by file",
        MARIADB,
        ("SET @mariadb_slave_capability=4", "SELECT binlog_gtid_pos('binlog.000001',4)"),
    ),
    Recording(
        "python-mysql-replication",
        KINDS,
        (
            "SET NAMES utf8",
            "SET AUTOCOMMIT = 0",
            "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'",
            _CHECKSUM,
            "SET @mariadb_slave_capability=4",
            "SHOW VARIABLES LIKE 'BINLOG_ROW_METADATA'",
        ),
    ),
    Recording(
        "asyncmy",
        KINDS,
        (
            "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'",
            "set @master_binlog_checksum= @@global.binlog_checksum",
            "SELECT\n                        COLUMN_NAME, COLLATION_NAME, CHARACTER_SET_NAME,\n"
            "                        COLUMN_COMMENT, COLUMN_TYPE, COLUMN_KEY, ORDINAL_POSITION\n"
            "                    FROM\n                        information_schema.columns\n"
            "                    WHERE\n                        table_schema = 'shop' AND table_name = 'items'\n"
            "                    ORDER BY ORDINAL_POSITION",
        ),
    ),
    Recording(
        "zongji",
        KINDS,
        (
            "select @@GLOBAL.binlog_checksum as checksum",
            "set @master_binlog_checksum=@@global.binlog_checksum",
            "SELECT COLUMN_NAME, COLLATION_NAME, CHARACTER_SET_NAME, COLUMN_COMMENT, COLUMN_TYPE"
            " FROM information_schema.columns WHERE table_schema='shop' AND table_name='items'",
        ),
    ),
    Recording(
        "@vlasky/zongji",
        KINDS,
        (
            "SELECT VERSION() AS version",
            "select @@GLOBAL.binlog_checksum as checksum",
            "SELECT\n  COLUMN_NAME, COLLATION_NAME, CHARACTER_SET_NAME,\n  COLUMN_COMMENT, COLUMN_TYPE\n"
            "  FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA='shop' AND TABLE_NAME='items'\n"
            "  ORDER BY ORDINAL_POSITION",
        ),
    ),
    Recording(
        "MySQL Connector/J 9.1",
        ("mysql97", "mariadb118"),
        (
            _CONNECTOR_J.format("", "transaction_isolation"),
            "SET character_set_results = NULL",
            "SET autocommit=1",
            "SELECT @@session.transaction_isolation",
            "SET SESSION TRANSACTION READ ONLY",
            "SET autocommit=0",
            "ROLLBACK",
        ),
    ),
    Recording(
        "MySQL Connector/J 9.1, old server",
        ("mysql56",),
        (
            _CONNECTOR_J.format(_QUERY_CACHE, "tx_isolation"),
            "SET character_set_results = NULL",
            "SET autocommit=1",
            "SET sql_mode='NO_ENGINE_SUBSTITUTION,STRICT_TRANS_TABLES'",
            "SELECT @@session.tx_isolation",
            "SET SESSION TRANSACTION READ ONLY",
            "SET autocommit=0",
            "ROLLBACK",
        ),
    ),
    Recording(
        "MariaDB Connector/J 3.5",
        ("mariadb118",),
        (
            "set sql_mode=CONCAT(@@sql_mode,',STRICT_TRANS_TABLES'),session_track_system_variables ="
            " CONCAT(@@global.session_track_system_variables,',transaction_isolation')",
            "SELECT @@session.transaction_isolation",
            "set autocommit=0",
        ),
    ),
    Recording(
        "Debezium 3.6",
        ("mysql97",),
        (
            _CONNECTOR_J.format("", "transaction_isolation"),
            "SET autocommit=1",
            "SET autocommit=0",
            "COMMIT",
            "SHOW BINARY LOG STATUS",
            "SELECT version()",
            "SHOW VARIABLES",
            "SHOW GLOBAL VARIABLES LIKE 'binlog_format'",
            "SHOW GLOBAL VARIABLES LIKE 'binlog_row_image'",
            "SHOW BINARY LOGS",
            "ROLLBACK",
            "SELECT 1",
            "SHOW DATABASES",
            "SHOW FULL TABLES IN `information_schema` where Table_Type = 'BASE TABLE'",
            "SHOW FULL TABLES IN `shop` where Table_Type = 'BASE TABLE'",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET SESSION lock_wait_timeout=10",
            "SET SESSION innodb_lock_wait_timeout=10",
            "COMMIT",  # in the place of FLUSH TABLES WITH READ LOCK, which ended the transaction
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "SHOW VARIABLES WHERE Variable_name IN ('character_set_server','collation_server')",
            "SHOW VARIABLES WHERE Variable_name = 'sql_mode'",
            "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata",
            "SHOW CREATE TABLE `shop`.`items`",
            "UNLOCK TABLES",
            "SHOW SESSION STATUS LIKE 'Ssl_version'",
            "SHOW GLOBAL VARIABLES LIKE 'GTID_MODE'",
            "SELECT @@global.gtid_purged",
            "show global variables like 'binlog_checksum'",
            "select @@server_id",
            "set @master_heartbeat_period=48000000000",
            "SELECT GTID_SUBTRACT('7b3a768b-e955-11f1-ab9f-02fc00000001:1-11',"
            " '7b3a768b-e955-11f1-ab9f-02fc00000001:1-11')",
            "SELECT GTID_SUBTRACT('7b3a768b-e955-11f1-ab9f-02fc00000001:1-11,"
            "00000000-e955-11f1-ab9f-02fc00000001:5:9', '7b3a768b-e955-11f1-ab9f-02fc00000001:3')",
            "SELECT GTID_SUBTRACT('', '')",
        ),
    ),
    Recording(
        "Canal 1.1.7",
        KINDS,
        (
            "show global variables  like 'rds\\_%'",
            "show global variables  like 'polarx\\_%'",
            "show variables like 'server_id'",
            "set wait_timeout=9999999",
            "set net_write_timeout=7200",
            "set net_read_timeout=7200",
            "set @master_binlog_checksum= @@global.binlog_checksum",
            "set @slave_uuid=uuid()",
            "SET @mariadb_slave_capability='4'",
            "SET @master_heartbeat_period=15000000000",
            "select @@global.binlog_checksum",
            "show create table `shop`.`items`",
            "set names 'binary'",
        ),
    ),
)

REFUSED = (
    ("Debezium 3.6", "FLUSH TABLES WITH READ LOCK", 1290),
    ("Debezium 3.6", "SELECT `id`, `name` FROM `shop`.`items`", 1235),
    ("zongji", "KILL 11817", 1094),
    ("Canal 1.1.7", "KILL CONNECTION 11837", 1094),
)
