"""Logging in to real servers, and what they say of themselves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.source.mysql import server_facts as server_module
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.grants import parse_grants
from dispatcher.source.mysql.login import Endpoint, Tls, TlsMode, connect
from dispatcher.source.mysql.server_facts import (
    BinlogFile,
    ServerFacts,
    examine,
    findings,
    read_facts,
    read_grants,
)
from dispatcher.source.mysql.table_schema import table_columns
from tests.servers.plugin import ServerFactory
from tests.servers.server import Server

SECRET = "p@ss: wörd'\"\\"
REPLICATION = ("REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.*",)


@contextmanager
def account(
    server: Server,
    name: str,
    *privileges: str,
    require: str = "",
    tls: Tls = Tls(TlsMode.PREFERRED),  # noqa: B008 - a frozen value
) -> Iterator[Endpoint]:
    """An account on the server while the block runs, and how to log in with it."""
    server.add_user(name, SECRET, *(privileges or REPLICATION), require=require)
    try:
        yield Endpoint(server.host, server.port, name, SECRET, tls)
    finally:
        server.execute(f"DROP USER '{name}'@'%'")


def refusal(endpoint: Endpoint, *, timeout_s: float = 10) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        connect(endpoint, timeout_s=timeout_s)
    error = caught.value
    assert error.where == endpoint.label
    seen: BaseException | None = error
    while seen is not None:
        assert endpoint.password not in f"{seen!r}{seen}"
        seen = seen.__cause__
    return error


def whoami(endpoint: Endpoint) -> tuple[str, bool]:
    """The account's name as the server sees it, and whether it is reached by TLS."""
    with closing(connect(endpoint)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT USER()")
        (row,) = cursor.fetchall()
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        ((_, cipher),) = cursor.fetchall()
        return str(row[0]).partition("@")[0], cipher != ""


def test_an_endpoint_never_shows_its_password() -> None:
    endpoint = Endpoint("db1", 3306, "repl", SECRET)
    assert SECRET not in repr(endpoint)
    assert str(endpoint) == endpoint.label == "repl@db1:3306"
    assert Endpoint("::1", 3306, "repl", "x").label == "repl@[::1]:3306"


def test_login(any_server: Server) -> None:
    with account(any_server, "plain_login") as endpoint:
        assert whoami(endpoint)[0] == "plain_login"


def test_login_without_tls(any_server: Server) -> None:
    """MySQL 9.7 has the password encrypted by its RSA key then, unless it is in its cache."""
    with account(any_server, "no_tls", tls=Tls(TlsMode.DISABLED)) as endpoint:
        any_server.execute("FLUSH PRIVILEGES")
        assert whoami(endpoint) == ("no_tls", False)
        assert whoami(endpoint) == ("no_tls", False)


def test_a_wrong_password(any_server: Server) -> None:
    with account(any_server, "wrong_password") as endpoint:
        error = refusal(replace(endpoint, password="not this one"))
    assert error.kind is ErrorKind.ACCESS_DENIED
    assert "password" in error.remedy


def test_an_unknown_user(any_server: Server) -> None:
    error = refusal(Endpoint(any_server.host, any_server.port, "nobody_known", "secret 17"))
    assert error.kind is ErrorKind.ACCESS_DENIED


def test_tls(mysql97: Server) -> None:
    with account(mysql97, "with_tls", require="SSL") as endpoint:
        assert whoami(endpoint) == ("with_tls", True)
        assert whoami(replace(endpoint, tls=Tls(TlsMode.REQUIRED))) == ("with_tls", True)
        error = refusal(replace(endpoint, tls=Tls(TlsMode.DISABLED)))
        assert error.kind is ErrorKind.ACCESS_DENIED


def test_tls_with_a_verified_certificate(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97")
    with account(server, "verified") as endpoint:
        trusting = Tls(TlsMode.VERIFY_CA, ca=server.ca_pem)
        assert whoami(replace(endpoint, tls=trusting)) == ("verified", True)

        # The server made its certificate itself, for no host in particular.
        identity = refusal(replace(endpoint, tls=replace(trusting, mode=TlsMode.VERIFY_IDENTITY)))
        stranger = refusal(replace(endpoint, tls=Tls(TlsMode.VERIFY_CA)))
    for error in (identity, stranger):
        assert error.kind is ErrorKind.CONNECT_FAILED
        assert "certificate is not trusted" in error.what and "tls.ca" in error.remedy


def test_tls_where_the_server_has_none(mysql56: Server) -> None:
    with account(mysql56, "wants_tls") as endpoint:
        assert whoami(endpoint) == ("wants_tls", False)
        error = refusal(replace(endpoint, tls=Tls(TlsMode.REQUIRED)))
    assert error.kind is ErrorKind.CONNECT_FAILED and "SSL is required" in error.what


def test_tls_files_that_are_none(tmp_path: Path) -> None:
    missing = Tls(TlsMode.VERIFY_CA, ca=tmp_path / "missing.pem")
    error = refusal(Endpoint("127.0.0.1", 1, "u", "secret 17", missing))
    assert error.kind is ErrorKind.CONNECT_FAILED and "missing.pem" in error.what
    (tmp_path / "text.pem").write_text("no certificate")
    broken = Tls(TlsMode.REQUIRED, cert=tmp_path / "text.pem")
    assert "text.pem" in refusal(Endpoint("127.0.0.1", 1, "u", "secret 17", broken)).what


@contextmanager
def listener(answer: Callable[[socket.socket], None] | None) -> Iterator[int]:
    """Something that listens and does as it is told; None accepts nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                assert answer is not None
                answer(peer)
                stop.wait(10)

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            if answer is not None:
                thread.join(10)


def local(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port, "repl", "secret 17")


def test_nobody_listens() -> None:
    with listener(None) as port:
        pass
    error = refusal(local(port))
    assert error.kind is ErrorKind.CONNECT_FAILED and "refused" in error.what.lower()


def test_an_unknown_host() -> None:
    error = refusal(Endpoint("no-such-host.invalid", 3306, "repl", "secret 17"))
    assert error.kind is ErrorKind.CONNECT_FAILED


def test_somebody_listens_and_is_silent() -> None:
    with listener(lambda _: None) as port:
        error = refusal(local(port), timeout_s=0.2)
    assert error.kind is ErrorKind.CONNECT_FAILED and "timed out" in error.what


def test_somebody_listens_and_hangs_up() -> None:
    with listener(lambda peer: peer.shutdown(socket.SHUT_RDWR)) as port:
        error = refusal(local(port), timeout_s=5)
    assert error.kind is ErrorKind.CONNECT_FAILED


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 5,
        b"\x05\0\0\0\x0a8.0\0",
        b"\x01\0\0\0\x0a",
        b"\0\0\0\0",
        bytes(64),
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_what_listens_is_not_mysql(greeting: bytes) -> None:
    with listener(lambda peer: peer.sendall(greeting)) as port:
        error = refusal(local(port), timeout_s=0.3)
    assert error.kind is ErrorKind.CONNECT_FAILED


def handshake(plugin: bytes) -> bytes:
    """Protocol::HandshakeV10 of a server without TLS that wants `plugin`."""
    capabilities = 0x000FF7FF & ~0x0800
    body = b"\x0a8.0.36\0" + (7).to_bytes(4, "little") + b"12345678\0"
    body += (capabilities & 0xFFFF).to_bytes(2, "little") + b"\xff\2\0"
    body += (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10)
    body += b"901234567890\0" + plugin + b"\0"
    return len(body).to_bytes(3, "little") + b"\0" + body


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_given_to_who_asks_for_it_in_clear_text(plugin: bytes) -> None:
    heard = bytearray()

    def ask(peer: socket.socket) -> None:
        peer.sendall(handshake(b"mysql_native_password"))
        heard.extend(peer.recv(4096))
        switch = b"\xfe" + plugin + b"\0" + b"\x04Password: "
        peer.sendall(len(switch).to_bytes(3, "little") + b"\2" + switch)
        heard.extend(peer.recv(4096))

    with listener(ask) as port:
        error = refusal(local(port), timeout_s=5)
    assert error.kind is ErrorKind.CONNECT_FAILED and "clear text" in error.what
    assert heard and b"secret 17" not in heard


def test_facts(any_server: Server) -> None:
    any_server.execute("CREATE DATABASE IF NOT EXISTS facts_test", "DROP DATABASE facts_test")
    with account(any_server, "facts") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
        assert examine(connection, ["shop"]) == []
        assert findings(seen, read_grants(connection), ["shop"]) == []
    assert seen.flavour == ("mariadb" if any_server.mariadb else "mysql")
    assert seen.version == any_server.version
    assert seen.log_bin and seen.binlog_format == "ROW" and seen.row_image == "FULL"
    assert seen.checksum == "CRC32"
    assert seen.files and seen.files[-1].name == seen.file
    assert [(file.name, file.size) for file in seen.files][:-1] == any_server.binlogs()[:-1]
    assert 4 < seen.offset <= seen.files[-1].size
    assert seen.server_id > 0
    assert seen.lower_case_table_names == 0
    if any_server.mariadb:
        assert seen.server_uuid == f"mariadb-{seen.server_id}"
        assert seen.gtid_mode == "" and seen.gtid_purged == ""
        assert seen.gtid_executed.count("-") == 2
    else:
        assert seen.gtid_mode == "ON"
        assert seen.server_uuid in seen.gtid_executed
        executed = GtidSet.parse(seen.gtid_executed)
        assert executed and executed.contains(GtidSet.parse(seen.gtid_purged))
    assert seen.row_metadata == ("" if any_server.kind == "mysql56" else "FULL")


def test_facts_hold_gtid_sets_of_any_length(server_factory: ServerFactory) -> None:
    """SHOW VARIABLES cuts a value at 1024 characters; gaps make a set that is longer."""
    server = server_factory("mysql97")
    uuid = "11111111-2222-3333-4444-555555555555"
    purged = f"{uuid}:" + ":".join(str(2 * n) for n in range(1, 1001))
    server.execute(f"SET GLOBAL gtid_purged = '+{purged}'")
    with account(server, "long_set") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
    assert GtidSet.parse(seen.gtid_purged).contains(GtidSet.parse(purged))
    assert "\n" not in seen.gtid_purged


def test_what_is_purged_while_the_server_is_asked_is_among_the_purged_gtids(
    server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the history check takes a file that is gone, without its GTIDs, for one of another history."""
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE purged_then", "FLUSH BINARY LOGS")
    asked = server_module._log_status

    def purge_first(
        connection: Connection, version: str
    ) -> tuple[str, int, tuple[BinlogFile, ...]]:
        server.execute(f"PURGE BINARY LOGS TO '{server.binlog_position()[0]}'")
        return asked(connection, version)

    monkeypatch.setattr(server_module, "_log_status", purge_first)
    with account(server, "purging") as endpoint, closing(connect(endpoint)) as connection:
        before = GtidSet.parse(read_facts(connection).gtid_executed)
        server.execute("CREATE DATABASE purged_later", "FLUSH BINARY LOGS")
        seen = read_facts(connection)
    assert before and len(seen.files) == 1
    assert GtidSet.parse(seen.gtid_purged).contains(before)
    assert seen.gtid_purged == seen.gtid_executed


def test_facts_without_the_grant(any_server: Server) -> None:
    with (
        account(any_server, "no_grant", "SELECT ON *.*") as endpoint,
        closing(connect(endpoint)) as connection,
    ):
        with pytest.raises(BinlogError) as caught:
            read_facts(connection)
        found = examine(connection)
    assert caught.value.kind is ErrorKind.GRANT_MISSING
    assert [error.kind for error in found] == [ErrorKind.GRANT_MISSING] * 2
    assert "REPLICATION SLAVE" in found[0].what and "REPLICATION CLIENT" in found[1].what
    assert "GRANT REPLICATION CLIENT ON *.* TO " in found[1].remedy
    assert "no_grant" in found[1].remedy


def test_select_is_asked_for_on_the_databases_that_are_read(any_server: Server) -> None:
    privileges = ("REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT ON `seen_1`.*")
    with (
        account(any_server, "some_select", *privileges) as endpoint,
        closing(connect(endpoint)) as connection,
    ):
        found = examine(connection, ["seen_1", "other`db", "other`db"])
    assert [error.what for error in found] == ["the account lacks SELECT on `other``db`.*"]


def test_the_remedies_are_statements_that_help(any_server: Server) -> None:
    with account(any_server, "helped", "USAGE ON *.*") as endpoint:
        with closing(connect(endpoint)) as connection:
            for error in examine(connection, ["shop"]):
                any_server.execute(error.remedy)
        with closing(connect(endpoint)) as connection:
            assert examine(connection, ["shop"]) == []


def test_grants_by_way_of_a_role(mysql97: Server) -> None:
    mysql97.execute("CREATE ROLE replicator", f"GRANT {REPLICATION[0]} TO replicator")
    with account(mysql97, "role_user", "USAGE ON *.*") as endpoint:
        mysql97.execute(
            "GRANT replicator TO 'role_user'@'%'", "SET DEFAULT ROLE ALL TO 'role_user'@'%'"
        )
        with closing(connect(endpoint)) as connection:
            assert examine(connection, ["shop"]) == []
    mysql97.execute("DROP ROLE replicator")


WHOLE = ServerFacts(
    version="9.7.4",
    flavour="mysql",
    server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562",
    server_id=1,
    log_bin=True,
    binlog_format="ROW",
    row_image="FULL",
    row_metadata="FULL",
    checksum="CRC32",
    gtid_mode="ON",
    gtid_strict_mode=False,
    gtid_executed="",
    gtid_purged="",
    files=(),
    file="",
    offset=0,
    expire_seconds=None,
    lower_case_table_names=0,
)
ALL_GRANTS = parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"])


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"log_bin": False}, "log_bin=OFF", "--log-bin"),
        ({"server_id": 0}, "server_id=0", "SET PERSIST server_id = 1"),
        ({"binlog_format": "MIXED"}, "binlog_format=MIXED", "SET PERSIST binlog_format = ROW"),
        ({"row_image": "NOBLOB"}, "binlog_row_image=NOBLOB", "binlog_row_image = FULL"),
        ({"row_metadata": "MINIMAL"}, "binlog_row_metadata=MINIMAL", "row_metadata = FULL"),
        (
            {"binlog_format": "STATEMENT", "version": "5.6.24-log"},
            "binlog_format=STATEMENT",
            "SET GLOBAL binlog_format = ROW, and the same in the server's option file",
        ),
    ],
)
def test_one_finding(changes: dict[str, object], what: str, remedy: str) -> None:
    (error,) = findings(replace(WHOLE, **changes), ALL_GRANTS, ["shop"])  # type: ignore[arg-type]
    assert error.kind is ErrorKind.SERVER_SETTING
    assert what in error.what and remedy in error.remedy


