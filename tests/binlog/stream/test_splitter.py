"""The splitter against what the log's writer knows it wrote, in every chunking; and against damage of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.stream import batch as a
from dispatcher.binlog.stream import splitter_kernel
from dispatcher.binlog.stream.batch import Batch, Closed
from dispatcher.binlog.stream.routes import ALL, NO_ROUTE, Filter, Routes
from dispatcher.binlog.stream.splitter import Splitter
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support import control_encoder as c
from tests.support import event_encoder as e
from tests.support.random_log import random_log
from tests.support.rows_encoder import query_body

SEEDS = st.integers(0, 2**32 - 1)
DAMAGE = (ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT)
ROLES = {
    a.FRAME: "frame", a.TABLE_MAP: "map", a.ROWS: "rows", a.ROWS_END: "rows", a.TEXT: "text", a.DDL: "ddl",
    a.SAVEPOINT: "savepoint", a.ROLLBACK_TO: "undo",
}  # fmt: skip


def splitter(*, packets: bool = True, checksum: bool = True, buffer: int = 1 << 14) -> Splitter:
    return Splitter(Routes(), packets=packets, checksum=checksum, buffer_bytes=buffer)


def cuts(rng: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 7, 19, 100, 5000, 40_000))
        yield data[at : at + size]
        at += size


class Flat:
    """Transactions put together again from batches, as (source, gno, end, commit_us, parts); faults; the files."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.done: list[tuple[Any, ...]] = []
        self.aborted: list[list[tuple[Any, ...]]] = []
        self.open: list[tuple[Any, ...]] = []
        self.faults: list[BinlogError] = []
        self.events = self.bytes = 0
        self.closed: list[bytes] = []
        self.places: list[tuple[str, int]] = []
        self.checked = True  # every batch's events had checksums
        self._inside = False

    def add(self, batches: Sequence[Batch | Closed]) -> Flat:
        for batch in batches:
            if isinstance(batch, Closed):
                self.closed.append(batch.packet)
                continue
            self.places.append((batch.file, batch.offset))
            self.checked &= batch.format.checksum
            self.events += batch.events
            self.bytes += batch.bytes
            if batch.fault:
                self.faults.append(batch.fault.error)
            for t in range(len(batch.tx.first)):
                self._transaction(batch, t)
        return self

    def _transaction(self, batch: Batch, t: int) -> None:
        flags = int(batch.tx.flags[t])
        assert bool(flags & a.CONTINUED) == self._inside
        parts = self.open if flags & a.CONTINUED else []
        for i in range(batch.tx.first[t], batch.tx.last[t]):
            off, size, kind = int(batch.ev.off[i]), int(batch.ev.size[i]), int(batch.ev.kind[i])
            raw = batch.buf[off : off + size].tobytes()
            part = (
                ROLES[kind & a.KIND_MASK],
                raw,
                None if kind & a.KIND_MASK >= a.SAVEPOINT else self._tables(int(batch.ev.route[i])),
                kind & a.KIND_MASK == a.ROWS_END,
            )
            if kind & a.CARRIED:
                assert part in parts, "carried, but never seen"
            else:
                parts.append(part)
        source = int(batch.tx.source[t])
        head = (
            batch.file,
            batch.sources[source] if source >= 0 else "",
            int(batch.tx.gno[t]) if source >= 0 else 0,
            int(batch.tx.end[t]),
            int(batch.tx.commit_us[t]),
        )
        self._inside = bool(flags & a.OPEN)
        self.open = parts if self._inside else []
        if flags & a.ABORTED:
            self.aborted.append(parts)
        elif not self._inside:
            self.done.append((*head, parts))
        else:
            assert t == len(batch.tx.first) - 1

    def _tables(self, route: int) -> Any:
        return None if route == ALL else () if route == NO_ROUTE else self.routes.targets[route]


def expected(log: e.LogWriter) -> list[tuple[Any, ...]]:
    return [
        (
            t.file,
            t.source,
            t.gno,
            t.end,
            t.commit_us,
            [
                (
                    p.role,
                    p.raw,
                    tuple(p.tables or ()) if p.role in ("map", "rows") else p.tables if p.role == "ddl" else None,
                    p.ends,
                )
                for p in t.parts
            ],
        )
        for t in log.transactions
    ]  # fmt: skip


def check(flat: Flat, log: e.LogWriter) -> None:
    assert not flat.faults
    for got, want in zip(flat.done, expected(log), strict=False):
        assert got == want
    assert len(flat.done) == len(log.transactions)


