"""Packets of the replication protocol, from a published article.

PyMySQL parses the answers of a server 5.7.19, as in the daemon, and the daemon's splitter parses an answer that ends a
dump. The tests compare the article's requests with the requests that the daemon sends. Comments name the errors of the
article.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import pymysql
import pytest
from pymysql.constants import CLIENT, COMMAND
from pymysql.protocol import EOFPacketWrapper, MysqlPacket, OKPacketWrapper

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.mysql.login import Endpoint
from dispatcher.mysql.replication_commands import Identity
from dispatcher.mysql.server_facts import ServerFacts, _facts
from dispatcher.source.mysql import dump_stream as net
from dispatcher.source.mysql.dump_stream import LoggedInConnection
from dispatcher.stream.batch import Closed
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter

unhex = bytes.fromhex

# The article says that these two packets have the lengths 88 and 98, but they have 78 (4e) and 88 (58). The article
# calls the bytes ff81 the server's capabilities, but they are only the upper half. The lower half is `fff7` before
# them, and `15` is the length of the salt.
GREETING = unhex(
    "4e0000 00 0a 352e372e31392d6c6f6700 72000000 7e1a1511070a7e1c00 fff7 53 0200 ff81 15 00000000000000000000"
    "0b2c6279757a3d0161256f2200 6d7973716c5f6e61746976655f70617373776f726400"
)
# The byte 14 is the length of the scrambled password, not a capability.
LOGIN = unhex(
    "580000 01 0da22b00 01000000 08 0000000000000000000000000000000000000000000000 7162656e636800"
    "14 f24cb6e94c0dd79d0730c921074f235109a1af47 6d7973716c00 6d7973716c5f6e61746976655f70617373776f726400"
)
REGISTER = unhex("120000 00 15 0f270000 00 00 00 ea0c 0000000000000000")
DUMP = unhex("1b0000 00 12 9a000000 0000 0f270000 6d7973716c2d62696e2e303030303031")
# The article says that an OK packet has the first byte ff and the sequence number 0, but the bytes contain 00 and 2.
OK = unhex("070000 02 00 00 00 0200 0000")
ANSWER = OK[:3] + b"\1" + OK[4:]  # the same packet as the first answer to a command
# The length 36 is hexadecimal: 54 bytes, not 36.
QUERY = unhex("360000 00 03") + b"SET @master_binlog_checksum= @@global.binlog_checksum"
DENIED = (
    unhex("4b0000 02 ff 1504")
    + b"#28000Access denied for user 'repl'@'121.121.0.64' (using password: YES)"
)
# In the article's table, an error packet begins with fe. In fact it begins with ff, and an EOF packet with fe.
EOF = unhex("050000 05 fe 0000 0200")
# (packet, the error that the daemon reports)
DUMP_ERRORS = {
    "position beyond the file's end": (
        unhex("4f0000 01 ff d404")
        + b"#HY000Client requested master to start replication from position > file size",
        ErrorKind.HISTORY_DIFFERS,
    ),
    "position within an event": (
        unhex("e10000 03 ff d404")
        + b"#HY000bogus data in log event; the first event 'mysql-bin.000001' at 160, the last event read from "
        b"'/opt/mysql/data/binlog/mysql-bin.000001' at 123, the last byte read from "
        b"'/opt/mysql/data/binlog/mysql-bin.000001' at 179.",
        ErrorKind.SERVER_LOG,
    ),
    "file that is gone": (
        unhex("440000 01 ff d404")
        + b"#HY000Could not find first log file name in binary log index file",
        ErrorKind.POSITION_PURGED,
    ),
}


class Wire:
    """A PyMySQL connection and the other end of its socket."""

    def __init__(self) -> None:
        self.other, self.mine = socket.socketpair()
        self.raw: Any = pymysql.connect(
            user="qbench",
            password="secret",
            database="mysql",
            charset="latin1",
            autocommit=None,
            defer_connect=True,
        )

    def says(self, *packets: bytes) -> None:
        """Send the server's next packets."""
        self.other.sendall(b"".join(packets))

    def log_in(self) -> bytes:
        """Return the client's answer to the article's greeting."""
        self.says(GREETING, OK, ANSWER)
        self.raw.connect(self.mine)
        login = self.heard()
        return login[: 4 + int.from_bytes(login[:3], "little")]  # SET NAMES follows

    def heard(self) -> bytes:
        """Return the bytes that the client has sent to the server."""
        return self.other.recv(1 << 16)

    def close(self) -> None:
        self.raw._force_close()
        self.mine.close()
        self.other.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with closing(Wire()) as made:
        yield made


PACKETS = {
    "greeting": GREETING, "login": LOGIN, "register": REGISTER, "dump": DUMP, "OK": OK, "query": QUERY,
    "denied": DENIED, "EOF": EOF, **{name: packet for name, (packet, _) in DUMP_ERRORS.items()},
}  # fmt: skip


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
def test_a_packet_has_the_length_in_its_header(packet: bytes) -> None:
    assert int.from_bytes(packet[:3], "little") == len(packet) - 4


