"""Connection, GTIDs and basic row events through the daemon, on every supported server and with every login method."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from dispatcher.binlog.decode import delivered
from dispatcher.model.gtid import GtidSet
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD, Reader, until, uses_gtids
from tests.servers import Instance, Server
from tests.servers.plugin import ServerFactory

pytestmark = pytest.mark.rotate(5, of="servers")

COLUMNS = "id, name, amount, made"
TABLE = (
    "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, name VARCHAR(40) CHARACTER SET utf8mb4,"
    " amount DECIMAL(12,3), made DATETIME(3))"
)
Row = tuple[Any, ...]


def write(server: Server, database: str, other: str) -> None:
    """Change tables in two databases with inserts, updates and deletes, transactions of several statements, and
    statements with several and many rows."""
    for name in (database, other):
        server.execute(TABLE, database=name)
    many = ", ".join(
        f"({n}, 'many {n}', {n}.125, '2024-02-29 12:34:56.789')" for n in range(100, 1100)
    )
    server.execute(
        "INSERT INTO t VALUES (1, 'one', 1.5, '2024-01-01 00:00:00.001'), (2, NULL, -0.001, NULL)",
        "UPDATE t SET name = 'zwölf 🐬', amount = amount * 2 WHERE id = 1",
        f"INSERT INTO t VALUES {many}",
        "UPDATE t SET id = id + 10000 WHERE id BETWEEN 200 AND 300",
        "DELETE FROM t WHERE id BETWEEN 400 AND 500",
        "BEGIN",
        "INSERT INTO t VALUES (3, 'three', NULL, NULL)",
        f"INSERT INTO `{other}`.t SELECT * FROM t WHERE id < 150",
        "DELETE FROM t WHERE id = 2",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (4, 'never', NULL, NULL)",
        "ROLLBACK",
        database=database,
    )


def replay(reader: Reader, *tables: str) -> dict[str, dict[int, Row]]:
    """Returns the tables that result from the changes. Asserts that the before image of each change equals the row in
    the table so far."""
    found: dict[str, dict[int, Row]] = {table: {} for table in tables}
    for change in reader.changes(*tables):
        if isinstance(change, delivered.Ddl):
            continue
        for row in change.batch.to_pylist():
            table = found[f"{row['database']}.{row['table']}"]
            before, after = (
                tuple(row[side].values()) if row[side] else () for side in ("before", "after")
            )
            if before:
                assert table.pop(before[0]) == before
            if after:
                assert after[0] not in table
                table[after[0]] = after
    return found


def selected(server: Server, database: str) -> dict[int, Row]:
    rows = server.execute(f"SELECT {COLUMNS} FROM t", database=database)
    return {row[0]: tuple(row) for row in rows}


def check_equal(server: Server, reader: Reader, *databases: str) -> None:
    found = replay(reader, *(f"{database}.t" for database in databases))
    for database in databases:
        expected = selected(server, database)
        assert len(expected) > 20
        assert found[f"{database}.t"] == expected


def test_rows_of_every_server_are_delivered(
    any_server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    a, b, c = (new_database(any_server) for _ in range(3))
    daemon = make_daemon(
        {
            "a": source(any_server, a),
            "b": source(any_server, b),
            "both": source(any_server, a, b),
            "none": source(any_server, c),
        }
    )
    daemon.start()
    readers = {name: Reader(daemon, name).open() for name in ("a", "b", "both", "none")}
    file, offset = any_server.binlog_position()
    write(any_server, a, b)
    for reader in readers.values():
        reader.read_to(any_server)
    check_equal(any_server, readers["a"], a)
    check_equal(any_server, readers["b"], b)
    check_equal(any_server, readers["both"], a, b)
    assert readers["none"].chunks == []
    sample = selected(any_server, a)[1]
    made = dt.datetime.fromisoformat("2024-01-01T00:00:00.001")
    assert sample == (1, "zwölf 🐬", Decimal("3.000"), made)

    positions_are_the_servers(any_server, readers["both"], file, offset)
    executed = "@@GLOBAL.gtid_binlog_pos" if any_server.mariadb else "@@GLOBAL.gtid_executed"
    tip = any_server.binlog_position()
    for reader in readers.values():
        assert (reader.position["file"], reader.position["offset"]) == tip
        gtids = str(any_server.execute(f"SELECT {executed}")[0][0]).replace("\n", "")
        if any_server.mariadb:
            assert reader.position["gtid"] == gtids
        else:
            assert GtidSet.parse(reader.position["gtid"]) == GtidSet.parse(gtids)


def positions_are_the_servers(server: Server, reader: Reader, file: str, offset: int) -> None:
    """Assert that GTID and end position of each delivered transaction are in the server's list of events."""
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    ends = {}
    gtid = ""
    for _, _, kind, _, end, info in events:
        if kind == "Gtid":
            gtid = str(info)
        elif kind in ("Xid", "Query") and not str(info).startswith("BEGIN"):
            ends[int(end)] = gtid
    delivered_ones = reader.transactions
    assert len(delivered_ones) >= 8
    assert [t.seq for t in delivered_ones] == sorted({t.seq for t in delivered_ones})
    for transaction in delivered_ones:
        assert transaction.file == file
        assert transaction.offset in ends
    if not uses_gtids(server):
        return
    changes = reader.changes(
        *((f"{d}.t") for d in reader.daemon.settings["consumers"]["both"]["databases"])
    )
    for change in changes:
        rows = (
            change.batch.to_pylist()
            if isinstance(change, delivered.TableChanges)
            else [vars_of(change)]
        )
        for row in rows:
            assert row["gtid"] in ends[row["pos"]]