def feed(split: Splitter, chunks: Iterator[bytes] | Sequence[bytes]) -> Flat:
    flat = Flat(split.routes)
    for chunk in chunks:
        flat.add(split.feed(chunk))
    return flat


GTIDS = st.sampled_from(["mysql", "mysql", "tagged", "anonymous", "5.6", "none", "mariadb"])


@given(SEEDS, GTIDS)
def test_any_log_in_any_chunks_of_a_dump(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_log(
        rng, gtid=gtid, size_max=rng.choice((50, 3000, 20_000)), far=rng.random() < 0.2
    )
    split = splitter(checksum=log.files[0].checksum, buffer=rng.choice((1 << 14, 20_000, 1 << 17)))
    split.embedded.small_bytes = rng.choice((0, 1 << 18))
    stream = bytearray()
    for n, raw in enumerate(log.dump()):
        stream += e.event_packet(raw, n)
        if rng.random() < 0.1 and n > 2:
            stream += heartbeat(log, raw, n)
    check(feed(split, cuts(rng, bytes(stream))), log)
    assert split.file == log.file.name
    assert split.created[log.file.name] == log.file.created
    assert split.offset == log.file.size


def heartbeat(log: e.LogWriter, raw: bytes, n: int) -> bytes:
    """A heartbeat as the server would send it after `raw`: in the manner of the format in force."""
    checksum = True
    for file in log.files:
        if any(event is raw or event == raw for event, _ in file.events):
            checksum = file.checksum
    if raw[4] == EventType.ROTATE:
        return b""  # which format is in force depends on the file before
    beat = e.event(EventType.HEARTBEAT, b"binlog.000008", checksum=checksum, timestamp=0)
    return e.event_packet(beat, n)


@given(SEEDS, GTIDS)
def test_any_file_in_any_chunks(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=gtid, files=False)
    split = splitter(packets=False, checksum=False)
    split.file = log.file.name
    split.feed(b"")
    flat = feed(split, cuts(rng, log.file.raw[4:]))
    # Offsets count from the file's start, and the first event's header says where it ends.
    check(flat, log)


def test_byte_by_byte() -> None:
    log = random_log(random.Random(5), transactions=12)
    split = splitter(checksum=log.files[0].checksum)
    flat = Flat(split.routes)
    for byte in log.stream():
        flat.add(split.feed(bytes((byte,))))
    check(flat, log)


@given(SEEDS)
@example(0)
@settings(max_examples=10 * settings().max_examples // 100)
def test_cut_at_every_offset_gives_a_prefix(seed: int) -> None:
    log = random_log(random.Random(seed), transactions=3, size_max=20)
    stream = log.stream()
    want = expected(log)
    for end in range(0, len(stream), 1 if seed == 0 else 29):
        split = splitter(checksum=log.files[0].checksum)
        flat = feed(split, [stream[:end]])
        assert flat.done == want[: len(flat.done)]
        assert not flat.faults
        assert not flat.closed


@given(SEEDS, st.booleans())
@example(159099259, True)
def test_a_damaged_byte_is_found_or_harmless(seed: int, packets: bool) -> None:
    rng = random.Random(seed)
    log = random_log(rng, transactions=4, size_max=30, files=packets)
    data = log.stream() if packets else log.file.raw[4:]
    want = expected(log)
    for _ in range(20):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        split = splitter(packets=packets, checksum=log.files[0].checksum)
        flat = Flat(split.routes)
        try:
            for chunk in cuts(rng, bytes(damaged)):
                batches = split.feed(chunk)
                closed = next((n for n, b in enumerate(batches) if isinstance(b, Closed)), None)
                flat.add(batches[:closed])
                if closed is not None:
                    break  # the caller closes the connection here
        except BinlogError as error:
            if error.kind not in DAMAGE:
                raise
        # A FORMAT_DESCRIPTION that says "no checksums" has no valid one itself in a dump from the middle, so the
        # bit that says so is not protected.
        if flat.checked and all(file.checksum for file in log.files):
            assert [t[1:3] for t in flat.done] == [t[1:3] for t in want[: len(flat.done)]]
            assert [t[5] for t in flat.done] == [t[5] for t in want[: len(flat.done)]]


# -- positions ------------------------------------------------------------------------------------------------


def test_a_crashed_file_ends_at_the_next_one() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
    log.crash()
    flat = feed(splitter(), [log.stream()])
    assert flat.places[-1] == (log.file.name, log.file.size)
    assert flat.done == []
    assert len(flat.aborted) == 1


def test_short_files_that_come_at_once_keep_their_creation_times() -> None:
    """A position without the time at which its file was created could be taken for one of a log that was reset."""
    log = e.LogWriter()
    for _ in range(3):
        log.begin()
        log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
        log.commit()
        log.rotate()
    split = splitter()
    batches = [batch for batch in split.feed(log.stream()) if isinstance(batch, Batch)]
    created = {batch.file: split.created[batch.file] for batch in batches if len(batch.tx.end)}
    assert created == {file.name: file.created for file in log.files[:3]}
    split.split()
    assert split.created == {log.file.name: log.file.created}


# -- what is not understood -----------------------------------------------------------------------------------


def faulty(write: Any, *, gtid: str = "mysql") -> tuple[Flat, list[Batch]]:
    """A log with one good transaction, what `write` adds to the next one, and a good one; its batches with faults."""
    log = e.LogWriter(gtid=gtid)
    good = e.Statement((("shop", "orders"),), ((0, 10),))
    log.begin()
    log.statement(good)
    log.commit()
    write(log)
    log.begin()
    log.statement(good)
    log.commit()
    split = splitter()
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


def test_encryption_is_the_servers_business_and_a_files_fault() -> None:
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


def test_partial_updates_are_rows() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((("shop", "orders"),), ((0, 10), (0, 5)), kind=39))
    log.commit()
    check(feed(splitter(), [log.stream()]), log)


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


def test_mariadb_out_of_order() -> None:
    """Without gtid_strict_mode a sequence number may be lower than the one before it."""
    log = e.LogWriter(gtid="mariadb")
    for gno in (100, 7, 101, 7):
        log.begin(gno=gno)
        log.commit()
    flat = feed(splitter(), [log.stream()])
    assert [t[1:3] for t in flat.done] == [("0-1", n) for n in (100, 7, 101, 7)]


def test_a_savepoint_that_was_not_set_is_a_fault() -> None:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.savepoint("a")
        log.commit()
        log.begin()
        log.ignored("ROLLBACK TO a")  # of another transaction
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
    ],
)
def test_data_as_a_statement_concerns_its_databases(
    query: str, updated: list[str] | None, concerned: str | None
) -> None:
    def write(log: e.LogWriter) -> None:
        log.begin()
        log.query(query, "shop", e.status_variables(updated_databases=updated))
        log.commit()

    flat, (batch,) = faulty(write)
    assert batch.fault is not None
    assert batch.fault.error.kind is ErrorKind.STATEMENT_FORMAT
    assert batch.fault.error.where.startswith("binlog.000001:")
    if concerned is None:
        assert batch.fault.route == ALL
        return
    for database in ("shop", "crm", "billing"):
        wants = Filter([database]).route_mask(flat.routes)
        assert wants[batch.fault.route] == (database in concerned)


