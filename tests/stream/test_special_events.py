"""The events that the kernel leaves to Python. Python reads an event, counts it as ignored, or records a fault for the
consumers that the event concerns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream import splitter_kernel
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import ALL, Filter
from tests.support import control_encoder as c
from tests.support import event_encoder as e
from tests.support.rows_encoder import query_body
from tests.support.split_log import Flat, check, feed, splitter


def faulty(
    write: Any, *, gtid: str = "mysql", own_statements: Sequence[str] = ()
) -> tuple[Flat, list[Batch]]:
    """Returns all batches of a log, also those with faults. The log has a good transaction, a transaction that `write`
    writes, and another good transaction."""
    log = e.LogWriter(gtid=gtid)
    good = e.Statement((("shop", "orders"),), ((0, 10),))
    log.begin()
    log.statement(good)
    log.commit()
    write(log)
    log.begin()
    log.statement(good)
    log.commit()
    split = splitter(own_statements=own_statements)
    batches = [b for b in split.feed(log.stream()) if isinstance(b, Batch)]
    flat = Flat(split.routes).add(batches)
    assert len(flat.done) >= 2, (
        "what follows a fault is split, for the consumers that it does not concern"
    )
    return flat, [b for b in batches if b.fault]


def in_transaction(kind: int, body: bytes) -> Any:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.add(kind, body)
        log.commit()

    return write


@pytest.mark.parametrize(
    ("kind", "body", "name", "remedy"),
    [
        (250, b"???", "UNKNOWN_EVENT_250", ""),
        (EventType.INCIDENT, e.incident_body("lost"), "INCIDENT_EVENT", "lacks changes"),
        (EventType.INCIDENT, e.incident_body("lost"), "(lost)", "copy the tables afresh"),
        (EventType.PRE_GA_UPDATE_ROWS, bytes(20), "PRE_GA_UPDATE_ROWS_EVENT", "5.1"),
        (EventType.SLAVE, bytes(20), "SLAVE_EVENT", ""),
    ],
)
def test_what_is_not_understood_is_a_fault_for_all(
    kind: int, body: bytes, name: str, remedy: str
) -> None:
    _, (batch,) = faulty(in_transaction(kind, body))
    assert batch.fault is not None
    assert batch.fault.route == ALL
    assert batch.fault.error.kind is ErrorKind.UNSUPPORTED_EVENT
    assert name in batch.fault.error.what
    assert batch.fault.error.where.startswith("binlog.000001:")
    assert remedy in batch.fault.error.remedy


def test_an_unknown_event_that_may_be_ignored_is_counted() -> None:
    log = e.LogWriter()
    log.add(250, b"", flags=e.IGNORABLE)
    split = splitter()
    assert not feed(split, [log.stream()]).faults
    assert split.ignored["UNKNOWN_EVENT_250"] == 1
    assert split.ignored["PREVIOUS_GTIDS_EVENT"] == 1


def test_start_encryption_is_ignored_in_a_dump_and_a_fault_in_a_file() -> None:
    log = e.LogWriter(gtid="mariadb")
    log.add(EventType.MARIADB_START_ENCRYPTION, c.start_encryption_body(1, 2, bytes(12)))
    split = splitter()
    assert not feed(split, [log.stream()]).faults
    assert split.ignored["START_ENCRYPTION_EVENT"] == 1
    (fault,) = feed(splitter(packets=False), [log.file.raw[4:]]).faults
    assert "START_ENCRYPTION_EVENT" in fault.what
    assert "through the server" in fault.remedy


def test_load_data_as_a_statement_concerns_its_databases() -> None:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.add(EventType.BEGIN_LOAD_QUERY, bytes(4) + b"1\n2\n")
        log.add(EventType.APPEND_BLOCK, bytes(4) + b"3\n")
        status = e.status_variables(updated_databases=["shop"])
        log.add(EventType.EXECUTE_LOAD_QUERY, c.load_query_body("LOAD DATA ...", "crm", status))
        log.commit()

    flat, (batch,) = faulty(write)
    assert batch.fault is not None
    assert batch.fault.error.kind is ErrorKind.STATEMENT_FORMAT
    assert batch.fault.error.what == "LOAD DATA as a statement, in database 'crm'"
    assert Filter(["shop"]).route_mask(flat.routes)[batch.fault.route]
    assert not Filter(["crm"]).route_mask(flat.routes)[batch.fault.route]


@pytest.mark.parametrize("kind", [EventType.LOAD, EventType.CREATE_FILE, EventType.EXEC_LOAD])
def test_load_data_of_old_servers(kind: int) -> None:
    _, (batch,) = faulty(in_transaction(kind, bytes(20)))
    assert batch.fault is not None
    assert (batch.fault.error.kind, batch.fault.route) == (ErrorKind.STATEMENT_FORMAT, ALL)


def test_compressed_events_of_mariadb_are_routed_as_they_are() -> None:
    log = e.LogWriter(gtid="mariadb")
    log.begin()
    for kind in range(166, 172):
        log.statement(e.Statement((("shop", "orders"),), ((0, 10), (0, 5)), kind=kind))
    log.commit()
    log.begin(standalone=True)
    body = c.query_compressed_body(query_body("DROP TABLE t", "shop", e.status_variables()))
    log._part("ddl", EventType.MARIADB_QUERY_COMPRESSED, body, (("shop", "t"),))
    log.commit("")
    for how in ("COMMIT", "ROLLBACK"):
        log.begin()
        log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
        body = c.query_compressed_body(query_body(how, "", e.status_variables()))
        log._part("frame", EventType.MARIADB_QUERY_COMPRESSED, body)
        log.commit("")
    check(feed(splitter(), [log.stream()]), log)


def test_a_savepoint_that_was_not_set_is_a_fault() -> None:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.savepoint("a")
        log.commit()
        log.begin()
        log.ignored("ROLLBACK TO a")  # `a` is a savepoint of another transaction
        log.commit()

    _, (batch,) = faulty(write)
    assert batch.fault is not None
    assert "ROLLBACK TO a savepoint" in batch.fault.error.what


ROWS = e.Statement((("shop", "orders"),), ((0, 10),))


@pytest.mark.parametrize(
    ("begin", "end"),
    [("/* c */ BEGIN", "COMMIT"), ("BEGIN", "-- x\nCOMMIT"), ("START TRANSACTION", "/* c */ commit /* d */")],
)  # fmt: skip
def test_commented_frames(begin: str, end: str) -> None:
    log = e.LogWriter()
    log.begin(standalone=True)
    log._part("frame", EventType.QUERY, query_body(begin))
    log.statement(ROWS)
    log.commit(end)
    check(feed(splitter(), [log.stream()]), log)


@pytest.mark.parametrize("kind", [EventType.INTVAR, EventType.RAND, EventType.USER_VAR])
def test_what_stands_before_a_statement_is_judged_with_the_statement(kind: int) -> None:
    flat, batches = faulty(in_transaction(kind, bytes(16)))
    assert not batches
    assert len(flat.done) == 3


@pytest.mark.parametrize(
    ("query", "updated", "concerned"),
    [
        ("INSERT INTO t VALUES (1)", ["shop"], "shop"),
        ("/* hint */ update shop.t set a = 1", ["shop"], "shop"),
        ("DELETE FROM t", None, None),
        ("REPLACE INTO t VALUES (1)", ["shop", "crm"], "shop crm"),
        ("INSERT INTO mysql.rds_heartbeat2 VALUES (1, 2)", None, "mysql"),
        ("INSERT INTO mysql.rds_heartbeat2 VALUES (1, f())", None, None),
        ("INSERT INTO mysql.rds_heartbeat2 VALUES (1, 2)", ["mysql", "shop"], "mysql shop"),
        ("INSERT INTO percona.t VALUES (1, f())", None, "percona"),
        ("INSERT INTO percona.t SELECT 1", ["percona", "shop"], "percona"),
        ("UPDATE percona.t, shop.t SET a = 1", None, None),
    ],
)
def test_data_as_a_statement_concerns_its_databases(
    query: str, updated: list[str] | None, concerned: str | None
) -> None:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.query(query, "shop", e.status_variables(updated_databases=updated))
        log.commit()

    flat, (batch,) = faulty(write, own_statements=["percona"])
    assert batch.fault is not None
    assert batch.fault.error.kind is ErrorKind.STATEMENT_FORMAT
    assert batch.fault.error.where.startswith("binlog.000001:")
    if concerned is None:
        assert batch.fault.route == ALL
        return
    for database in ("shop", "crm", "billing", "mysql", "percona"):
        wants = Filter([database]).route_mask(flat.routes)
        assert wants[batch.fault.route] == (database in concerned)


def test_a_statement_that_touches_no_table_goes_to_no_consumer() -> None:
    log = e.LogWriter()
    log.ddl("DROP TEMPORARY TABLE IF EXISTS `shop`.`t`", "shop")
    split = splitter()
    flat = feed(split, [log.stream()])
    assert [part[0] for part in flat.done[0][5]] == ["frame"]


def test_the_route_of_hundreds_of_tables_names_their_databases() -> None:
    log = e.LogWriter()
    log.ddl("DROP TABLE " + ", ".join(f"shop.t{n}, crm.t{n}" for n in range(500)), "x")
    flat = feed(splitter(), [log.stream()])
    assert sorted(flat.routes.targets[-1]) == [("crm", None), ("shop", None)]


def test_a_statement_too_long_to_be_read_whole_goes_to_all() -> None:
    log = e.LogWriter()
    log.ddl("DROP TABLE " + ", ".join(f"shop.t{n}" for n in range(50_000)), "x", status=b"")
    split = splitter()
    flat = feed(split, [log.stream()])
    assert [part[0] for part in flat.done[0][5]] == ["frame", "ddl"]
    assert len(flat.routes) == 0 and split.ignored["unparsed statement"] == 1


def test_a_statement_in_doubt_goes_to_all_or_to_the_databases_that_it_updated() -> None:
    """An unknown clause may name another table than the one that the statement alters."""
    query = "ALTER TABLE shop.t FROBNICATE crm.u"
    listed = bytes([12, 2]) + b"shop\0crm\0"
    log = e.LogWriter()
    log.ddl(query, "x", status=b"")
    log.ddl(query, "x", status=listed)
    flat = feed(splitter(), [log.stream()])
    assert set(flat.routes.targets[-1]) == {("crm", None), ("shop", None), ("shop", "t")}
    assert len(flat.routes) == 1


def test_events_before_the_format_description_are_refused() -> None:
    raw = e.event(EventType.GTID, e.gtid_body(e.SERVER, 1))
    with pytest.raises(BinlogError, match="before its FORMAT_DESCRIPTION_EVENT"):
        feed(splitter(), [e.event_packet(raw)])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"checksum": 9}, ErrorKind.MALFORMED_EVENT),
        ({"flip": -1}, ErrorKind.CHECKSUM_MISMATCH),
        ({"flip": 30}, ErrorKind.CHECKSUM_MISMATCH),
        ({"cut": 60}, ErrorKind.MALFORMED_EVENT),
    ],
)
def test_a_format_description_that_cannot_be_trusted(
    change: dict[str, int], kind: ErrorKind
) -> None:
    raw = bytearray(e.format_description(checksum=change.get("checksum", 1)))  # type: ignore[arg-type]
    if "flip" in change:
        raw[change["flip"]] ^= 1
    if "cut" in change:
        raw = bytearray(e.event(15, bytes(raw[19 : change["cut"]])))
    rotate = e.event(4, e.rotate_body("binlog.000007"), flags=e.ARTIFICIAL)
    with pytest.raises(BinlogError) as info:
        feed(splitter(), [e.event_packet(rotate) + e.event_packet(bytes(raw))])
    assert info.value.kind is kind
    assert info.value.where.startswith("binlog.000007:")


def test_a_format_description_in_use_is_whole() -> None:
    rotate = e.event(4, e.rotate_body("binlog.000007"), flags=e.ARTIFICIAL)
    split = splitter()
    split.feed(e.event_packet(rotate) + e.event_packet(e.format_description(in_use=True)))
    assert split.format is not None
    assert split.format.created == e.TIME


def test_more_sources_of_gtids_than_the_kernel_holds_are_an_error() -> None:
    log = e.LogWriter()
    for n in range(splitter_kernel.SOURCES_MAX + 1):
        log.begin(UUID(int=n + 1))
        log.commit()
    with pytest.raises(BinlogError, match="more than 1024 sources of GTIDs"):
        feed(splitter(), [log.stream()])


@pytest.mark.parametrize(
    "raw",
    [
        e.event(EventType.ROTATE, e.rotate_body("b.000001"), flags=e.ARTIFICIAL),
        e.format_description(),
        e.event(EventType.HEARTBEAT, b"b.000001"),
        e.event(EventType.QUERY, query_body("CREATE TABLE t (n INT)")),
        e.event(EventType.IGNORABLE, b"", flags=e.IGNORABLE),
    ],
    ids=["files", "formats", "heartbeats", "statements", "ignored"],
)
def test_one_call_reads_few_of_the_events_that_take_long(raw: bytes) -> None:
    split = splitter(buffer=1 << 20)
    split.feed(e.event_packet(e.format_description()))
    data = e.event_packet(raw) * 5000
    split.room()[: len(data)] = data
    split.wrote(len(data))
    calls = 0
    while split.pending_bytes:
        before = split.pending_bytes
        split.split()
        read = (before - split.pending_bytes) // (len(raw) + 5)
        assert 0 < read <= 1024
        calls += 1
        split.compact()
    assert calls >= 5 and not split.full
