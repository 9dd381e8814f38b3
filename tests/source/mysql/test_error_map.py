"""Every error of a server is mapped to the kind that the daemon acts on."""

from __future__ import annotations

import ssl

import pymysql
import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.mysql.error_map import client_error, server_error

# (text as the server sends it, kind), with the version where versions differ.
LOG_FAULTS = [
    ("Could not find first log file name in binary log index file", ErrorKind.POSITION_PURGED),
    ("could not find next log; the first event 'binlog.000002' at 4", ErrorKind.POSITION_PURGED),
    (  # 5.6
        "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master"
        " has purged binary logs containing GTIDs that the slave requires.",
        ErrorKind.POSITION_PURGED,
    ),
    (  # 8.0
        "Cannot replicate because the master purged required binary logs. Replicate the missing"
        " transactions from elsewhere, or provision a new slave from backup.",
        ErrorKind.POSITION_PURGED,
    ),
    (  # 8.4
        "Cannot replicate because the source purged required binary logs. Replicate the missing"
        " transactions from elsewhere, or provision a new replica from backup.",
        ErrorKind.POSITION_PURGED,
    ),
    (  # MariaDB
        "Could not find GTID state requested by slave in any binlog files. Probably the slave state"
        " is too old and required binlog files have been purged.",
        ErrorKind.POSITION_PURGED,
    ),
    (
        "Slave has more GTIDs than the master has, using the master's SERVER_UUID.",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID.",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Client requested master to start replication from position > file size",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Client requested source to start replication from position > file size",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Client requested source to start replication from impossible position",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Error: connecting slave requested to start from GTID 0-1-100, which is not in the master's"
        " binlog",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "The binlog on the master is missing the GTID 0-1-7 requested by the slave (even though a"
        " subsequent sequence number does exist), and GTID strict mode is enabled.",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "A slave with the same server_uuid/server_id as this slave has connected to the master; the"
        " first event 'binlog.000001' at 4, the last event read from './binlog.000001' at 157",
        ErrorKind.DUPLICATE_SERVER_UUID,
    ),
    (
        "A replica with the same server_uuid/server_id as this replica has connected to the source",
        ErrorKind.DUPLICATE_SERVER_UUID,
    ),
    # The dump's own limit is larger than any event: the size is wrong.
    (
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source",
        ErrorKind.SERVER_LOG,
    ),
    (
        "A slave with the same server_uuid/server_id is already connected",
        ErrorKind.DUPLICATE_SERVER_UUID,
    ),
    (
        "A slave with the same server_id as this slave has connected to the master",
        ErrorKind.DUPLICATE_SERVER_UUID,
    ),
    (
        "Slave requested incorrect position in master binlog. Requested position 5 in file 'b.1'",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Requested slave GTID state not found in binlog. The slave has probably diverged due to"
        " executing erroneous transactions",
        ErrorKind.HISTORY_DIFFERS,
    ),
    (
        "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file"
        " ./binlog.000007, position 198.",
        ErrorKind.UNSUPPORTED_EVENT,
    ),
    (
        "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file b, position 4.",
        ErrorKind.UNSUPPORTED_EVENT,
    ),
    (
        "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file b, position 4.",
        ErrorKind.SERVER_SETTING,
    ),
    ("Failed to decrypt content read from binlog file.", ErrorKind.SERVER_LOG),
    ("Could not open log file", ErrorKind.SERVER_LOG),
    ("I/O error reading log event", ErrorKind.SERVER_LOG),
    ("unknown error reading log event on the master", ErrorKind.SERVER_LOG),
    ("memory allocation failed reading log event", ErrorKind.SERVER_LOG),
    ("I/O error reading the header from the binary log", ErrorKind.SERVER_LOG),
    ("Failed to read Gtid_list_log_event: corrupt binlog", ErrorKind.SERVER_LOG),
    (
        "Binlog has bad magic number;  It's not a binary log file that can be used by this version"
        " of MySQL",
        ErrorKind.SERVER_LOG,
    ),
    (
        "Failed to read the binary log index file while looking for the oldest binary log that"
        " contains any GTID that is not in the given gtid set",
        ErrorKind.SERVER_LOG,
    ),
    (
        "Error reading header of binary log while looking for the oldest binary log that contains"
        " any GTID that is not in the given gtid set",
        ErrorKind.SERVER_LOG,
    ),
    ("Client requested source to start replication from position < 4", ErrorKind.INTERNAL),
    ("Binary log is not open", ErrorKind.SERVER_SETTING),
    ("Misconfigured master - server id was not set", ErrorKind.SERVER_SETTING),
    ("Misconfigured source - server_id was not set", ErrorKind.SERVER_SETTING),
    (
        "The replication sender thread cannot start in AUTO_POSITION mode: this server has"
        " GTID_MODE = OFF instead of ON.",
        ErrorKind.SERVER_SETTING,
    ),
    (
        "Slave can not handle replication events with the checksum that master is configured to"
        " log; the first event 'binlog.000001' at 4",
        ErrorKind.INTERNAL,
    ),
    ("event read from binlog did not pass crc check", ErrorKind.CHECKSUM_MISMATCH),
    (
        "binlog truncated in the middle of event; consider out of disk space on source",
        ErrorKind.SERVER_LOG,
    ),
    ("bogus data in log event", ErrorKind.SERVER_LOG),
    ("Could not find format_description_event in binlog file", ErrorKind.SERVER_LOG),
    ("Failed on my_net_write()", ErrorKind.CONNECTION_LOST),
    ("a text of a version to come", ErrorKind.CONNECTION_LOST),
]