def test_a_statement_that_touches_no_table_goes_to_nobody() -> None:
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


@pytest.mark.parametrize(
    "again", [EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID]
)
def test_a_transaction_inside_another_one_is_refused(again: int) -> None:
    log = e.LogWriter(gtid="mariadb" if again == EventType.MARIADB_GTID else "mysql")
    log.begin()
    body = e.mariadb_gtid_body(9) if log.gtid == "mariadb" else e.gtid_body(e.SERVER, 9)
    log.add(again, body)
    with pytest.raises(BinlogError, match=r"stands inside a transaction \(binlog.000001:\d+\)"):
        feed(splitter(), [log.stream()])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EventType.XID, bytes(8)),
        (EventType.TABLE_MAP, e.table_map_body("shop", "orders", 1)),
        (EventType.WRITE_ROWS, e.opaque_rows_body(30, 1, b"", end=True)),
    ],
)
def test_rows_outside_a_transaction_are_refused(kind: int, body: bytes) -> None:
    log = e.LogWriter()
    log.add(kind, body)
    with pytest.raises(BinlogError, match="stands outside a transaction") as info:
        feed(splitter(), [log.stream()])
    assert info.value.kind is ErrorKind.MALFORMED_EVENT
    assert info.value.where.startswith("binlog.000001:")


@pytest.mark.parametrize(("database", "table"), [("", ""), ("shop", ""), ("", "orders")])
def test_a_table_map_without_a_name_is_refused(database: str, table: str) -> None:
    log = e.LogWriter()
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body(database, table, 1))
    with pytest.raises(BinlogError, match="TABLE_MAP_EVENT names no table") as info:
        feed(splitter(), [log.stream()])
    assert info.value.kind is ErrorKind.MALFORMED_EVENT


