"""The targets: for each parser a function of bytes, which returns if the parser treats the bytes correctly.

The parser must read the bytes, or refuse them with the error that it documents. Any other exception is a finding, and
so are a hang and unlimited memory, which the runner watches. If there is an encoder, the parser must read its output
back unchanged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.decode.arrow.invalid import Invalid
from dispatcher.binlog.decode.delivered import TableSlice
from dispatcher.binlog.decode.jsonb import json_partial
from dispatcher.binlog.event import control, gtid, header, mariadb_compressed
from dispatcher.binlog.event import transaction_payload as payloads
from dispatcher.binlog.event.file import Block, parse_format
from dispatcher.binlog.event.header import MAGIC
from dispatcher.binlog.event.query import parse_query
from dispatcher.binlog.sql.comments import ServerVersion, executed_text
from dispatcher.binlog.sql.query_event import logged_statement
from dispatcher.binlog.sql.statement import classify, parse_statement
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.inspect.bounds import Bound, Range, TimeBound
from dispatcher.inspect.inspector import Inspection, InspectOptions
from dispatcher.model.errors import BinlogError, UserError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from spark_sink.mirror.schema.statements import effects_of
from tests.fuzz import frames
from tests.support import jsonb_encoder
from tests.support.json_documents import document_text
from tests.support.log_blocks import read_blocks
from tests.support.statements import as_logged

_UNPACKED_MAX = 1 << 22
SERVERS = (ServerVersion(), ServerVersion(number=50624), ServerVersion(mariadb=True, number=101118))


def splitter(data: bytes) -> None:
    """The bits of the first byte: 1 packets, 2 checksums, 4 MariaDB, 8 the other bytes are used as they are, not as
    frames."""
    if not data:
        return
    mode, rest = data[0], data[1:]
    checksum, in_packets = bool(mode & 2), bool(mode & 1)
    first = frames.format_event(checksum=checksum, mariadb=bool(mode & 4))
    if mode & 8:
        stream = (frames.packets(iter((first,))) if in_packets else first) + rest
    else:
        raws = [first, *frames.events(rest, checksum=checksum, start=4 + len(first))]
        stream = frames.packets(iter(raws)) if in_packets else b"".join(raws)
    split = Splitter(Routes(), packets=in_packets, checksum=True, buffer_bytes=1 << 14)
    consumer, taken, seq = Filter(["shop", "audit"]), ConsumerLog(), 0
    with suppress(BinlogError):
        for batch in split.feed(stream):
            if not isinstance(batch, Batch):
                continue
            wants = consumer.route_mask(split.routes)
            _, seq = taken.append(batch, wants, None, epoch=1, seq=seq, packed=False)
    if split.format is not None:
        shown = b"".join((MAGIC, split.format.raw, *taken.read(0, taken.committed)))
        with suppress(BinlogError):
            list(delivered.split_by_table(shown))


def log(data: bytes) -> None:
    """A delivered log, made of frames. The bits of the first byte: 2 checksums, 4 MariaDB."""
    if not data:
        return
    checksum = bool(data[0] & 2)
    first = frames.format_event(checksum=checksum, mariadb=bool(data[0] & 4))
    raws = frames.events(data[1:], checksum=checksum, start=4 + len(first))
    _read_delivered(b"".join((MAGIC, first, *raws)))


def _read_delivered(data: bytes) -> None:
    with suppress(BinlogError):
        for part in delivered.split_by_table(data, max_payload_bytes=1000):
            if isinstance(part, TableSlice):
                with suppress(BinlogError):
                    for batch in delivered.decode_table(part.payload, batch_rows=3):
                        batch.validate(full=True)
    with suppress(BinlogError):
        for _ in delivered.changes(data):
            pass


def delivered_bytes(data: bytes) -> None:
    _read_delivered(data)


def table_map(data: bytes) -> None:
    with suppress(BinlogError):
        found = TableMap.parse(data)
        with suppress(BinlogError):
            arrow_types.change_schema(found.columns)


def query(data: bytes) -> None:
    with suppress(BinlogError):
        found = parse_query(data)
        for server in SERVERS:
            statement = logged_statement(found, 4, server, 0)
            assert len(statement.text) == len(found.query)
            parse_statement(statement)


def statement(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    mode = 4 if data[:1] > b"\x7f" else 0
    for server in SERVERS:
        executed = executed_text(text, mode, server)
        classify(executed)
        parse_statement(as_logged(executed, "shop", mode))
    _definition(text, mode)
    _definition(f"ALTER TABLE t {text}", mode)
    _definition(f"CREATE TABLE t {text}", mode)


def _definition(text: str, mode: int) -> None:
    """What the mirror reads of a statement, without the daemon's bounds."""
    with suppress(BinlogError):
        effects_of(as_logged(text, "shop", mode))


def gtid_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(UserError):
        one = GtidSet.parse(text)
        assert GtidSet.parse(str(one)) == one == GtidSet.decode(one.encode())
        assert one.subtract(one) == GtidSet() and one.union(one) == one and one.contains(one)
    with suppress(UserError):
        other = MariadbGtids.parse(text)
        assert MariadbGtids.parse(str(other)) == other


