"""Every error of a server is mapped to the kind of error by which the daemon decides its reaction."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pymysql
import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.error_map import client_error, server_error

# The texts that servers send with error 1236, by kind of error. Comments name the version where versions differ.
LOG_ERRORS = {
    ErrorKind.POSITION_PURGED: (
        "Could not find first log file name in binary log index file",
        "could not find next log; the first event 'binlog.000002' at 4",
        # 5.6
        "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the "
        "master has purged binary logs containing GTIDs that the slave requires.",
        # 8.0
        "Cannot replicate because the master purged required binary logs. Replicate the "
        "missing transactions from elsewhere, or provision a new slave from backup.",
        # 8.4
        "Cannot replicate because the source purged required binary logs. Replicate the "
        "missing transactions from elsewhere, or provision a new replica from backup.",
        # MariaDB
        "Could not find GTID state requested by slave in any binlog files. Probably the "
        "slave state is too old and required binlog files have been purged.",
    ),
    ErrorKind.HISTORY_DIFFERS: (
        "Slave has more GTIDs than the master has, using the master's SERVER_UUID.",
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID.",
        "Client requested master to start replication from position > file size",
        "Client requested source to start replication from position > file size",
        "Client requested source to start replication from impossible position",
        "Error: connecting slave requested to start from GTID 0-1-100, which is not in the master's binlog",
        "The binlog on the master is missing the GTID 0-1-7 requested by the slave (even "
        "though a subsequent sequence number does exist), and GTID strict mode is enabled.",
        "Slave requested incorrect position in master binlog. Requested position 5 in file 'b.1'",
        "Requested slave GTID state not found in binlog. The slave has probably diverged "
        "due to executing erroneous transactions",
    ),
    ErrorKind.DUPLICATE_SERVER_UUID: (
        "A slave with the same server_uuid/server_id as this slave has connected to the "
        "master; the first event 'binlog.000001' at 4, the last event read from "
        "'./binlog.000001' at 157",
        "A replica with the same server_uuid/server_id as this replica has connected to the source",
        "A slave with the same server_uuid/server_id is already connected",
        "A slave with the same server_id as this slave has connected to the master",
    ),
    ErrorKind.SERVER_LOG: (
        # The packet limit of a dump is larger than any event, so an event with a larger size is damaged.
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source",
        "Failed to decrypt content read from binlog file.",
        "Could not open log file",
        "I/O error reading log event",
        "unknown error reading log event on the master",
        "memory allocation failed reading log event",
        "I/O error reading the header from the binary log",
        "Failed to read Gtid_list_log_event: corrupt binlog",
        "Binlog has bad magic number;  It's not a binary log file that can be used by this version of MySQL",
        "Failed to read the binary log index file while looking for the oldest binary log "
        "that contains any GTID that is not in the given gtid set",
        "Error reading header of binary log while looking for the oldest binary log that "
        "contains any GTID that is not in the given gtid set",
        "binlog truncated in the middle of event; consider out of disk space on source",
        "bogus data in log event",
        "Could not find format_description_event in binlog file",
    ),
    ErrorKind.UNSUPPORTED_EVENT: (
        "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file "
        "./binlog.000007, position 198.",
        "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file b, position 4.",
    ),
    ErrorKind.SERVER_SETTING: (
        "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file b, position 4.",
        "Binary log is not open",
        "Misconfigured master - server id was not set",
        "Misconfigured source - server_id was not set",
        "The replication sender thread cannot start in AUTO_POSITION mode: this server has "
        "GTID_MODE = OFF instead of ON.",
    ),
    ErrorKind.INTERNAL: (
        "Client requested source to start replication from position < 4",
        "Slave can not handle replication events with the checksum that master is "
        "configured to log; the first event 'binlog.000001' at 4",
    ),
    ErrorKind.CHECKSUM_MISMATCH: ("event read from binlog did not pass crc check",),
    ErrorKind.CONNECTION_LOST: (
        "Failed on my_net_write()",
        "a text of a version to come",
    ),
}


@pytest.mark.parametrize(
    ("text", "kind"), [(text, kind) for kind, texts in LOG_ERRORS.items() for text in texts]
)
def test_the_text_of_1236_decides(text: str, kind: ErrorKind) -> None:
    error = server_error(1236, text, where="repl@db1:3306")
    assert error.kind is kind
    assert error.where == "repl@db1:3306"
    assert error.what.startswith(text.rstrip(".")) and "1236" in error.what
    assert error.remedy


NUMBERS = {
    ErrorKind.SERVER_LOG: (29,),
    ErrorKind.CONNECT_FAILED: (1040, 1047, 3032, 2002, 2003, 2005, 2026, 3159),
    ErrorKind.ACCESS_DENIED: (1044, 1045, 1130, 1698, 1862, 3118),
    ErrorKind.GRANT_MISSING: (1142, 1227),
    ErrorKind.POSITION_PURGED: (1373, 1789),
    ErrorKind.SERVER_SETTING: (1381,),
    ErrorKind.CONNECTION_LOST: (2006, 2013, 1053, 1317, 1927, 4031, 9999),
    ErrorKind.DUPLICATE_SERVER_UUID: (4052,),
    ErrorKind.INTERNAL: (1064,),
}


@pytest.mark.parametrize(
    ("number", "kind"), [(number, kind) for kind, numbers in NUMBERS.items() for number in numbers]
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


Fail = Callable[[OSError], BinlogError]


@pytest.fixture
def fail_to_connect() -> Fail:
    """Returns a function that maps an error of the operating system in the form in which PyMySQL reports it."""

    def fail(original: OSError) -> BinlogError:
        error = pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db1' (...)")
        error.original_exception = original  # type: ignore[attr-defined]
        return client_error(error)

    return fail


@pytest.mark.parametrize(
    ("original", "what"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "timed out"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_of_the_operating_system_has_a_short_message(
    fail_to_connect: Fail, original: OSError, what: str
) -> None:
    assert fail_to_connect(original).what == what


def test_an_untrusted_certificate_names_tls_ca(fail_to_connect: Fail) -> None:
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    error = fail_to_connect(untrusted)
    assert error.kind is ErrorKind.CONNECT_FAILED
    assert "self-signed certificate" in error.what and "tls.ca" in error.remedy


def test_another_tls_error_names_the_servers_tls_version(fail_to_connect: Fail) -> None:
    broken = ssl.SSLError(1, "[SSL: UNSUPPORTED_PROTOCOL] unsupported protocol (_ssl.c:992)")
    assert "tls_version" in fail_to_connect(broken).remedy
