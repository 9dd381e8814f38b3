"""Encoders of every event that the daemon reads, a writer of whole logs, and the packets of a dump.

The encoders are based on the format's description, not on the decoders. They are plain Python code that encodes one
event at a time. `LogWriter` records the events that it has written for each transaction, so that tests can compare them
without parsing the bytes.

Sources: MySQL source, libs/mysql/binlog/event/*.h, sql/rpl_binlog_sender.cc; MariaDB knowledge base, "Replication
protocol" and its pages of events.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from dispatcher.binlog.event.types import EventType
from tests.support.control_encoder import gtid_tagged_body, payload_body
from tests.support.rows_encoder import Spec, query_body, table_map

MAGIC = b"\xfebin"
SERVER = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
ARTIFICIAL, IGNORABLE, IN_USE = 0x20, 0x80, 0x01
PACKET_MAX = 0xFFFFFF
TIME = 1_700_000_000


def event(
    kind: int,
    body: bytes,
    *,
    checksum: bool = True,
    timestamp: int = TIME,
    server_id: int = 1,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    size = 19 + len(body) + 4 * checksum
    header = struct.pack("<IBIIIH", timestamp, kind, server_id, size, log_pos & 0xFFFFFFFF, flags)
    return header + body + (zlib.crc32(header + body).to_bytes(4, "little") if checksum else b"")


def format_description(
    *,
    checksum: bool = True,
    timestamp: int = TIME,
    log_pos: int = 0,
    version: str = "8.0.36",
    in_use: bool = False,
) -> bytes:
    """Returns the whole event. It always ends with an algorithm and a checksum, which is zero if there are no
    checksums."""
    body = struct.pack("<H50sIB", 4, version.encode(), timestamp, 19) + bytes(41)
    raw = event(
        EventType.FORMAT_DESCRIPTION, body + bytes((checksum,)), timestamp=timestamp, log_pos=log_pos
    )  # fmt: skip
    return raw[:17] + bytes((IN_USE if in_use else 0, 0)) + raw[19:]


def rotate_body(file: str, position: int = 4) -> bytes:
    return position.to_bytes(8, "little") + file.encode()


def previous_gtids_body(sets: Mapping[UUID, Sequence[tuple[int, int]]]) -> bytes:
    out = len(sets).to_bytes(8, "little")
    for uuid, intervals in sets.items():
        out += uuid.bytes + len(intervals).to_bytes(8, "little")
        out += b"".join(struct.pack("<QQ", *interval) for interval in intervals)
    return out


def gtid_body(source: UUID, gno: int, *, commit_us: int | None = None) -> bytes:
    """If `commit_us` is None, the event has MySQL 5.6's form, which ends after the logical clock."""
    out = b"\1" + source.bytes + gno.to_bytes(8, "little") + b"\2" + struct.pack("<qq", 0, 1)
    return out if commit_us is None else out + commit_us.to_bytes(7, "little") + bytes(8)


def gtid_56_body(source: UUID, gno: int) -> bytes:
    return b"\1" + source.bytes + gno.to_bytes(8, "little")


STANDALONE, TRANSACTIONAL, PREPARED_XA = 1, 4, 64  # flags of MariaDB's GTID event


def mariadb_gtid_body(sequence: int, domain: int = 0, flags: int = TRANSACTIONAL) -> bytes:
    return struct.pack("<QIB", sequence, domain, flags) + bytes(6)


def gtid_list_body(listed: Sequence[tuple[int, ...]]) -> bytes:
    """Encodes a GTID_LIST. `listed`: domain, server and number of each GTID."""
    return struct.pack("<I", len(listed)) + b"".join(struct.pack("<IIQ", *gtid) for gtid in listed)


def status_variables(
    *, updated_databases: Iterable[str] | None = None, too_many: bool = False
) -> bytes:
    """Encodes the status variables that a current server writes, in its order. Q_UPDATED_DB_NAMES is optional."""
    out = b"\0" + bytes(4) + b"\1" + bytes(8)  # flags2, sql_mode
    out += b"\6\3std" + b"\3" + struct.pack("<HH", 1, 1) + b"\4" + struct.pack("<HHH", 255, 255, 8)
    out += b"\5\6+02:00" + b"\7" + bytes(2)  # time zone, lc_time_names
    out += b"\x0b\4root\5local"  # invoker
    if too_many:
        out += b"\x0c\xfe"
    elif updated_databases is not None:
        names = list(updated_databases)
        out += b"\x0c" + bytes((len(names),)) + b"".join(n.encode() + b"\0" for n in names)
    return out + b"\x0d" + bytes(3) + b"\x12" + struct.pack("<H", 255)