def test_a_server_that_is_as_it_should_be() -> None:
    assert findings(WHOLE, ALL_GRANTS, ["shop"]) == []
    assert findings(replace(WHOLE, row_metadata=""), ALL_GRANTS) == []


def test_all_findings_at_once() -> None:
    broken = replace(WHOLE, log_bin=False, binlog_format="STATEMENT", row_image="MINIMAL")
    found = findings(broken, parse_grants(["GRANT USAGE ON *.* TO `u`@`%`"]), ["a", "b"])
    assert [error.kind for error in found] == [ErrorKind.SERVER_SETTING] * 3 + [
        ErrorKind.GRANT_MISSING
    ] * 4


def test_findings_of_a_server_that_is_set_wrong(server_factory: ServerFactory) -> None:
    server = server_factory(
        "mysql97",
        "--binlog-format=STATEMENT",
        "--binlog-row-image=MINIMAL",
        "--binlog-row-metadata=MINIMAL",
        "--binlog-row-value-options=PARTIAL_JSON",
        "--binlog-transaction-compression=ON",
    )
    with account(server, "wrong_settings") as endpoint:
        with closing(connect(endpoint)) as connection:
            found = examine(connection)
        assert [error.what.partition(":")[0] for error in found] == [
            "binlog_format=STATEMENT",
            "binlog_row_image=MINIMAL",
            "binlog_row_metadata=MINIMAL",
        ]
        server.execute(*(error.remedy.partition(";")[0] for error in found))
        with closing(connect(endpoint)) as connection:
            assert examine(connection) == []


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_findings_of_a_server_without_a_binlog(kind: str, server_factory: ServerFactory) -> None:
    server = server_factory(kind, "--skip-log-bin")  # type: ignore[arg-type]
    with account(server, "no_binlog") as endpoint, closing(connect(endpoint)) as connection:
        seen = read_facts(connection)
        found = examine(connection)
    assert (seen.log_bin, seen.files, seen.file, seen.offset) == (False, (), "", 0)
    assert found[0].what.startswith("log_bin=OFF")


