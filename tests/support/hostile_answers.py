"""Invalid answers that no MySQL server sends. The name of each answer describes the fault.

`ANSWERS`: invalid answers to queries. `DUMPS`: invalid answers to COM_BINLOG_DUMP (`by_file`) or COM_BINLOG_DUMP_GTID.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from dispatcher.binlog.event.types import EventType
from tests.support.event_encoder import (
    ARTIFICIAL,
    TIME,
    event,
    event_packet,
    format_description,
    rotate_body,
)
from tests.support.hostile_server import (
    EOF,
    Answer,
    Answers,
    Rows,
    Session,
    Value,
    column,
    lenenc,
    row_of,
    send_event,
)
from tests.support.rows_encoder import query_body

COM_DUMP = 0x12
FILE = "binlog.000001"
PIECE = bytes(0xFFFFFF)


def rows(given: Rows, columns: int | None = None) -> Answer:
    return lambda session, _: session.rows(given, columns)


def says(**statements: Answer) -> Answers:
    """Returns correct answers to all statements except the given ones, which get the given answers:
    `says(SHOW_GRANTS=...)`."""
    return Answers(statements={name.replace("_", " "): said for name, said in statements.items()})


def variable(name: str, value: Value) -> Answers:
    return Answers(variables={name: value})


def many_columns(session: Session, _: str) -> None:
    session.packet(lenenc(1 << 40))
    while True:
        session.packet(column("c"))


def many_results(session: Session, _: str) -> None:
    while True:
        session.packet(b"\0\0\0\x0a\0\0\0")  # an OK packet that announces more results


def large_value(session: Session, _: str) -> None:
    session.packet(lenenc(2))
    for name in ("a", "b"):
        session.packet(column(name))
    session.packet(EOF)
    session.packet(row_of(("version", b"8" * (200 << 20))))
    session.packet(EOF)


def noise(session: Session, _: object) -> None:
    session.raw(random.Random(7).randbytes(1 << 20))


def endless_rows() -> Iterator[Sequence[Value]]:
    return (("version", str(number)) for number in itertools.count())


_FILES = "SHOW_BINARY_LOGS"
ANSWERS: dict[str, Callable[[], Answers]] = {
    "a word for a number": lambda: variable("server_id", "one"),
    "a number of 5000 digits": lambda: variable("server_id", "9" * 5000),
    "digits that are not ASCII": lambda: variable("server_id", "²"),
    "a purge age that is not finite": lambda: variable("expire_logs_days", "inf"),
    "bytes that are not UTF-8": lambda: variable("version", b"8.4\xff\xfe"),
    "no version": lambda: variable("version", None),
    "an invalid GTID set": lambda: variable("gtid_executed", "not-a-uuid:1-"),
    "an invalid purged set": lambda: variable("gtid_purged", "1-2-3"),
    "a server uuid of many bytes": lambda: variable("server_uuid", "a" * 100_000),
    "no row of values": lambda: Answers(statements={"SELECT @@GLOBAL": rows([], 17)}),
    "one value of many": lambda: Answers(statements={"SELECT @@GLOBAL": rows([("8.4.3",)])}),
    "one column of two": lambda: Answers(
        statements={"SHOW GLOBAL VARIABLES": rows([("version",)])}
    ),
    "NULLs for the variables' names": lambda: Answers(
        statements={"SHOW GLOBAL VARIABLES": rows([(None, None)])}
    ),
    "no columns": lambda: says(**{_FILES: rows([()], 0)}),
    "files without sizes": lambda: says(**{_FILES: rows([(FILE,)])}),
    "NULL for a file": lambda: says(**{_FILES: rows([(None, None, None)])}),
    "a negative size": lambda: says(**{_FILES: rows([(FILE, "-1", "No")])}),
    "a size beyond 64 bits": lambda: says(**{_FILES: rows([(FILE, "9" * 30, "No")])}),
    "a file name of 5000 bytes": lambda: says(**{_FILES: rows([("b" * 5000 + ".000001", "4")])}),
    "a file number of 200 digits": lambda: says(
        **{_FILES: rows([("binlog." + "9" * 200, "4", "No")])}
    ),
    "a path for a file": lambda: says(**{_FILES: rows([("/etc/\0passwd.000001", "4", "No")])}),
    "a position that is a word": lambda: says(SHOW_BINARY_LOG_STATUS=rows([(FILE, "here")])),
    "a position without a file": lambda: says(SHOW_BINARY_LOG_STATUS=rows([(None, "4")])),
    "NULL for a grant": lambda: says(SHOW_GRANTS=rows([(None,)])),
    "rows without end": lambda: says(SHOW_GLOBAL=lambda s, _: s.rows(endless_rows())),
    "columns without end": lambda: says(SHOW_GRANTS=many_columns),
    "results without end": lambda: says(SHOW_GRANTS=many_results),
    "a value of 200 MiB": lambda: says(SHOW_GLOBAL=large_value),
    "a file of ours": lambda: says(SHOW_GRANTS=lambda s, _: s.packet(b"\xfb/etc/passwd")),
    "an empty packet": lambda: says(SHOW_GRANTS=lambda s, _: s.packet(b"")),
    "an error without a number": lambda: says(SHOW_GRANTS=lambda s, _: s.packet(b"\xff")),
    "noise": lambda: says(SHOW_GRANTS=noise),
    "noise after the login": lambda: Answers(after_login=lambda s: noise(s, "")),
}


# -- dumps ----------------------------------------------------------------------------------------------------


def head() -> list[bytes]:
    return [
        event(EventType.ROTATE, rotate_body(FILE), timestamp=0, flags=ARTIFICIAL),
        format_description(log_pos=126, timestamp=TIME + 1),
    ]


def dumps(send: Callable[[Session], None], *, by_file: bool) -> Answers:
    """Returns answers in which `send` answers one kind of dump; for COM_BINLOG_DUMP_GTID, the header events of a file
    precede. A dump of the other kind gets a correct answer."""
    answers = Answers()

    def dump(session: Session, request: bytes) -> None:
        if (request[0] == COM_DUMP) != by_file:
            answers.dump = None
            try:
                answers.send_dump(session, request)
            finally:
                answers.dump = dump
            return
        for raw in [] if by_file else head():
            send_event(session, raw)
        send(session)

    answers.dump = dump
    return answers


def whole_packets(first: bytes) -> Callable[[Session], None]:
    """Returns a function that sends packets of 16 MiB without end. The first packet begins with the bytes `first`."""

    def send(session: Session) -> None:
        for number in itertools.count():
            header = b"\xff\xff\xff" + bytes((session.sequence & 255,))
            session.sequence = (session.sequence + 1) & 255
            session.raw(header + (first + PIECE[len(first) :] if not number else PIECE))

    return send


def header_of(size: int) -> bytes:
    whole = event(EventType.WRITE_ROWS, b"")
    return b"\0" + whole[:9] + size.to_bytes(4, "little") + whole[13:19]


def again(raw: bytes) -> Callable[[Session], None]:
    """Returns a function that sends copies of one event without end, many copies at a time."""

    def send(session: Session) -> None:
        packets = [event_packet(raw, (session.sequence + n) & 255) for n in range(256)]
        many = b"".join(packets) * 16
        while True:
            session.raw(many)

    return send


def rotates(size: int) -> bytes:
    return event(
        EventType.ROTATE, rotate_body("x" * size + ".000001"), timestamp=0, flags=ARTIFICIAL
    )


DUMPS: dict[str, Callable[[Session], None]] = {
    "an event of 4 GiB": whole_packets(header_of(0xFFFF_FFFF)),
    "an event of 2 GiB": whole_packets(header_of(1 << 31)),
    "an event that goes on behind its end": whole_packets(header_of(20 << 20)),
    "an error without end": whole_packets(b"\xff\xd4\x04#HY000"),
    "an event of 3 bytes": lambda session: session.packet(b"\0abc"),
    "an event whose size is not its packet's": lambda session: session.packet(
        header_of(100) + bytes(200)
    ),
    "a file name of 256 bytes": lambda session: send_event(session, rotates(256)),
    "a file name that is not UTF-8": lambda session: send_event(
        session, event(EventType.ROTATE, bytes(8) + b"\xff\xfe.000001", flags=ARTIFICIAL)
    ),
    "a file number of 200 digits": lambda session: send_event(
        session, event(EventType.ROTATE, rotate_body("b." + "9" * 200), flags=ARTIFICIAL)
    ),
    "noise": lambda session: noise(session, None),
}
# Streams that never end. They must not disturb the other consumers.
FLOODS: dict[str, Callable[[Session], None]] = {
    "files": again(rotates(1)),
    "formats": again(format_description()),
    "heartbeats": again(event(EventType.HEARTBEAT, FILE.encode(), timestamp=0)),
    "statements": again(event(EventType.QUERY, query_body("CREATE TABLE a.t (n INT)", "a"))),
    "events that are ignored": again(event(EventType.IGNORABLE, b"", flags=0x80)),
}