def test_rows_without_their_table_map_are_refused() -> None:
    log = e.LogWriter()
    log.begin()
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 77, b"", end=True))
    with pytest.raises(BinlogError, match="table map that is missing"):
        feed(splitter(), [log.stream()])


def test_a_statement_closed_with_no_table_ends_it() -> None:
    # MySQL does so where the last table of a statement is not logged.
    log = e.LogWriter()
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body("shop", "orders", 5))
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 5, b"", end=False))
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 0xFFFFFF, b"", end=True))
    log.commit()
    flat = feed(splitter(), [log.stream()])
    assert [part[3] for part in flat.done[0][5]][3:5] == [False, True]


@pytest.mark.parametrize("kind", sorted({*EventType} - {EventType.FORMAT_DESCRIPTION}))
def test_every_type_cut_short_is_a_typed_error_or_none(kind: int) -> None:
    named = kind == EventType.ROTATE  # it tells another name
    for size in range(60):
        for inside in (False, True):
            log = e.LogWriter()
            if inside:
                log.begin()
            log.add(kind, b"\x07" * size)
            try:
                flat = feed(splitter(), [log.stream()])
            except BinlogError as error:
                if error.kind not in DAMAGE or not (named or "binlog.000001:" in error.where):
                    raise
            else:
                assert all(fault.where for fault in flat.faults)


def test_what_stands_before_damage_is_kept() -> None:
    log = e.LogWriter()
    for _ in range(3):
        log.begin()
        log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
        log.commit()
    stream = bytearray(log.stream())
    stream[-1] ^= 1
    split = splitter()
    flat = Flat(split.routes)
    room = split.room()
    room[: len(stream)] = stream
    split.wrote(len(stream))
    flat.add(split.split())
    assert len(flat.done) == 2
    for _ in range(2):
        split.compact()
        with pytest.raises(BinlogError, match="checksum mismatch: XID_EVENT") as info:
            split.split()
        assert info.value.where.startswith("binlog.000001:")


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


# -- the protocol ---------------------------------------------------------------------------------------------


def test_heartbeats_move_nothing() -> None:
    log = random_log(random.Random(1), transactions=2, checksum=True, files=False)
    split = splitter()
    feed(split, [log.stream()])
    offset = split.offset
    for kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
        beat = e.event(kind, b"binlog.000099", log_pos=12345)
        flat = feed(split, [e.event_packet(beat)])
        assert flat.events == 0
    assert (split.offset, split.special.heartbeats) == (offset, 2)


@pytest.mark.parametrize(
    "packet", [e.EOF_PACKET, e.error_packet(1236, "purged"), e.packets(b"\x07?"), e.packets(b"")]
)
def test_any_other_packet_closes_the_dump(packet: bytes) -> None:
    log = random_log(random.Random(2), transactions=3, files=False)
    split = splitter(checksum=log.files[0].checksum)
    flat = feed(split, [log.stream() + packet])
    assert flat.closed == [packet[4:]]
    assert len(flat.done) == 3


def test_a_packet_must_fit_its_event() -> None:
    raw = e.event(EventType.XID, bytes(8))
    for bad in (b"\0" + raw + b"x", b"\0" + raw[:-1], b"\0" + raw[:10]):
        with pytest.raises(BinlogError, match="does not fit its packet"):
            feed(splitter(), [e.packets(bad)])