def table_map_body(database: str, table: str, table_id: int) -> bytes:
    return table_map([Spec("id", 3)], database=database, table=table, table_id=table_id)


def opaque_rows_body(kind: int, table_id: int, payload: bytes, *, end: bool) -> bytes:
    """Encodes table id, flags, the extra-data length of v2, and then arbitrary bytes instead of rows, because the
    daemon does not parse rows."""
    extra = b"\2\0" if kind >= EventType.WRITE_ROWS else b""
    return table_id.to_bytes(6, "little") + int(end).to_bytes(2, "little") + extra + payload


def rows_query_body(text: str) -> bytes:
    return bytes((min(len(text), 255),)) + text.encode()


def incident_body(message: str) -> bytes:
    return b"\1\0" + bytes((len(message),)) + message.encode()


# -- packets --------------------------------------------------------------------------------------------------


def packets(payload: bytes, sequence: int = 0) -> bytes:
    """Divides a payload into packets of the protocol: packets of 16 MiB - 1 bytes, then a shorter packet, which may be
    empty."""
    out = []
    while True:
        part, payload = payload[:PACKET_MAX], payload[PACKET_MAX:]
        out.append(len(part).to_bytes(3, "little") + bytes((sequence & 255,)) + part)
        sequence += 1
        if len(part) < PACKET_MAX:
            return b"".join(out)


def event_packet(raw: bytes, sequence: int = 0) -> bytes:
    return packets(b"\0" + raw, sequence)


EOF_PACKET = packets(b"\xfe\0\0\2\0")


def error_packet(number: int, message: str) -> bytes:
    return packets(b"\xff" + number.to_bytes(2, "little") + b"#HY000" + message.encode())


# -- logs -----------------------------------------------------------------------------------------------------

Table = tuple[str, str]


@dataclass(slots=True)
class Part:
    """An event of a transaction. `role`: frame, text, map, rows, ddl, savepoint, undo. `tables`: the tables that the
    event concerns, None for all. `name`: the name of the savepoint."""

    role: str
    raw: bytes
    tables: tuple[tuple[str, str | None], ...] | None = ()
    ends: bool = False  # True for the last rows event of a statement
    name: str = ""


@dataclass(slots=True)
class Transaction:
    """A transaction as written. `start`, `end`: offsets in `file`. `commit_us`: the commit time that the daemon should
    report. `lower_case`: the server's `lower_case_table_names`."""

    file: str
    start: int
    end: int = 0
    source: str = ""
    gno: int = 0
    commit_us: int = 0
    timestamp: int = 0
    checksum: bool = True
    parts: list[Part] = field(default_factory=list)
    aborted: bool = False
    rolled_back: bool = False
    lower_case: int = 0

    @property
    def happened(self) -> list[Part]:
        """Returns the events of the transaction that were not rolled back."""
        out: list[Part] = []
        for part in () if self.rolled_back else self.parts:
            if part.role == "undo":
                while out[-1].role != "savepoint" or out[-1].name != part.name:
                    out.pop()
            else:
                out.append(part)
        return out