def test_the_greeting(wire: Wire) -> None:
    wire.log_in()
    raw = wire.raw
    assert raw.protocol_version == 10
    assert raw.server_version == "5.7.19-log"
    assert raw.server_thread_id == (114,)
    assert raw.salt == unhex("7e1a1511070a7e1c 0b2c6279757a3d0161256f22")
    assert raw.server_capabilities == 0x81FFF7FF
    assert raw.server_language == 83  # utf8_bin
    assert raw._auth_plugin_name == "mysql_native_password"


def login_facts(packet: bytes) -> dict[str, Any]:
    read: Any = MysqlPacket(packet[4:], "utf8")
    facts: dict[str, Any] = {"number": packet[3]}
    facts["flags"], facts["largest"], facts["charset"] = read.read_struct("<IIB23x")
    facts["user"] = read.read_string()
    facts["password"] = read.read_length_coded_string()
    facts["database"], facts["plugin"] = read.read_string(), read.read_string()
    return facts


def test_the_login(wire: Wire) -> None:
    articles = login_facts(LOGIN)
    assert articles["flags"] == 0x002BA20D
    assert articles["largest"] == 1
    ours = login_facts(wire.log_in())
    # Compare this project's login with the login that the article shows, except for the password, and for capabilities
    # that the login of the article lacks.
    shared = (
        CLIENT.PROTOCOL_41 | CLIENT.SECURE_CONNECTION | CLIENT.PLUGIN_AUTH | CLIENT.CONNECT_WITH_DB
    )
    assert ours["flags"] & shared == articles["flags"] & shared == shared
    assert len(ours["password"]) == len(articles["password"]) == 20
    for name in ("number", "charset", "user", "database", "plugin"):
        assert ours[name] == articles[name]


def test_a_login_that_is_denied(wire: Wire) -> None:
    wire.says(GREETING, DENIED)
    with pytest.raises(pymysql.OperationalError) as caught:
        wire.raw.connect(wire.mine)
    assert caught.value.args == (
        1045,
        "Access denied for user 'repl'@'121.121.0.64' (using password: YES)",
    )


def test_ok_and_eof() -> None:
    ok: Any = OKPacketWrapper(MysqlPacket(OK[4:], "utf8"))
    assert (ok.affected_rows, ok.insert_id, ok.server_status, ok.warning_count) == (
        0,
        0,
        2,
        0,
    )  # 2: autocommit
    eof: Any = EOFPacketWrapper(MysqlPacket(EOF[4:], "utf8"))
    assert (eof.warning_count, eof.server_status) == (0, 2)


def test_a_statement(wire: Wire) -> None:
    wire.log_in()
    wire.raw._execute_command(COMMAND.COM_QUERY, QUERY[5:])
    assert wire.heard() == QUERY


def facts() -> ServerFacts:
    variables = {
        "version": "5.7.19-log",
        "binlog_checksum": "CRC32",
        "server_id": "1",
        "log_bin": "ON",
    }
    return _facts(variables)


def test_registration_and_dump(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in the article, the replica has no name and the number 9999.
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    monkeypatch.setattr(net, "duplicate_replicas", lambda *_: [])
    wire.log_in()
    session = object.__new__(LoggedInConnection)
    session.endpoint, session.facts = Endpoint("127.0.0.1", 3306, "qbench", "secret"), facts()
    session._connection, session._heartbeat_s, session._flush_s = wire.raw, 0, 1.0
    session._identity, session._next_host = Identity(UUID(int=9999), 9999), None
    session.identity_locks = None
    wire.says(ANSWER, ANSWER)  # answers to the SET statement and to the registration
    session.dump(
        Mode.FILE, ExecutedPosition(GtidSet(), "mysql-bin.000001", 154, 0), Routes(), 1 << 16
    )
    sent = wire.heard()
    statement = 4 + int.from_bytes(sent[:3], "little")
    assert sent[4:8] == b"\3SET"
    # The article's replica also sends the port of its own server (3306); the daemon has no server, so it sends 0.
    assert sent[statement:] == REGISTER.replace(unhex("ea0c"), bytes(2)) + DUMP


@pytest.mark.parametrize(("packet", "kind"), DUMP_ERRORS.values(), ids=DUMP_ERRORS)
def test_errors_that_end_a_dump(wire: Wire, packet: bytes, kind: ErrorKind) -> None:
    splitter = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=1 << 16)
    (closed,) = splitter.feed(packet)
    assert isinstance(closed, Closed)
    wire.log_in()
    stream = net.ServerStream(wire.raw, splitter, "db", idle_s=1)
    found = stream.ended(closed)
    assert isinstance(found, BinlogError)
    assert found.kind is kind
    assert packet[13:].decode().rstrip(".") in str(found)