SIZES = (
    e.PACKET_MAX - 2,
    e.PACKET_MAX - 1,
    e.PACKET_MAX,
    2 * e.PACKET_MAX - 1,
    2 * e.PACKET_MAX + 5,
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunk", [1 << 14, 3_000_001, 1 << 26])
def test_an_event_larger_than_a_packet(size: int, chunk: int) -> None:
    log = e.LogWriter()
    payload = size - 19 - 10 - 4
    statement = e.Statement((("shop", "orders"),), ((0, payload), (0, 100)))
    for _ in range(2):
        log.begin()
        log.statement(statement)
        log.commit()
    assert len(log.transactions[0].parts[3].raw) == size
    stream = log.stream()
    flat = feed(splitter(), [stream[at : at + chunk] for at in range(0, len(stream), chunk)])
    check(flat, log)
    assert (
        0 <= len(stream) - flat.bytes < 200
    )  # what comes before the first format belongs to no batch


def test_a_large_event_that_goes_on_with_a_packet_too_long() -> None:
    raw = e.event(EventType.XID, bytes(e.PACKET_MAX + 100))
    whole = bytearray(e.event_packet(raw))
    whole[4 + e.PACKET_MAX] += 1
    with pytest.raises(BinlogError, match="continues an event that lacks"):
        feed(splitter(), [bytes(whole) + b"more"])


def test_a_damaged_size_does_not_ask_for_its_memory() -> None:
    raw = bytearray(e.event_packet(e.event(EventType.XID, bytes(8))))
    raw[5 + 9 + 3] = 0xFF  # the event claims 4 GiB, its packet 31 bytes
    split = splitter()
    split.feed(bytes(raw[:-1]))
    assert len(split.room()) < 1 << 20


# -- limits ---------------------------------------------------------------------------------------------------


def test_more_events_than_the_arrays_hold() -> None:
    log = e.LogWriter(checksum=False)
    table = (("shop", "orders"),)
    log.begin()
    for n in range(70_000):
        if n % 1000 == 0:
            log.statement(e.Statement(table, ((0, 1),)))
        else:
            log.statement(
                e.Statement(table, ((0, 1), (0, 1))) if n % 7 else e.Statement(table, ((0, 0),))
            )
    log.commit()
    log.begin()
    log.commit()
    flat = feed(splitter(checksum=False, buffer=1 << 23), [log.stream()])
    check(flat, log)


def test_a_large_event_where_the_arrays_are_just_full() -> None:
    log = e.LogWriter(checksum=False)
    table = (("shop", "orders"),)
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body("shop", "orders", 100))
    small = e.opaque_rows_body(30, 100, b"", end=False)
    for _ in range(splitter_kernel.EVENTS_MAX - 4):
        log.add(EventType.WRITE_ROWS, small)
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 100, bytes(e.PACKET_MAX), end=True))
    log.statement(e.Statement(table, ((0, 1),)))
    log.commit()
    split = splitter(checksum=False, buffer=1 << 25)
    flat = feed(split, [log.stream()])
    assert len(flat.done) == 1
    assert len(flat.done[0][5]) == splitter_kernel.EVENTS_MAX + 3
    assert flat.done[0][3] == log.file.size


def test_too_many_sources_of_gtids_are_said() -> None:
    log = e.LogWriter()
    for n in range(splitter_kernel.SOURCES_MAX + 1):
        log.begin(UUID(int=n + 1))
        log.commit()
    with pytest.raises(BinlogError, match="more than 1024 sources of GTIDs"):
        feed(splitter(), [log.stream()])


@pytest.mark.parametrize(
    ("version", "kind"),
    [("5.1.73-log", ErrorKind.UNSUPPORTED_EVENT), ("5.5.62-log", ErrorKind.MALFORMED_EVENT)],
)
def test_rows_without_begin_are_named_as_those_of_mysql_51(version: str, kind: ErrorKind) -> None:
    """It logs changes of MyISAM tables like that; later servers begin a transaction."""
    body = e.table_map_body("shop", "orders", 1)
    old = version.startswith("5.1")
    head = e.format_description(version=version, checksum=False)
    # Before 5.6.1 it names no checksum algorithm and has no checksum.
    head = head[:-5]
    head = head[:9] + len(head).to_bytes(4, "little") + head[13:]
    split = splitter()
    split.feed(e.event_packet(head))
    with pytest.raises(BinlogError) as caught:
        split.feed(e.event_packet(e.event(EventType.TABLE_MAP, body, checksum=False)))
    assert caught.value.kind is kind
    assert ("MySQL 5.1 logs" in caught.value.what) is old
    assert "TABLE_MAP_EVENT stands outside a transaction" in caught.value.what


# -- what no server sends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("packets", [True, False])
def test_an_event_over_1_gib_is_refused_at_its_header(packets: bool) -> None:
    split = splitter(packets=packets)
    raw = bytearray(e.event(EventType.WRITE_ROWS, bytes(10)))
    raw[9:13] = (0xFFFFFFFF).to_bytes(4, "little")
    head = e.format_description()
    split.feed(e.event_packet(head) if packets else head)
    with pytest.raises(BinlogError) as caught:
        split.feed(b"\xff\xff\xff\1\0" + raw if packets else bytes(raw))
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT
    assert len(split.room()) < 1 << 20


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


def test_a_gtid_of_a_number_that_no_transaction_has_is_malformed() -> None:
    for number in (0, 1 << 63, (1 << 63) - 1):
        split = splitter()
        raws = (e.format_description(), e.event(EventType.GTID, e.gtid_body(e.SERVER, number)))
        with pytest.raises(BinlogError, match="number that no transaction has"):
            split.feed(b"".join(e.event_packet(raw) for raw in raws))