@dataclass(slots=True)
class File:
    name: str
    created: int
    checksum: bool
    events: list[tuple[bytes, Transaction | None]] = field(default_factory=list)
    size: int = 4
    # By an event's index: how many bytes the offsets skip before the event. `raw` does not contain these bytes.
    jumps: dict[int, int] = field(default_factory=dict)
    # A result that `fake_server` caches, and the number of events for which the result is valid.
    events_at: tuple[int, dict[int, Transaction | None]] = field(default=(0, {}), compare=False)

    @property
    def raw(self) -> bytes:
        return MAGIC + b"".join(raw for raw, _ in self.events)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement. `rows`: for each rows event, the index of the event's table in `tables`, and the size of the
    payload."""

    tables: tuple[Table, ...]
    rows: tuple[tuple[int, int], ...]
    text: str | None = None
    kind: int = EventType.WRITE_ROWS


class LogWriter:
    """Writes a server's binlog files. `gtid`: "mysql", "tagged", "anonymous", "5.6" (GTIDs without times), "none",
    "mariadb", "domains" (MariaDB with the domain 0, and the domain 5 for other sources). `compress`: True to
    write the next transactions as TRANSACTION_PAYLOAD events. `created`: by file name,
    the server's time (s since 1970) at which it begins this file. `lower_case`: the server's `lower_case_table_names`;
    `spelled`: returns the spelling that the log has for a statement or a default database, or, if `lower_case` is 2,
    for a name in a TABLE_MAP; the second argument is the number of the transaction."""

    def __init__(
        self,
        *,
        gtid: str = "mysql",
        checksum: bool = True,
        first_file: int = 1,
        now: int = TIME,
        created: Mapping[str, int] | None = None,
    ) -> None:
        self.gtid = gtid
        self.lower_case = 0
        self.spelled: Callable[[str, object], str] = lambda text, _: text
        self._created = {} if created is None else created
        self.files: list[File] = []
        self.transactions: list[Transaction] = []
        self._checksum = checksum
        self._open: Transaction | None = None
        self._next_gno: dict[str, int] = {}
        self._now = now  # s since 1970; grows by one with each transaction and each file
        self._next_file = first_file
        self._table_ids: dict[Table, int] = {}
        self.compress = False
        self.compression = 0
        self._inside: list[tuple[Part, int, bytes, int]] | None = None  # in the open payload
        self.begin_file()

    # -- files -----------------------------------------------------------------------------------------------

    @property
    def mariadb(self) -> bool:
        return self.gtid in ("mariadb", "domains")

    @property
    def file(self) -> File:
        return self.files[-1]

    def begin_file(self) -> None:
        name = f"binlog.{self._next_file:06}"
        self._now = self._created.get(name, self._now + 1)
        file = File(name, self._now, self._checksum)
        self._next_file += 1
        self.files.append(file)
        size = len(format_description())
        self._put(format_description(checksum=self._checksum, timestamp=self._now, log_pos=4 + size,
                                     version="10.11.6-MariaDB" if self.mariadb else "9.7.4"))  # fmt: skip
        if self.gtid == "domains":
            listed = [
                (*map(int, name.split("-")), n - 1) for name, n in self._next_gno.items() if n > 1
            ]
            self.add(EventType.MARIADB_GTID_LIST, gtid_list_body(listed))
        if self.gtid == "mysql":
            held = {UUID(s): [(1, n)] for s, n in self._next_gno.items() if n > 1}
            self.add(EventType.PREVIOUS_GTIDS, previous_gtids_body(held), flags=IGNORABLE)

    def rotate(self, *, checksum: bool | None = None) -> None:
        """End the file with a ROTATE, and begin another file. `checksum`: True or False to change whether events have
        checksums."""
        self.add(EventType.ROTATE, rotate_body(f"binlog.{self._next_file:06}"))
        self._checksum = self._checksum if checksum is None else checksum
        self.begin_file()

    def jump(self, size: int) -> None:
        """Continue as if `size` bytes had been written. No dump sends these bytes."""
        self.file.jumps[len(self.file.events)] = size
        self.file.size += size

    def crash(self) -> None:
        """End the file without a ROTATE, drop the open transaction, and begin a new file."""
        if self._open:
            self._open.aborted = True
            self._next_gno[self._open.source] = self._open.gno or 1
            self._open = self._inside = None
        self.begin_file()

    def add(self, kind: int, body: bytes, *, flags: int = 0) -> bytes:
        file = self.file
        end = file.size + 19 + len(body) + 4 * file.checksum
        raw = event(
            kind, body, checksum=file.checksum, timestamp=self._now, log_pos=end, flags=flags
        )
        self._put(raw)
        return raw

    def _put(self, raw: bytes) -> None:
        self.file.events.append((raw, self._open))
        self.file.size += len(raw)

    # -- transactions ----------------------------------------------------------------------------------------

    def begin(
        self, source: UUID = SERVER, *, gno: int | None = None, standalone: bool = False
    ) -> Transaction:
        """Write the GTID event and, unless standalone, BEGIN."""
        self._now += 1
        self._open = open_ = Transaction(
            self.file.name, self.file.size, timestamp=self._now, checksum=self.file.checksum,
            lower_case=self.lower_case,
        )  # fmt: skip
        open_.commit_us = self._now * 1_000_000
        name = str(source)
        if self.mariadb:
            name = "0-1" if self.gtid == "mariadb" or source == SERVER else "5-1"
        if self.gtid == "tagged":
            name += ":" + "ab_"[len(self.transactions) % 3]
        if gno is None:
            gno = self._next_gno.get(name, 1)
            if self.gtid == "domains" and gno % 7 == 3:
                gno += (
                    2  # MariaDB leaves numbers out, for example if a transaction was not replicated
                )
        if self.gtid in ("mysql", "tagged", "5.6", "mariadb", "domains"):
            open_.source, open_.gno = name, gno
            self._next_gno[name] = max(self._next_gno.get(name, 1), gno + 1)
        if self.gtid in ("mysql", "anonymous"):
            open_.commit_us = self._now * 1_000_000 + gno % 1_000_000
            kind = EventType.GTID if self.gtid == "mysql" else EventType.ANONYMOUS_GTID
            source, gno = (source, gno) if self.gtid == "mysql" else (UUID(int=0), 0)
            self._part("frame", kind, gtid_body(source, gno, commit_us=open_.commit_us))
        elif self.gtid == "tagged":
            open_.commit_us = self._now * 1_000_000 + gno % 1_000_000
            tag = name.rpartition(":")[2]
            body = gtid_tagged_body(source, tag, gno, commit_us=open_.commit_us)
            self._part("frame", EventType.GTID_TAGGED, body)
        elif self.gtid == "5.6":
            self._part("frame", EventType.GTID, gtid_56_body(source, gno))
        elif self.mariadb:
            flags = STANDALONE if standalone else TRANSACTIONAL
            self._part(
                "frame",
                EventType.MARIADB_GTID,
                mariadb_gtid_body(gno, int(name.split("-")[0]), flags),
            )
        if self.compress and not standalone and self.gtid in ("mysql", "tagged", "anonymous"):
            self._inside = []
        if not standalone and not self.mariadb:
            self._part("frame", EventType.QUERY, query_body("BEGIN", "", status_variables()))
        return open_

    def statement(self, statement: Statement) -> None:
        for kind, body, role, tables, ends in self.statement_events(statement):
            self._part(role, kind, body, tables, ends=ends)

    def statement_events(
        self, statement: Statement
    ) -> Iterator[tuple[int, bytes, str, tuple[Table, ...], bool]]:
        if statement.text is not None:
            if self.mariadb:
                kind, body = EventType.MARIADB_ANNOTATE_ROWS, statement.text.encode()
            else:
                kind, body = EventType.ROWS_QUERY, rows_query_body(statement.text)
            yield kind, body, "text", statement.tables, False
        for table in statement.tables:
            table_id = self._table_ids.setdefault(table, 100 + len(self._table_ids))
            body = table_map_body(*self._mapped(table), table_id)
            yield EventType.TABLE_MAP, body, "map", (table,), False
        for n, (index, size) in enumerate(statement.rows):
            last = n == len(statement.rows) - 1
            table = statement.tables[index]
            payload = (b"%d:" % n).ljust(size, b"r")
            rows = opaque_rows_body(statement.kind, self._table_ids[table], payload, end=last)
            yield statement.kind, rows, "rows", (table,), last

    def _mapped(self, table: Table) -> Table:
        """Returns the names of a TABLE_MAP: if `lower_case_table_names` is 2, a server writes the names as they were
        typed when the table was created."""
        if self.lower_case != 2:
            return table
        return self.spelled(table[0], "created"), self.spelled(table[1], "created")

    def query(self, query: str, database: str = "", status: bytes | None = None,
              tables: tuple[tuple[str, str | None], ...] | None = None) -> None:  # fmt: skip
        """Write a statement as text in the open transaction. `tables`: the tables that the statement concerns, None for
        all."""
        status = status_variables() if status is None else status
        number = len(self.transactions)
        query, database = self.spelled(query, number), self.spelled(database, number)
        self._part("ddl", EventType.QUERY, query_body(query, database, status), tables)

    def savepoint(self, name: str, *, query: str = "SAVEPOINT `{}`") -> None:
        self._part("savepoint", EventType.QUERY, query_body(query.format(name)), name=name)

    def undo(self, name: str, *, query: str = "ROLLBACK TO `{}`") -> None:
        self._part("undo", EventType.QUERY, query_body(query.format(name)), name=name)

    def ignored(self, query: str) -> None:
        """Write a statement that no consumer gets, such as RELEASE SAVEPOINT, into the open transaction."""
        if self._inside is None:
            self.add(EventType.QUERY, query_body(query, "", status_variables()))

    def commit(self, how: str = "xid") -> Transaction:
        """End the transaction. `how`: xid, the text of a query such as COMMIT or ROLLBACK, or "" if the last event, a
        DDL statement, has already ended the transaction."""
        if how == "xid":
            self._part("frame", EventType.XID, self.file.size.to_bytes(8, "little"))
        elif how:
            self._part("frame", EventType.QUERY, query_body(how, "", status_variables()))
        self._pack()
        done, self._open = self._open, None
        assert done is not None
        done.rolled_back = how.upper() == "ROLLBACK"
        done.end = self.file.size
        self.transactions.append(done)
        return done

    def ddl(
        self,
        query: str,
        database: str = "",
        *,
        status: bytes | None = None,
        tables: tuple[tuple[str, str | None], ...] | None = None,
        source: UUID = SERVER,
    ) -> Transaction:
        """Write a transaction of one statement."""
        self.begin(source, standalone=True)
        self.query(query, database, status, tables)
        return self.commit("")

    def _part(self, role: str, kind: int, body: bytes, tables: tuple[tuple[str, str | None], ...] | None = (),
              *, ends: bool = False, name: str = "") -> None:  # fmt: skip
        assert self._open is not None
        flags = IGNORABLE if role == "text" else 0
        part = Part(role, b"", tables, ends, name)
        self._open.parts.append(part)
        if self._inside is None:
            part.raw = self.add(kind, body, flags=flags)
        else:
            self._inside.append((part, kind, body, flags))

    def _pack(self) -> None:
        """Write the events of the payload as one event. A consumer gets the inner events with checksums, at the
        payload's position."""
        inside, self._inside = self._inside, None
        if inside is None:
            return
        raw = b"".join(
            event(kind, body, checksum=False, timestamp=self._now, log_pos=77, flags=flags)
            for _, kind, body, flags in inside
        )
        self.add(EventType.TRANSACTION_PAYLOAD, payload_body(raw, compression=self.compression))
        for part, kind, body, flags in inside:
            part.raw = event(
                kind, body, checksum=self.file.checksum, timestamp=self._now, log_pos=self.file.size, flags=flags
            )  # fmt: skip

    # -- dumps -----------------------------------------------------------------------------------------------

    def dump(
        self, *, held: Iterable[tuple[str, int]] = (), file: str = "", offset: int = 4
    ) -> Iterator[bytes]:
        """Yields the events of a dump, including artificial events: all events except executed transactions, or all
        events from a file and offset.

        `held`: (source, number) pairs of executed transactions, as COM_BINLOG_DUMP_GTID names them.
        """
        held = set(held)
        names = [f.name for f in self.files]
        first = names.index(file) if file else 0
        checksum = self.files[first].checksum
        for f in self.files[first:]:
            start = offset if f.name == file else 4
            # This event precedes the file's FORMAT_DESCRIPTION, so it has the format of the previous file.
            yield event(EventType.ROTATE, rotate_body(f.name, start), checksum=checksum, timestamp=0,
                        flags=ARTIFICIAL)  # fmt: skip
            checksum = f.checksum
            at = 4
            for n, (raw, transaction) in enumerate(f.events):
                at += f.jumps.get(n, 0)
                is_format = raw[4] == EventType.FORMAT_DESCRIPTION
                skipped = transaction is not None and (transaction.source, transaction.gno) in held
                if (
                    is_format and start > 4
                ):  # a dump from the middle of a file repeats this event, without a position
                    body = raw[19:-4]
                    yield event(15, body, timestamp=f.created)
                elif (at >= start or is_format) and not skipped:
                    yield raw
                at += len(raw)

    def stream(self, **dump: object) -> bytes:
        """Returns the packets of `dump(...)`."""
        events = self.dump(**dump)  # type: ignore[arg-type]
        return b"".join(event_packet(raw, n) for n, raw in enumerate(events))
