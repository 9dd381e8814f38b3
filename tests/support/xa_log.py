"""Logs with XA transactions, and what a consumer should get from these logs: the rows at the position of XA COMMIT, in
the form of any other transaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from dispatcher.binlog.event.gtid import Xid
from dispatcher.binlog.event.types import EventType
from tests.support import control_encoder as c
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    Part,
    Transaction,
    event,
    status_variables,
)
from tests.support.random_log import (
    OTHER_SERVER,
    random_crash,
    random_statement,
    random_transaction,
)
from tests.support.rows_encoder import query_body

Raw = tuple[int, bytes, bytes]  # format id, gtrid, bqual
_PREPARED_XA, _COMPLETED_XA, _STANDALONE, _TRANSACTIONAL = 0x40, 0x80, 0x01, 0x04
_PAYLOADS = ("mysql", "tagged", "anonymous")


@dataclass(slots=True)
class _Kept:
    part: Part
    kind: int
    body: bytes
    flags: int
    timestamp: int


class XaLog(LogWriter):
    """Writes logs with XA transactions. `waiting`: the transactions that are prepared and not ended, by xid."""

    def __init__(self, **options: object) -> None:
        self.waiting: dict[Raw, list[_Kept]] = {}
        self._keeping: list[_Kept] | None = None
        super().__init__(**options)  # type: ignore[arg-type]

    def prepare(self, xid: Raw, fill: Callable[[], None], source: UUID = SERVER) -> Transaction:
        """Write a transaction up to XA PREPARE. `fill` writes its rows."""
        kept = self._group(xid, fill, source, one_phase=False)
        self.waiting[xid] = kept
        return self.commit("")

    def one_phase(self, xid: Raw, fill: Callable[[], None], source: UUID = SERVER) -> Transaction:
        """Write a transaction that is committed in one phase."""
        kept = self._group(xid, fill, source, one_phase=True)
        ended = self._now
        done = self.commit("")
        self._happens(done, kept, ended)
        return done

    def finish(self, xid: Raw, verb: str = "COMMIT", source: UUID = SERVER) -> Transaction:
        """Write XA COMMIT or XA ROLLBACK of a prepared or an unknown transaction."""
        self._begin(source, xid, _COMPLETED_XA | _STANDALONE | _TRANSACTIONAL)
        kept = self.waiting.pop(xid, None)
        self._frame(EventType.QUERY, query_body(f"XA {verb} {Xid(*xid)}", "", status_variables()))
        ended = self._now
        done = self.commit("")
        if verb == "COMMIT" and kept is not None:
            self._happens(done, kept, ended)
        return done

    def _group(
        self, xid: Raw, fill: Callable[[], None], source: UUID, *, one_phase: bool
    ) -> list[_Kept]:
        self._begin(source, xid, _PREPARED_XA | _TRANSACTIONAL)
        kept: list[_Kept] = []
        if self.gtid != "mariadb":
            if self.compress and self.gtid in _PAYLOADS:
                self._inside = []
            text, status = f"XA START {Xid(*xid)}", status_variables()
            self._frame(EventType.QUERY, query_body(text, "", status))
            begin = Part("frame", b"")
            kept.append(
                _Kept(begin, EventType.QUERY, query_body("BEGIN", "", status), 0, self._now)
            )
        self._keeping = kept
        fill()
        self._keeping = None
        self._frame(EventType.QUERY, query_body(f"XA END {Xid(*xid)}", "", status_variables()))
        self._frame(EventType.XA_PREPARE, c.xa_prepare_body(xid, one_phase=one_phase))
        return kept

    def _begin(self, source: UUID, xid: Raw, flags: int) -> None:
        if self.gtid != "mariadb":
            self.begin(source, standalone=True)
            return
        open_ = self.begin(source, standalone=True)
        # Replace the last event by an event with the xid.
        raw, _ = self.file.events.pop()
        self.file.size -= len(raw)
        body = c.mariadb_gtid_more_body(open_.gno, 0, flags, xid=xid)
        part = open_.parts[0]
        raw = self.add(EventType.MARIADB_GTID, body)
        plain = body[:12] + bytes((_TRANSACTIONAL,)) + bytes(len(body) - 13)
        log_pos = int.from_bytes(raw[13:17], "little")
        part.raw = event(
            EventType.MARIADB_GTID, plain, checksum=self.file.checksum, timestamp=self._now, log_pos=log_pos
        )  # fmt: skip

    def _frame(self, kind: int, body: bytes) -> None:
        """Write an event that no consumer gets."""
        super()._part("frame", kind, body)
        assert self._open is not None
        self._open.parts.pop()

    def _part(self, role: str, kind: int, body: bytes, tables: tuple[tuple[str, str | None], ...] | None = (),
              *, ends: bool = False, name: str = "") -> None:  # fmt: skip
        super()._part(role, kind, body, tables, ends=ends, name=name)
        if self._keeping is not None:
            assert self._open is not None
            part = self._open.parts.pop()
            flags = 0x80 if role == "text" else 0
            self._keeping.append(_Kept(part, kind, body, flags, self._now))

    def _happens(self, done: Transaction, kept: list[_Kept], ended: int) -> None:
        """Record that a consumer gets the rows as part of transaction `done`, at the position of `done`. `ended`: the
        time of the last event of `done`."""
        xid = _Kept(Part("frame", b""), EventType.XID, bytes(8), 0, ended)
        for one in (*kept, xid):
            raw = event(
                one.kind, one.body, checksum=done.checksum, timestamp=one.timestamp, log_pos=done.end & 0xFFFFFFFF,
                flags=one.flags,
            )  # fmt: skip
            part = one.part
            done.parts.append(Part(part.role, raw, part.tables, part.ends, part.name))


XIDS: tuple[Raw, ...] = (
    (1, b"a", b""), (7, b"\0\xff'\\;", b"b"), (2**31 - 1, bytes(range(64)), bytes(range(64, 128))), (0, b"", b""),
)  # fmt: skip


def random_xa_log(
    rng: random.Random,
    *,
    gtid: str = "mysql",
    transactions: int = 25,
    size_max: int = 200,
    checksum: bool | None = None,
    files: bool = True,
) -> XaLog:
    """Returns a random log of XA transactions and other transactions, which uses few xids many times. The parameters
    are the same as in `random_log`."""
    log = XaLog(
        gtid=gtid, checksum=rng.random() < 0.7 if checksum is None else checksum, first_file=8
    )

    def fill() -> None:
        names: list[str] = []
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            what = rng.random()
            if what < 0.2:
                names = [other for other in names if other != "a"] + ["a"]
                log.savepoint("a")
            elif what < 0.4 and names:
                log.undo("a")
            log.statement(random_statement(rng, size_max))

    while len(log.transactions) < transactions:
        source = rng.choice((SERVER, SERVER, OTHER_SERVER))
        log.compress, log.compression = rng.random() < 0.3, rng.choice((0, 0, 255))
        what = rng.random()
        xid = rng.choice(XIDS)
        if what < 0.35 and xid not in log.waiting:
            log.prepare(xid, fill, source)
        elif what < 0.6 and log.waiting:
            xid = rng.choice(list(log.waiting))
            log.finish(xid, rng.choice(("COMMIT", "COMMIT", "ROLLBACK")), source)
        elif what < 0.7:
            log.one_phase(xid, fill, source)
        elif what < 0.75 and files:
            log.rotate(checksum=rng.random() < 0.6 if checksum is None else checksum)
        elif what < 0.78 and files:
            random_crash(rng, log, source, size_max)
        else:
            random_transaction(rng, log, source, size_max)
    return log