@pytest.mark.parametrize(("text", "kind"), LOG_FAULTS)
def test_the_text_of_1236_decides(text: str, kind: ErrorKind) -> None:
    error = server_error(1236, text, where="repl@db1:3306")
    assert error.kind is kind
    assert error.where == "repl@db1:3306"
    assert error.what.startswith(text.rstrip(".")) and "1236" in error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (29, ErrorKind.SERVER_LOG),
        (1040, ErrorKind.CONNECT_FAILED),
        (1047, ErrorKind.CONNECT_FAILED),
        (3032, ErrorKind.CONNECT_FAILED),
        (2002, ErrorKind.CONNECT_FAILED),
        (2003, ErrorKind.CONNECT_FAILED),
        (2005, ErrorKind.CONNECT_FAILED),
        (2026, ErrorKind.CONNECT_FAILED),
        (3159, ErrorKind.CONNECT_FAILED),
        (1044, ErrorKind.ACCESS_DENIED),
        (1045, ErrorKind.ACCESS_DENIED),
        (1130, ErrorKind.ACCESS_DENIED),
        (1698, ErrorKind.ACCESS_DENIED),
        (1862, ErrorKind.ACCESS_DENIED),
        (3118, ErrorKind.ACCESS_DENIED),
        (1142, ErrorKind.GRANT_MISSING),
        (1227, ErrorKind.GRANT_MISSING),
        (1373, ErrorKind.POSITION_PURGED),
        (1789, ErrorKind.POSITION_PURGED),
        (1381, ErrorKind.SERVER_SETTING),
        (2006, ErrorKind.CONNECTION_LOST),
        (2013, ErrorKind.CONNECTION_LOST),
        (1053, ErrorKind.CONNECTION_LOST),
        (1317, ErrorKind.CONNECTION_LOST),
        (1927, ErrorKind.CONNECTION_LOST),
        (4031, ErrorKind.CONNECTION_LOST),
        (4052, ErrorKind.DUPLICATE_SERVER_UUID),
        (9999, ErrorKind.CONNECTION_LOST),
        (1064, ErrorKind.INTERNAL),
    ],
)
def test_each_number_has_its_kind(number: int, kind: ErrorKind) -> None:
    error = server_error(number, "Said the server.")
    assert error.kind is kind
    assert error.what == f"Said the server (MySQL error {number})"


def test_an_exception_of_pymysql_is_kept_as_the_cause() -> None:
    cause = pymysql.err.OperationalError(1227, "Access denied; you need REPLICATION CLIENT")
    error = client_error(cause, where="here")
    assert (error.kind, error.where, error.__cause__) == (ErrorKind.GRANT_MISSING, "here", cause)


def test_an_exception_without_a_number_is_retried() -> None:
    assert client_error(pymysql.err.InterfaceError("closed")).kind is ErrorKind.CONNECTION_LOST
    assert client_error(pymysql.err.InterfaceError()).what == "InterfaceError"


def failed_connect(original: OSError) -> BinlogError:
    error = pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db1' (...)")
    error.original_exception = original  # type: ignore[attr-defined]
    return client_error(error)


def test_an_error_of_the_operating_system_has_a_short_message() -> None:
    assert failed_connect(ConnectionRefusedError(111, "Connection refused")).what == (
        "Connection refused"
    )
    assert failed_connect(TimeoutError("timed out")).what == "timed out"
    assert failed_connect(OSError()).what == "OSError"


def test_tls_errors_name_the_settings() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    error = failed_connect(untrusted)
    assert error.kind is ErrorKind.CONNECT_FAILED
    assert "self-signed certificate" in error.what and "tls.ca" in error.remedy
    broken = ssl.SSLError(1, "[SSL: UNSUPPORTED_PROTOCOL] unsupported protocol (_ssl.c:992)")
    assert "tls_version" in failed_connect(broken).remedy