def gtid_binary(data: bytes) -> None:
    with suppress(BinlogError, UserError):
        one = GtidSet.decode(data)
        assert GtidSet.decode(one.encode()) == one == GtidSet.parse(str(one))
    for kind in (33, 34, 42):
        with suppress(BinlogError):
            str(gtid.parse_gtid_event(kind, data))
    with suppress(BinlogError):
        gtid.parse_previous_gtids(data)
    with suppress(BinlogError):
        str(gtid.parse_mariadb_gtid(data, 1))
    with suppress(BinlogError):
        gtid.parse_mariadb_gtid_list(data)


def json_binary(data: bytes) -> None:
    with suppress(Invalid):
        text = document_text(data)
        json.loads(text)


def json_diffs(data: bytes) -> None:
    """The first two bytes: the size of the document before the change."""
    size = int.from_bytes(data[:2], "little")
    before, diffs = data[2 : 2 + size], data[2 + size :]
    with suppress(json_partial.CannotApply, Invalid):
        document_text(json_partial.apply_diffs(before, diffs))


def _finite(text: str) -> float:
    """No server stores another number."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def json_documents(data: bytes) -> None:
    try:
        document = json.loads(data, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return
    with suppress(UnicodeEncodeError, OverflowError, RecursionError):
        encoded = jsonb_encoder.encode(document)
        assert document_text(encoded) == jsonb_encoder.text(document)


def payload(data: bytes) -> None:
    with suppress(BinlogError):
        found = payloads.parse_payload(data)
        if (found.uncompressed_size or 0) <= _UNPACKED_MAX:
            for _ in payloads.event_runs(payloads.decompressed_chunks(found)):
                pass


def compressed_events(data: bytes) -> None:
    with suppress(BinlogError):
        mariadb_compressed.plain_event(data, checksum=False)
    first = frames.format_event(checksum=False, mariadb=True)
    raws = frames.events(data, checksum=False, start=4 + len(first))
    with suppress(BinlogError):
        mariadb_compressed.plain_log(b"".join((MAGIC, first, *raws)))


def log_file(data: bytes) -> None:
    """A file as `inspect` reads it, whole and in pieces. Both ways give the same result."""
    assert _blocks(data, len(data) or 1) == _blocks(data, 37)


def _blocks(data: bytes, size: int) -> tuple[int, str]:
    seen = 0
    try:
        for block in read_blocks((data[i : i + size] for i in range(0, len(data), size)), "f"):
            seen += len(block.events)
    except BinlogError as error:
        return seen, str(error)
    return seen, ""


class _Blocks:
    """A file for `inspect`, from its bytes."""

    names: Sequence[str] = ("f",)
    more = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def blocks(self, _shown: Range) -> Iterator[Block]:
        return read_blocks((self._data,), "f")


def inspect_file(data: bytes) -> None:
    """The kernels that write events, and Python that reads each of them, print the same."""
    assert _shown(data, None) == _shown(data, TimeBound(1e12))


def _shown(data: bytes, stop: Bound | None) -> tuple[bytes, str, int]:
    out = bytearray()
    inspection = Inspection(InspectOptions(stop=stop), out.extend)
    fault = ""
    try:
        inspection.run(_Blocks(data))
    except BinlogError as error:
        fault = str(error)
    return bytes(out), fault, inspection.unread


def format_description(data: bytes) -> None:
    with suppress(BinlogError):
        header.parse_format_description(data)
    with suppress(BinlogError):
        parse_format(data)


_CONTROL: tuple[Callable[[bytes], object], ...] = (
    control.parse_rows_query,
    control.parse_annotate_rows,
    control.parse_intvar,
    control.parse_rand,
    control.parse_user_var,
    control.parse_xid,
    control.parse_xa_prepare,
    control.parse_incident,
    lambda body: control.parse_heartbeat(27, body, 4),
    lambda body: control.parse_heartbeat(41, body, 4),
    control.parse_binlog_checkpoint,
    control.parse_start_encryption,
    control.parse_transaction_context,
    control.parse_view_change,
    lambda body: control.parse_load_block(9, body),
    lambda body: control.parse_load_block(17, body),
    control.parse_load_query,
    lambda body: control.parse_load(6, body),
    lambda body: control.parse_load(12, body),
    lambda body: parse_query(body, load=True),
)


def control_events(data: bytes) -> None:
    """The first byte chooses the parser."""
    if data:
        with suppress(BinlogError):
            repr(_CONTROL[data[0] % len(_CONTROL)](data[1:]))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "splitter": splitter,
    "log": log,
    "delivered": delivered_bytes,
    "table_map": table_map,
    "query": query,
    "statement": statement,
    "gtid_text": gtid_text,
    "gtid_binary": gtid_binary,
    "json_binary": json_binary,
    "json_diffs": json_diffs,
    "json_documents": json_documents,
    "payload": payload,
    "compressed": compressed_events,
    "log_file": log_file,
    "inspect": inspect_file,
    "format_description": format_description,
    "control": control_events,
}
