"""Parsers of single events: round trips through separate encoders, every truncation, every change, and real bytes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.binlog.event import control, gtid
from dispatcher.binlog.event.control import Heartbeat, Intvar, UserVar, XaPrepare
from dispatcher.binlog.event.cursor import ByteCursor
from dispatcher.binlog.event.gtid import (
    Gtid,
    MariadbGtid,
    Xid,
    parse_gtid_event,
    parse_mariadb_gtid,
)
from dispatcher.binlog.event.header import HEADER_SIZE, EventHeader
from dispatcher.binlog.event.query import AlterPhase, Status, parse_query
from dispatcher.binlog.event.types import EventType as E
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.query_event import logged_kind, logged_statement
from dispatcher.binlog.sql.statement import QueryKind
from dispatcher.front.dump.made_events import HeartbeatForm, heartbeat
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from tests.support import control_encoder as c
from tests.support import event_encoder as e
from tests.support.rows_encoder import query_body

u64 = st.integers(0, 2**64 - 1)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
XID = (7, b"\1\2\3", b"b")

ALL: list[tuple[Callable[[bytes], Any], bytes]] = [
    (partial(parse_gtid_event, 33), e.gtid_body(e.SERVER, 5, commit_us=1 << 50)),
    (partial(parse_gtid_event, 42), c.gtid_tagged_body(e.SERVER, "tag", 5, original_us=9)),
    (lambda b: parse_mariadb_gtid(b, 1),
     c.mariadb_gtid_more_body(5, 1, 0x42, commit_id=9, xid=XID, extra=13, alter_of=3)),
    (gtid.parse_mariadb_gtid_list, c.mariadb_gtid_list_body([(0, 1, 5), (1, 2, 6)])),
    (gtid.parse_previous_gtids, c.tagged_set_body({(e.SERVER, ""): [(1, 5)], (e.SERVER, "t"): [(1, 2)]})),
    (parse_query, query_body("CREATE", "shop", e.status_variables(updated_databases=["a"]))),
    (control.parse_rows_query, e.rows_query_body("INSERT")),
    (control.parse_annotate_rows, b"INSERT"),
    (control.parse_intvar, c.intvar_body(2, 77)),
    (control.parse_rand, c.rand_body(1, 2)),
    (control.parse_user_var, c.user_var_body("x", Decimal("-12.50"))),
    (control.parse_xid, bytes(8)),
    (control.parse_xa_prepare, c.xa_prepare_body(XID)),
    (control.parse_incident, e.incident_body("lost")),
    (lambda b: control.parse_heartbeat(E.HEARTBEAT, b, 5), b"binlog.000001"),
    (lambda b: control.parse_heartbeat(E.HEARTBEAT_V2, b, 5), c.heartbeat_v2_body("binlog.000001", 5 << 32)),
    (control.parse_binlog_checkpoint, c.binlog_checkpoint_body("binlog.000001")),
    (control.parse_start_encryption, c.start_encryption_body(1, 2, bytes(12))),
    (control.parse_transaction_context, c.transaction_context_body("u", 5, b"s", [b"w1", b"w2"], [b"r"])),
    (control.parse_view_change, c.view_change_body("view:1", 5, {b"k": b"v"})),
    (lambda b: control.parse_load_block(E.APPEND_BLOCK, b), bytes(4) + b"data"),
    (control.parse_load_query, c.load_query_body("LOAD DATA INFILE 'x'", "shop", e.status_variables())),
    (lambda b: control.parse_load(E.NEW_LOAD, b), c.load_body("shop", "t", ["a", "b"], "file")),
    (lambda b: control.parse_load(E.LOAD, b), c.load_body("shop", "t", ["a"], "file", old=True)),
    (lambda b: control.parse_load(E.CREATE_FILE, b), c.load_body("shop", "t", ["a"], "file", file_id=9)),
]  # fmt: skip


@pytest.mark.parametrize(("parse", "data"), ALL)
def test_every_cut_and_change_is_a_typed_error_or_a_value(
    parse: Callable[[bytes], Any], data: bytes
) -> None:
    parse(data)
    damaged = [data[:end] for end in range(len(data))]
    for at in range(len(data)):
        damaged += [data[:at] + bytes((v,)) + data[at + 1 :] for v in (0, 1, 127, 128, 255)]
    for bad in damaged:
        try:
            parse(bad)
        except BinlogError as error:
            assert error.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_EVENT)  # noqa: PT017


@pytest.mark.parametrize(("parse", "data"), ALL)
@given(garbage=st.binary(max_size=60))
def test_garbage_is_a_typed_error_or_a_value(
    parse: Callable[[bytes], Any], data: bytes, garbage: bytes
) -> None:
    try:
        parse(garbage)
    except BinlogError as error:
        assert error.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_EVENT)  # noqa: PT017


# -- integers -------------------------------------------------------------------------------------------------


@given(u64, st.integers(-(2**63), 2**63 - 1))
@example(0, 0)
@example(2**64 - 1, -(2**63))
def test_integers_of_both_kinds(value: int, signed: int) -> None:
    cursor = ByteCursor("x", c.packed(value) + c.varied(value) + c.varied_signed(signed))
    assert (cursor.packed_number(), cursor.varint(), cursor.signed_varint()) == (
        value,
        value,
        signed,
    )
    cursor.end()


@pytest.mark.parametrize(
    ("raw", "value"), [("fbff07", 65535), ("00", 0), ("fe", 127), ("0102", 128), ("ff" * 9, 2**64 - 1)]
)  # fmt: skip
def test_variable_length_integers_of_the_manual(raw: str, value: int) -> None:
    assert ByteCursor("x", bytes.fromhex(raw)).varint() == value
    assert c.varied(value).hex() == raw


# -- GTIDs ----------------------------------------------------------------------------------------------------


@given(st.uuids(), st.integers(1, 2**63 - 2), st.integers(0, 2**55 - 1))
def test_gtid_with_all_fields(source: UUID, gno: int, us: int) -> None:
    body = e.gtid_body(source, gno, commit_us=us)[:-8]
    assert parse_gtid_event(33, body) == Gtid(str(source), "", gno, 1, 0, 1, us, us)
    body = e.gtid_body(source, gno, commit_us=us | 1 << 55)[:-8] + (7).to_bytes(7, "little")
    body += c.packed(70_000) + (90_704 | 1 << 31).to_bytes(4, "little")
    body += (80_000).to_bytes(4, "little") + (99).to_bytes(8, "little")
    want = Gtid(str(source), "", gno, 1, 0, 1, us, 7, 70_000, 90_704, 80_000, 99)
    assert parse_gtid_event(33, body) == want
    assert str(want) == f"{source}:{gno}"


def test_an_anonymous_gtid() -> None:
    gtid = parse_gtid_event(34, e.gtid_body(UUID(int=0), 0, commit_us=5))
    assert (str(gtid), gtid.source, gtid.gno, gtid.immediate_commit_us) == ("ANONYMOUS", "", 0, 5)


tags = st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True)


@given(st.uuids(), st.just("") | tags, st.integers(1, 2**63 - 2), u64, st.none() | u64)
def test_gtid_tagged(source: UUID, tag: str, gno: int, us: int, original: int | None) -> None:
    body = c.gtid_tagged_body(source, tag, gno, commit_us=us, original_us=original)
    gtid = parse_gtid_event(42, body)
    assert (gtid.source, gtid.tag, gtid.gno) == (str(source), tag, gno)
    assert (gtid.last_committed, gtid.sequence_number, gtid.transaction_length) == (3, 4, 1000)
    assert (gtid.immediate_commit_us, gtid.original_commit_us) == (
        us,
        us if original is None else original,
    )
    assert (gtid.immediate_version, gtid.original_version) == (90704, 90704)
    assert str(gtid) == f"{source}:{tag}:{gno}" if tag else f"{source}:{gno}"


def test_gtid_tagged_as_a_server_wrote_it() -> None:
    body = bytes.fromhex(
        "026e000000028cf0e0f89503990222c503b1025d0204f103000000020404060674616708080a0c0c7f6b39886bc8600610d1041283120b"
    )
    assert parse_gtid_event(42, body) == Gtid(
        "4678707c-e5a6-11f1-ac97-02fc00000001", "tag", 1, 0, 2, 3, 1795263774079339, 1795263774079339,
        308, 90704, 90704, None,
    )  # fmt: skip


def test_fields_of_a_later_version() -> None:
    more = c.varied(30) + b"anything at all"
    assert parse_gtid_event(42, c.gtid_tagged_body(e.SERVER, "t", 5, more=more)).gno == 5
    needed = c.gtid_tagged_body(e.SERVER, "t", 5, more=more, last_needed=31)
    with pytest.raises(BinlogError, match="field 30 of a later version") as info:
        parse_gtid_event(42, needed)
    assert info.value.kind is ErrorKind.UNSUPPORTED_EVENT


def test_previous_gtids_with_tags_as_a_server_wrote_them() -> None:
    body = bytes.fromhex(
        "01030000000000014678707ce5a611f1ac9702fc0000000100010000000000000001000000000000000900000000000000"
        "4678707ce5a611f1ac9702fc000000010674616701000000000000000100000000000000020000000000000046787"
        "07ce5a611f1ac9702fc000000010a7461675f32010000000000000001000000000000000300000000000000"
    )
    text = "4678707c-e5a6-11f1-ac97-02fc00000001:1-8:tag:1:tag_2:1-2"
    assert str(gtid.parse_previous_gtids(body)) == text
    assert GtidSet.parse(text).encode() == body


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**64 - 1), u64)
def test_mariadb_gtid(domain: int, sequence: int, number: int) -> None:
    plain = parse_mariadb_gtid(e.mariadb_gtid_body(sequence, domain), 9)
    assert plain == MariadbGtid(domain, 9, sequence, 4)
    body = c.mariadb_gtid_more_body(
        sequence, domain, 0xC2, commit_id=number, xid=XID, extra=5, alter_of=number
    )
    full = parse_mariadb_gtid(body, 9)
    assert full == MariadbGtid(
        domain, 9, sequence, 0xC2, number, Xid(*XID), number, AlterPhase.COMMIT
    )
    assert str(full) == f"{domain}-9-{sequence}"
    listed = gtid.parse_mariadb_gtid_list(c.mariadb_gtid_list_body([(domain, 9, sequence)]))
    assert listed == (MariadbGtid(domain, 9, sequence, 0),)


# -- statements -----------------------------------------------------------------------------------------------


def test_all_status_variables() -> None:
    more = (
        b"\x08" + b"\x21\0" + b"\x09" + bytes((3, *bytes(7)))  # collation of the database, updated databases
        + b"\x0a" + bytes(4) + b"\x10\1" + b"\x11" + bytes((5, *bytes(7))) + b"\x13\1\x14\0\x15\1"
        + b"\x80\7\0\0" + b"\x81" + bytes((6, *bytes(7))) + b"\x82\4" + bytes((9, *bytes(7)))
        + b"\x83\2" + b"\x2d\0\x00\x09\x08\0\x08\0"
    )  # fmt: skip
    status = e.status_variables(updated_databases=["a", "b"])
    last = b"\1" + bytes((9, *bytes(7)))  # read only if all other sizes are right
    assert parse_query(query_body("x", "", status + more + last)).status == Status(
        sql_mode=9,
        client=255,
        connection=255,
        server=8,
        database_collation=33,
        time_zone="+02:00",
        explicit_defaults_for_timestamp=True,
        updated_databases=("a", "b"),
        ddl_xid=6,
        alter_phase=AlterPhase.COMMIT,
    )
    unknown = parse_query(query_body("x", "", b"\xc8what" + last)).status
    assert unknown == Status(unknown_variable=200)


@pytest.mark.parametrize("collation", [28, 8])
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE `\u00e9` (\n  `n\u00e9` int NOT NULL DEFAULT '0'\n) START TRANSACTION",
        "CREATE OR REPLACE TABLE `d`.`\u00e9``` (\n  `n` int(1) NOT NULL COMMENT '\u00e9'\n)",
    ],
)
def test_a_definition_that_the_server_wrote_is_in_utf8(text: str, collation: int) -> None:
    status = b"\4" + bytes((collation, 0, collation, 0, 8, 0))
    charset = {28: "gbk", 8: "cp1252"}[collation]
    assert parse_query(query_body(text, "", status)).query == text
    typed = text.replace("\n", "").encode(charset)
    raw = query_body("", "", status) + typed
    assert parse_query(raw).query == text.replace("\n", "")


@given(st.text(st.characters(codec="gbk"), max_size=40))
@example("\u8a98`'\\")
def test_a_statement_in_gbk(text: str) -> None:
    status = b"\4" + bytes((28, 0, 28, 0, 8, 0))
    assert parse_query(query_body(text.encode("gbk"), "", status)).query == text


@given(names, st.integers(1, 2), u64, u64)
def test_the_events_before_a_statement(name: str, kind: int, value: int, other: int) -> None:
    text = "LAST_INSERT_ID" if kind == 1 else "INSERT_ID"
    assert control.parse_intvar(c.intvar_body(kind, value)) == Intvar(text, value)
    assert control.parse_rand(c.rand_body(value, other)) == (value, other)
    assert control.parse_rows_query(e.rows_query_body(name)) == name


decimals = st.decimals(min_value=-(10**40), max_value=10**40, places=9)
values = st.none() | names | u64 | st.integers(-(2**63), -1) | st.floats(allow_nan=False) | decimals


@given(names.filter(bool), values)
@example("x", Decimal("-0.000000001"))
@example("x", Decimal("9" * 35 + "." + "9" * 30))
def test_user_variables(name: str, value: Any) -> None:
    assert control.parse_user_var(c.user_var_body(name, value)) == UserVar(name, value)


def test_a_user_variable_of_bytes() -> None:
    raw = c.user_var_body("x", b"\xff\0", collation=63)
    assert control.parse_user_var(raw).value == b"\xff\0"
    latin = c.user_var_body("x", "\u20ac".encode("cp1252"), collation=8)
    assert control.parse_user_var(latin).value == "\u20ac"


# -- the rest -------------------------------------------------------------------------------------------------


@given(st.integers(-1, 2**31 - 1), st.binary(max_size=64), st.binary(max_size=64), st.booleans())
def test_xa_prepare(number: int, gtrid: bytes, bqual: bytes, one_phase: bool) -> None:
    parsed = control.parse_xa_prepare(
        c.xa_prepare_body((number, gtrid, bqual), one_phase=one_phase)
    )
    assert parsed == XaPrepare(one_phase, Xid(number, gtrid, bqual))


def test_an_xid_as_the_server_prints_it() -> None:
    prepared = control.parse_xa_prepare(bytes.fromhex("0007000000030000000100000001020362"))
    assert str(prepared) == "XA PREPARE X'010203',X'62',7"


@given(names.filter(bool), u64)
def test_heartbeats(file: str, position: int) -> None:
    v2 = control.parse_heartbeat(E.HEARTBEAT_V2, c.heartbeat_v2_body(file, position), 5)
    assert v2 == Heartbeat(file, position)
    assert control.parse_heartbeat(E.HEARTBEAT, file.encode(), 5) == Heartbeat(file, 5)


@given(names.filter(bool), st.integers(1 << 32, (1 << 64) - 1))
def test_heartbeats_of_mariadb_beyond_4_gib(file: str, position: int) -> None:
    body = position.to_bytes(8, "little") + file.encode()
    assert control.parse_heartbeat(E.HEARTBEAT, body, 0) == Heartbeat(file, position)


@pytest.mark.parametrize("position", [4, 2**32 - 1, 2**32, 2**40 + 7])
def test_a_heartbeat_of_the_front_is_read_as_it_was_written(position: int) -> None:
    form = HeartbeatForm.of(position, v2=False, mariadb=True)
    event = heartbeat("binlog.000001", position, server_id=1, checksum=False, form=form)
    log_pos = EventHeader.read(event).log_pos
    found = control.parse_heartbeat(E.HEARTBEAT, event[HEADER_SIZE:], log_pos)
    assert found == Heartbeat("binlog.000001", position)


def test_load_data() -> None:
    load = control.parse_load(
        E.CREATE_FILE, c.load_body("shop", "t", ["a", "b"], "file", file_id=9)
    )
    assert load == control.Load("shop", "t", ("a", "b"), "file", 7, 9)
    assert control.parse_load(E.LOAD, c.load_body("s", "t", [], "f", old=True)).file == "f"
    query = control.parse_load_query(c.load_query_body("LOAD DATA INFILE 'x'", "shop"))
    assert (query.query.query, query.query.database) == ("LOAD DATA INFILE 'x'", "shop")
    assert (query.file_id, query.duplicates) == (1, 2)
    block = control.parse_load_block(E.BEGIN_LOAD_QUERY, b"\1\0\0\0rows")
    assert block == control.LoadBlock(1, b"rows")
    assert control.parse_load_block(E.DELETE_FILE, b"\1\0\0\0").data == b""


def test_events_about_the_server() -> None:
    assert control.parse_incident(e.incident_body("lost")) == control.Incident(1, "lost")
    assert control.parse_binlog_checkpoint(c.binlog_checkpoint_body("b.1")) == "b.1"
    encryption = control.parse_start_encryption(c.start_encryption_body(1, 2, b"n" * 12))
    assert encryption == control.StartEncryption(1, 2, b"n" * 12)
    context = control.parse_transaction_context(
        c.transaction_context_body("uuid", 5, b"s", [b"w"], [b"r", b""])
    )
    assert context == control.TransactionContext("uuid", 5, (b"w",), (b"r", b""))
    view = control.parse_view_change(c.view_change_body("v:1", 5, {b"k": b"v" * 300}))
    assert view == control.ViewChange("v:1", 5)


@pytest.mark.parametrize(
    ("flags", "phase"), [(2, AlterPhase.START), (4, AlterPhase.COMMIT), (8, AlterPhase.ROLLBACK)]
)
def test_the_phases_of_a_ddl_of_mariadb(flags: int, phase: AlterPhase) -> None:
    number = bytes((7, *bytes(7))) if flags > 2 else b""
    status = b"\x82" + bytes((flags,)) + number
    query = parse_query(query_body("alter table t add a int", "shop", status))
    assert query.status.alter_phase is phase
    gtid = parse_mariadb_gtid(c.mariadb_gtid_more_body(5, 1, 0x29, extra=flags, alter_of=7), 9)
    assert (gtid.alter_phase, gtid.alter_of) == (phase, 7 if number else None)
    kind = logged_kind(logged_statement(query, 0, ServerVersion(), 0))
    takes_effect = phase is AlterPhase.COMMIT
    assert (kind is QueryKind.DDL) == takes_effect
    assert (kind is QueryKind.DDL_WITHOUT_EFFECT) != takes_effect
