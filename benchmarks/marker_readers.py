"""Readers that follow a server's log and record when each marker arrives (see `benchmarks.markers`).

`python -m benchmarks.marker_readers KIND HOST PORT PASSWORD FILE NAME [NAME ...]`: one reader for each name. KIND
`http`: readers of the daemon's consumers, which acknowledge each range with the next call. KIND `dump`: clients of
MySQL's protocol, each with a replication connection to a server or to the daemon's front, from the beginning of FILE. A
client does no more than find the events in the bytes.

All readers of a process share one thread. When all of them are connected, the program prints "ready". Then it reads a
marker from standard input; when all readers have this marker, it prints as JSON a list of (marker, commit, arrival) of
all readers. Both times are microseconds since 1970; that of the commit is in the transaction's GTID event.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.cycle import Connection, parse_read
from benchmarks.drain import dump_socket
from benchmarks.markers import markers_in
from benchmarks.processes import CommandFailed
from dispatcher.binlog.event.gtid import parse_gtid_event
from dispatcher.binlog.event.header import HEADER_SIZE
from dispatcher.binlog.event.types import EventType
from tests.daemon.harness import events

HTTP, DUMP = "http", "dump"
_TYPE_AT = 4  # of an event
_WAIT_MS = 5000
_RECEIVE_BYTES = 1 << 18
_ROWS = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS)
_CHECKSUM = 4
_TIMEOUT_S = 120.0


class Seen(NamedTuple):
    """A marker that has arrived at a reader. Times in microseconds since 1970."""

    marker: int
    commit_us: int
    arrived_us: int

    @property
    def ms(self) -> float:
        return (self.arrived_us - self.commit_us) / 1000


class _HttpReader:
    def __init__(self, port: int, name: str) -> None:
        self._connection = Connection(port, name)
        opened = json.loads(self._connection.call("session", {"after": None}))
        self._session, self._after = opened["session"], opened["position"]
        self._ask()

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> Iterator[tuple[int, bytes]]:
        self._after, data = parse_read(self._connection.answer("read"))
        self._ask()
        return events(data) if data else iter(())

    def _ask(self) -> None:
        body = {"session": self._session, "after": self._after, "wait_ms": _WAIT_MS}
        self._connection.send("read", body)


class _DumpReader:
    def __init__(
        self, host: str, port: int, user: str, password: str, file: str, number: int
    ) -> None:
        self._socket = dump_socket(host, port, user, password, file, number, until_end=False)
        self._rest = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Iterator[tuple[int, bytes]]:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("a dump has ended")
        self._rest += data
        return self._events()

    def _events(self) -> Iterator[tuple[int, bytes]]:
        """Yields the complete events: each is a packet of a header of four bytes, a zero, and the event."""
        rest, at = self._rest, 0
        while at + 4 <= len(rest):
            end = at + 4 + (rest[at] | rest[at + 1] << 8 | rest[at + 2] << 16)
            if end > len(rest):
                break
            if rest[at + 4]:
                raise ConnectionError(f"a dump has ended: {bytes(rest[at + 4 : end])!r}")
            yield rest[at + 5 + _TYPE_AT], bytes(rest[at + 5 : end])
            at = end
        del rest[:at]


class _Follower:
    """A reader and what it has seen. `newest`: its newest marker."""

    def __init__(self, reader: _HttpReader | _DumpReader) -> None:
        self.reader = reader
        self.seen: list[Seen] = []
        self.newest = 0
        self._gtid = b""

    def receive(self) -> None:
        found = self.reader.receive()
        now_us = time.time_ns() // 1000
        for kind, event in found:
            if kind == EventType.GTID:
                self._gtid = event
            elif kind in _ROWS:
                # The before images of an update contain the marker of the insertion.
                for marker in markers_in(event):
                    if marker > self.newest:
                        self.newest = marker
                        self.seen.append(Seen(marker, self._commit_us(), now_us))

    def _commit_us(self) -> int:
        gtid = parse_gtid_event(EventType.GTID, self._gtid[HEADER_SIZE:-_CHECKSUM])
        assert gtid.immediate_commit_us is not None
        return gtid.immediate_commit_us


def follow(readers: Sequence[_HttpReader | _DumpReader]) -> list[Seen]:
    """Read until all readers have the marker that standard input names."""
    followers = [_Follower(reader) for reader in readers]
    last, deadline = None, float("inf")
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for follower in followers:
            selector.register(follower.reader, selectors.EVENT_READ, follower)
        print("ready", flush=True)
        while last is None or any(follower.newest < last for follower in followers):
            for key, _ in selector.select(1.0):
                if key.data is not None:
                    key.data.receive()
                else:
                    last, deadline = int(sys.stdin.readline()), time.monotonic() + _TIMEOUT_S
                    selector.unregister(sys.stdin)
            if time.monotonic() > deadline:
                raise SystemExit("not all readers got all markers in time")
    return [seen for follower in followers for seen in follower.seen]


class MarkerReaders:
    """Readers in a process of their own; see `following`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise CommandFailed(f"the readers ended with {process.wait()}")

    def until(self, marker: int) -> list[Seen]:
        """Wait until all readers have this marker, and return what all of them have seen."""
        printed, _ = self._process.communicate(f"{marker}\n")
        if self._process.returncode != 0:
            raise CommandFailed(f"the readers ended with {self._process.returncode}")
        return [Seen(*row) for row in json.loads(printed)]


@contextmanager
def following(
    kind: str, host: str, port: int, password: str, file: str, names: Sequence[str]
) -> Iterator[MarkerReaders]:
    """Start readers. When the block begins, all of them are connected. `file`: for readers of the kind `dump`."""
    command = [sys.executable, "-m", "benchmarks.marker_readers", kind, host, str(port)]
    command += [password, file, *names]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield MarkerReaders(process)
        finally:
            process.kill()  # does nothing if it has ended


def main(kind: str, host: str, port: str, password: str, file: str, *names: str) -> None:
    readers: list[Any] = [
        _HttpReader(int(port), name)
        if kind == HTTP
        else _DumpReader(host, int(port), name, password, file, number)
        for number, name in enumerate(names)
    ]
    print(json.dumps(follow(readers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