def vars_of(change: delivered.Ddl) -> dict[str, Any]:
    return {"gtid": change.gtid, "pos": change.pos}


def check_server(
    server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    settings: Callable[..., Any],
) -> Reader:
    a, b = new_database(server), new_database(server)
    daemon = make_daemon({"both": settings(server, a, b)})
    daemon.start()
    reader = Reader(daemon, "both").open()
    write(server, a, b)
    reader.read_to(server)
    check_equal(server, reader, a, b)
    return reader


def test_mysql_without_gtids_has_file_positions(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    for name in ("a", "b"):
        server.execute(f"CREATE DATABASE {name}")
    daemon = make_daemon({"both": source(server, "a", "b")})
    daemon.start()
    reader = Reader(daemon, "both").open()
    write(server, "a", "b")
    reader.read_to(server)
    server.execute("FLUSH BINARY LOGS", "UPDATE a.t SET name = 'after the rotation' WHERE id = 1")
    daemon.restart()
    reader.read_to(server)
    check_equal(server, reader, "a", "b")
    assert reader.position["gtid"] == ""
    assert (reader.position["file"], reader.position["offset"]) == server.binlog_position()
    server.execute("INSERT INTO b.t VALUES (7777, 'before the restart', 0, NULL)")
    server.restart()
    server.execute("INSERT INTO b.t VALUES (7778, 'after the restart', 0, NULL)")
    reader.read_to(server)
    check_equal(server, reader, "a", "b")


def test_a_connection_with_tls_verifies_the_server(
    server_factory: ServerFactory,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    tmp_path: Path,
) -> None:
    server = server_factory("mysql97")
    server.add_user("secure", PASSWORD, require="SSL")

    def settings(_: Instance, *databases: str) -> dict[str, Any]:
        return {
            "mysql": f"secure@127.0.0.1:{server.port}",
            "password": PASSWORD,
            "databases": list(databases),
            "tls": {"mode": "verify_ca", "ca": str(server.ca_pem)},
        }

    check_server(server, new_database, make_daemon, settings)
    other = server_factory("mysql97")
    other.add_user("secure", PASSWORD)
    wrong = {**settings(server, "x"), "mysql": f"secure@127.0.0.1:{other.port}"}
    wrong["tls"] = {"mode": "verify_ca", "ca": str(authority(tmp_path / "ca.pem"))}
    daemon = make_daemon({"wrong": wrong})
    api = daemon.start()
    row = until(
        lambda: r if (r := api.row("wrong"))["last_error"] else None, "the consumer has an error"
    )
    assert row is not None
    assert "certificate is not trusted" in row["last_error"]
    assert row["state"] in ("connecting", "failed")


def test_caching_sha2_password_works_without_tls(
    server_factory: ServerFactory, new_database: Callable[[Server], str], make_daemon: MakeDaemon
) -> None:
    server = server_factory("mysql97", "--tls-version=")
    server.add_user("plain", PASSWORD)
    # The password is not in the server's cache, so the client encrypts it with the server's RSA key and sends it.
    server.execute("FLUSH PRIVILEGES")

    def settings(_: Instance, *databases: str) -> dict[str, Any]:
        return {
            "mysql": f"plain@127.0.0.1:{server.port}",
            "password": PASSWORD,
            "databases": list(databases),
            "tls": {"mode": "disabled"},
        }

    check_server(server, new_database, make_daemon, settings)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_checksums_may_be_off_and_change_while_the_log_streams(
    kind: Any, server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory(kind, "--binlog-checksum=NONE")
    for name in ("a", "b"):
        server.execute(f"CREATE DATABASE {name}")
    daemon = make_daemon({"both": source(server, "a", "b")})
    daemon.start()
    reader = Reader(daemon, "both").open()
    write(server, "a", "b")
    reader.read_to(server)
    server.execute(
        "SET GLOBAL binlog_checksum = 'CRC32'",
        "UPDATE a.t SET name = 'with checksum' WHERE id = 1",
    )
    reader.read_to(server)
    server.execute(
        "SET GLOBAL binlog_checksum = 'NONE'", "UPDATE a.t SET name = 'without' WHERE id = 3"
    )
    server.execute("SET GLOBAL binlog_checksum = 'CRC32'", "DELETE FROM b.t WHERE id = 1")
    reader.read_to(server)
    check_equal(server, reader, "a", "b")


def authority(path: Path) -> Path:
    """Write the certificate of an authority that has signed nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "other")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    return path


def test_hosts_that_cannot_fail_over_to_each_other_are_refused(
    mariadb118: Server,
    mysql97: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    database, other = new_database(mariadb118), new_database(mysql97)
    one, good = source(mariadb118, database), source(mysql97, other)
    daemon = make_daemon({"one": one, "good": good})
    api = daemon.start()
    reader, healthy = Reader(daemon, "one").open(), Reader(daemon, "good").open()
    mariadb118.execute(TABLE, "INSERT INTO t (id) VALUES (1)", database=database)
    reader.read_to(mariadb118)

    consumers = daemon.settings["consumers"]
    consumers["one"] = {**one, "mysql": f"{one['mysql']},127.0.0.1:1"}
    daemon.reload()
    row = until(lambda: r if (r := api.row("one"))["last_error"] else None, "it is refused")
    assert row is not None and row["state"] == "failed"
    words = "another host's log is another history without MySQL's GTIDs"
    assert words in row["last_error"] and "name one host" in row["last_error"]
    # The daemon tries again, and does not change to the next host.
    tries = daemon.log.count(words)
    until(lambda: daemon.log.count(words) > tries, "it is tried again")
    assert one["mysql"] in api.row("one")["last_error"]
    mysql97.execute(TABLE, "INSERT INTO t (id) VALUES (7)", database=other)
    healthy.read_to(mysql97)
    assert api.row("good")["last_error"] is None

    consumers["one"] = one
    daemon.reload()
    mariadb118.execute("INSERT INTO t (id) VALUES (2)", database=database)
    reader.read_to(mariadb118)
    assert sorted(replay(reader, f"{database}.t")[f"{database}.t"]) == [1, 2]