def test_the_age_at_which_logs_are_purged(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97", "--binlog-expire-logs-seconds=7200")
    with account(server, "expiry") as endpoint, closing(connect(endpoint)) as connection:
        assert read_facts(connection).expire_seconds == 7200
        server.execute("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
        assert read_facts(connection).expire_seconds is None


def test_the_age_in_days(mysql56: Server) -> None:
    with account(mysql56, "expiry56") as endpoint, closing(connect(endpoint)) as connection:
        assert read_facts(connection).expire_seconds is None
        mysql56.execute("SET GLOBAL expire_logs_days = 3")
        try:
            assert read_facts(connection).expire_seconds == 3 * 86400
        finally:
            mysql56.execute("SET GLOBAL expire_logs_days = 0")


def test_a_table(any_server: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(any_server)
    any_server.execute(
        "CREATE TABLE `ta``ble` (b INT UNSIGNED NOT NULL, a BIGINT NOT NULL, `na``me` VARCHAR(10)"
        " CHARACTER SET latin1 NOT NULL, note TEXT CHARACTER SET utf8mb4, kind ENUM('x','y')"
        " CHARACTER SET utf8mb4, raw VARBINARY(3), PRIMARY KEY (a, b), UNIQUE (b))",
        database=database,
    )
    with account(any_server, "columns") as endpoint, closing(connect(endpoint)) as connection:
        seen = table_columns(connection, database, "ta`ble")
    assert (seen["database"], seen["table"]) == (database, "ta`ble")
    assert seen["key"] == ["a", "b"]
    columns = {column.pop("name"): column for column in seen["columns"]}
    assert list(columns) == ["b", "a", "na`me", "note", "kind", "raw"]
    # MySQL 8.0.19 dropped the display width of integers.
    assert columns["b"]["mysql_type"] in ("int unsigned", "int(10) unsigned")
    expected = {"mysql_type": "varchar(10)", "nullable": False, "charset": "latin1"}
    assert columns["na`me"] == expected
    assert columns["kind"] == {
        "mysql_type": "enum('x','y')",
        "nullable": True,
        "charset": "utf8mb4",
    }
    assert columns["raw"]["charset"] is None


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE z (b), UNIQUE y (a)", ["b"]),
        ("a INT, b INT NOT NULL, UNIQUE z (a), UNIQUE y (b)", ["b"]),
        ("a INT, b INT NOT NULL, UNIQUE z (a, b)", []),
        ("a INT NOT NULL, b INT NOT NULL, KEY z (a)", []),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE y (b), PRIMARY KEY (a)", ["a"]),
    ],
)
def test_which_key(
    columns: str, key: list[str], any_server: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(any_server)
    any_server.execute(f"CREATE TABLE t ({columns})", database=database)
    with account(any_server, "keys") as endpoint, closing(connect(endpoint)) as connection:
        assert table_columns(connection, database, "t")["key"] == key


def test_an_expression_is_no_key(mysql97: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(mysql97)
    table = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE z ((a + 1)), UNIQUE y (b))"
    mysql97.execute(table, database=database)
    with account(mysql97, "expression") as endpoint, closing(connect(endpoint)) as connection:
        assert table_columns(connection, database, "t")["key"] == ["b"]


def test_no_such_table(any_server: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(any_server)
    with (
        account(any_server, "no_table") as endpoint,
        closing(connect(endpoint)) as connection,
        pytest.raises(BinlogError, match=f"no table {database}.nothing") as caught,
    ):
        table_columns(connection, database, "nothing")
    assert caught.value.kind is ErrorKind.UNKNOWN_TABLE
