"""Makes delivered bytes from a server's own binlog: the file, with a RECORD before each transaction."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from dispatcher.binlog.event.header import parse_format_description
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from tests.servers import Server

_GTIDS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID)


def fresh_log(server: Server) -> str:
    """Let the server begin a new log file. Returns its name."""
    server.execute("FLUSH BINARY LOGS")
    return server.binlog_position()[0]


def read_log(server: Server, file: str) -> bytes:
    """Returns the file as the server sends it, up to its present end."""
    with TemporaryDirectory() as folder:
        server.mysqlbinlog("--raw", f"--result-file={folder}/", file, remote=True)
        return (Path(folder) / file).read_bytes()


def with_records(log: bytes, file: str, *, epoch: int = 1) -> bytes:
    """Returns `log` with a RECORD before each GTID event. Each transaction must have a GTID event."""
    out, at, seq = bytearray(log[:4]), 4, 0
    checksum = False
    while at < len(log):
        size, kind = int.from_bytes(log[at + 9 : at + 13], "little"), log[at + 4]
        if kind == EventType.FORMAT_DESCRIPTION:
            checksum = parse_format_description(log[at : at + size]).checksum
        if kind in _GTIDS:
            seq += 1
            seconds = int.from_bytes(log[at : at + 4], "little")
            record = Record(epoch, seq, file, at, seconds * 1_000_000, 0)
            out += encode_record(record, checksum=checksum)
        out += log[at : at + size]
        at += size
    return bytes(out)


def delivered_log(server: Server, file: str) -> bytes:
    return with_records(read_log(server, file), file)
