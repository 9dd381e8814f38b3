"""GTID sets as canonical, immutable values. Two sets are equal if and only if they contain the same transactions.

A set maps a source (`uuid`, or `uuid:tag` since MySQL 8.3) to sorted, disjoint, non-adjacent half-open intervals. The
first interval may start above 1, for example on a restored server.

Source: MySQL manual, "GTID Format and Storage"; MariaDB knowledge base, "Global Transaction ID".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from dispatcher.model.errors import ErrorKind, UserError

Interval = tuple[int, int]  # half-open: [start, end)

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\Z")
TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_INTERVAL = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?\Z")
_MARIADB = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})\Z")
GNO_MAX = 2**63 - 1


def _normalise(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)


def _intersect(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> Iterator[Interval]:
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            yield start, end
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1


def _subtract(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> Iterator[Interval]:
    """Yield the parts of `a` that are not in `b`. The time is linear in the lengths of `a` and `b`, because the GTID
    set of a fragmented log has tens of thousands of intervals."""
    passed = 0
    for first, end in a:
        start = first
        while passed < len(b) and b[passed][1] <= start:
            passed += 1
        at = passed
        while at < len(b) and b[at][0] < end:
            if start < b[at][0]:
                yield start, b[at][0]
            start = b[at][1]
            at += 1
        if start < end:
            yield start, end


class GtidSet:
    """An immutable set of MySQL global transaction ids.

    >>> GtidSet.parse("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:7")
    GtidSet('3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7')
    """

    __slots__ = ("_map", "_text")
    _map: dict[str, tuple[Interval, ...]]
    _text: str | None

    def __init__(self, sources: Mapping[str, Iterable[Interval]] | None = None) -> None:
        """`sources`: source name (`uuid` or `uuid:tag`, lower case, dashed) to half-open intervals."""
        self._text = None
        self._map = {}
        if sources:
            entries = ((name, _normalise(intervals)) for name, intervals in sources.items())
            self._map = dict(sorted((name, intervals) for name, intervals in entries if intervals))

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse the server's text form. Raises a `UserError` that names the invalid part."""
        sources: dict[str, list[Interval]] = {}
        for part in text.split(","):
            if not (part := part.strip()):
                continue
            uuid, *items = (item.strip() for item in part.split(":"))
            if not _UUID.match(uuid):
                raise _bad(text, f"{uuid!r} is not a UUID")
            uuid = source = str(UUID(uuid))
            if not items:
                raise _bad(text, f"no interval follows {uuid!r}")
            for item in items:
                if match := _INTERVAL.match(item):
                    start, end = int(match[1]), int(match[2] or match[1])
                    if start < 1 or end > GNO_MAX:
                        raise _bad(text, f"interval {item!r} lies outside 1..2^63-1")
                    # As in MySQL, an interval whose end is before its start is empty.
                    sources.setdefault(source, []).append((start, end + 1))
                elif TAG.match(item.lower()):
                    source = f"{uuid}:{item.lower()}"
                else:
                    raise _bad(text, f"{item!r} is neither an interval nor a tag")
        return cls(sources)

    # -- reading ---------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._map)

    def __len__(self) -> int:
        """The number of transactions in the set."""
        return sum(end - start for intervals in self._map.values() for start, end in intervals)

    def __eq__(self, other: object) -> bool:
        return self._map == other._map if isinstance(other, GtidSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        if self._text is None:
            parts: dict[str, list[str]] = {}
            for source, intervals in self._map.items():
                uuid, _, tag = source.partition(":")
                items = parts.setdefault(uuid, [])
                if tag:
                    items.append(tag)
                items += (f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in intervals)
            self._text = ",".join(":".join((uuid, *items)) for uuid, items in parts.items())
        return self._text

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"

    def sources(self) -> Mapping[str, tuple[Interval, ...]]:
        """The sources with their half-open intervals, both sorted."""
        return self._map

    def has(self, source: str, gno: int) -> bool:
        """True if this transaction is in the set."""
        intervals = self._map.get(source)
        if not intervals:
            return False
        at = bisect_right(intervals, (gno, GNO_MAX + 1)) - 1
        return at >= 0 and intervals[at][0] <= gno < intervals[at][1]

    def covers(self, source: str, start: int, end: int) -> bool | None:
        """True if the set contains all transactions of [start, end), False if it contains none of them, None if it
        contains only some."""
        shared = _intersect(self._map.get(source, ()), ((start, end),))
        count = sum(b - a for a, b in shared)
        return True if count == end - start else False if count == 0 else None

    def contains(self, other: ExecutedSet) -> bool:
        assert isinstance(other, GtidSet)
        return not other.subtract(self)

    def missing(self, other: ExecutedSet) -> int:
        """The number of transactions of this set that `other` does not contain."""
        return len(self.subtract(other))

    # -- new sets --------------------------------------------------------------------------------------------

    def add(self, source: str, start: int, end: int | None = None) -> GtidSet:
        """Return this set with the transactions [start, end) of `source` added. If `end` is None, only the transaction
        `start` is added."""
        end = start + 1 if end is None else end
        old = self._map.get(source, ())
        # The daemon mostly adds the next transaction. In that case extend the last interval, without a sort.
        if old and old[-1][1] == start:
            return self._of({**self._map, source: (*old[:-1], (old[-1][0], end))})
        return GtidSet({**self._map, source: (*old, (start, end))})

    @classmethod
    def _of(cls, canonical: dict[str, tuple[Interval, ...]]) -> GtidSet:
        new = cls()
        new._map = canonical
        return new

    def union(self, other: ExecutedSet) -> GtidSet:
        assert isinstance(other, GtidSet)
        merged: dict[str, Iterable[Interval]] = dict(self._map)
        for source, intervals in other.sources().items():
            merged[source] = (*self._map.get(source, ()), *intervals)
        return GtidSet(merged)

    def intersection(self, other: ExecutedSet) -> GtidSet:
        assert isinstance(other, GtidSet)
        return GtidSet({s: _intersect(i, other.sources().get(s, ())) for s, i in self._map.items()})

    def subtract(self, other: ExecutedSet) -> GtidSet:
        assert isinstance(other, GtidSet)
        return GtidSet({s: _subtract(i, other.sources().get(s, ())) for s, i in self._map.items()})

    # -- binary ----------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Encode as in COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS: counts and half-open intervals, little-endian.

        A set with tags has the form of MySQL 8.3. Bytes 1 to 6 contain the count, and bytes 0 and 7 are 1. Each UUID is
        followed by twice the tag's size, as the serialization library encodes it, and by the tag, which may be empty.
        Source: sql/rpl_gtid_set.cc, Gtid_set::encode; libs/mysql/gtid/tag.cpp.
        """
        tagged = any(":" in source for source in self._map)
        count = len(self._map)
        out = [(1 << 56 | count << 8 | 1 if tagged else count).to_bytes(8, "little")]
        for source, intervals in self._map.items():
            uuid, _, tag = source.partition(":")
            out.append(UUID(uuid).bytes)
            if tagged:
                out += (bytes((2 * len(tag),)), tag.encode())
            out.append(len(intervals).to_bytes(8, "little"))
            out += (n.to_bytes(8, "little") for interval in intervals for n in interval)
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes) -> GtidSet:
        """Decode both forms of `encode`. Raises `UserError` for an invalid form, for missing bytes, and for bytes
        after the set."""
        sources: dict[str, list[Interval]] = {}
        try:
            at, count = 8, _u64(data, 0)
            tagged = data[7] == 1
            if tagged:
                if data[0] != 1:
                    raise _bad("", f"binary form of the unknown kind {data[0]}")
                count = count >> 8 & (1 << 48) - 1
            for _ in range(count):
                source, at = _source(data, at, tagged=tagged)
                n, at = _u64(data, at), at + 8
                if n > (len(data) - at) // 16:
                    raise IndexError
                for _ in range(n):
                    start, end = _u64(data, at), _u64(data, at + 8)
                    if not 1 <= start < end <= GNO_MAX + 1:
                        raise _bad("", f"binary form holds the interval [{start}, {end})")
                    sources.setdefault(source, []).append((start, end))
                    at += 16
        except IndexError:
            raise _bad("", f"its binary form of {len(data)} bytes ends too early") from None
        if at != len(data):
            raise _bad("", f"binary form has {len(data) - at} bytes too many")
        return cls(sources)


class MariadbGtids:
    """MariaDB's replication position: the newest `domain-server-sequence` of each domain. Immutable.

    >>> str(MariadbGtids.parse("1-2-5,0-1-100").add("0-1", 101))
    '0-1-101,1-2-5'
    """

    __slots__ = ("_domains",)

    def __init__(self, domains: Mapping[int, tuple[int, int]] | None = None) -> None:
        """`domains`: domain id to (server id, sequence number)."""
        self._domains = dict(sorted((domains or {}).items()))

    @classmethod
    def parse(cls, text: str) -> MariadbGtids:
        domains: dict[int, tuple[int, int]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            match = _MARIADB.match(part)
            if not match:
                raise UserError(
                    ErrorKind.SETTINGS,
                    f"not a MariaDB GTID: {part[:40]!r}",
                    remedy="write it like 0-1-100,1-2-5",
                )
            domain = int(match[1])
            if domain in domains:
                raise UserError(
                    ErrorKind.SETTINGS,
                    f"two MariaDB GTIDs of domain {domain}: {text[:80]!r}",
                    remedy="name the newest GTID of each domain",
                )
            domains[domain] = (int(match[2]), int(match[3]))
        return cls(domains)

    def domains(self) -> dict[int, tuple[int, int]]:
        """A new dict that maps each domain to (server id, sequence number)."""
        return dict(self._domains)

    def number(self, domain: int) -> int:
        """The sequence number of a domain's newest transaction; 0 if there is none."""
        return self._domains.get(domain, (0, 0))[1]

    def contains(self, other: MariadbGtids) -> bool:
        """True if no domain of `other` is ahead of this position. Server ids are not compared, because with
        gtid_strict_mode the sequence numbers of a domain ascend across all servers."""
        return all(seq <= self.number(domain) for domain, (_, seq) in other._domains.items())

    def agrees(self, other: MariadbGtids) -> bool:
        """True if, for each domain of `other`, both positions have the same newest GTID."""
        return all(self._domains.get(domain) == newest for domain, newest in other._domains.items())

    def add(self, source: str, start: int, end: int | None = None) -> MariadbGtids:
        """Return this position with the transactions [start, end) of `source` ("domain-server") added. If `end` is
        None, only the transaction `start` is added. The last added number becomes the newest number of the domain."""
        domain, _, server = source.partition("-")
        return type(self)(
            {**self._domains, int(domain): (int(server), start if end is None else end - 1)}
        )

    def __eq__(self, other: object) -> bool:
        return (
            self._domains == other._domains if isinstance(other, MariadbGtids) else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{seq}" for domain, (server, seq) in self._domains.items()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class DomainGtids(MariadbGtids):
    """MariaDB's position as a set: in each domain, all transactions up to the newest. This is what a position means on
    another server, provided that the sequence numbers of each domain ascend in the servers' logs.

    >>> DomainGtids.parse("0-1-100,1-2-5").missing(DomainGtids.parse("0-1-98"))
    7
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> DomainGtids:
        return cls.of(MariadbGtids.parse(text))

    @classmethod
    def of(cls, position: MariadbGtids) -> DomainGtids:
        return cls(position.domains())

    def __bool__(self) -> bool:
        return bool(self._domains)

    def __len__(self) -> int:
        """The sum of the sequence numbers, which grows with every transaction."""
        return sum(number for _, number in self._domains.values())

    def has(self, source: str, gno: int) -> bool:
        """True if this transaction of `source` ("domain-server") is in the set."""
        return gno <= self.number(domain_of(source))

    def covers(self, source: str, start: int, end: int) -> bool | None:
        """See `GtidSet.covers`."""
        number = self.number(domain_of(source))
        return True if end - 1 <= number else False if start > number else None

    def contains(self, other: ExecutedSet | MariadbGtids) -> bool:
        assert isinstance(other, MariadbGtids)
        return super().contains(other)

    def missing(self, other: ExecutedSet) -> int:
        """See `GtidSet.missing`. Unused sequence numbers count as transactions."""
        assert isinstance(other, DomainGtids)
        return sum(max(0, n - other.number(domain)) for domain, (_, n) in self._domains.items())

    def add(self, source: str, start: int, end: int | None = None) -> DomainGtids:
        """As `MariadbGtids.add`, but transactions that are in the set already change nothing."""
        if self.has(source, start if end is None else end - 1):
            return self
        added = super().add(source, start, end)
        assert isinstance(added, DomainGtids)
        return added

    def union(self, other: ExecutedSet) -> DomainGtids:
        assert isinstance(other, DomainGtids)
        return DomainGtids({**self._domains, **other.subtract(self).domains()})

    def intersection(self, other: ExecutedSet) -> DomainGtids:
        assert isinstance(other, DomainGtids)
        theirs = other.domains()
        return DomainGtids(
            {
                domain: newest if newest[1] <= other.number(domain) else theirs[domain]
                for domain, newest in self._domains.items()
                if domain in theirs
            }
        )

    def subtract(self, other: ExecutedSet) -> DomainGtids:
        """Returns the newest GTIDs of the domains in which this set contains more than `other`."""
        assert isinstance(other, DomainGtids)
        newest = self._domains.items()
        return DomainGtids(
            {domain: gtid for domain, gtid in newest if gtid[1] > other.number(domain)}
        )


ExecutedSet = GtidSet | DomainGtids
"""A set of executed transactions, which means the same on all servers that replicate from each other."""


def domain_of(source: str) -> int:
    """Returns the domain of a source of MariaDB ("domain-server")."""
    return int(source.partition("-")[0])


def _source(data: bytes, at: int, *, tagged: bool) -> tuple[str, int]:
    """Return the source at offset `at` of the binary form, and the offset after it."""
    if at + 16 + tagged > len(data):
        raise IndexError(at)
    uuid, at = str(UUID(bytes=data[at : at + 16])), at + 16
    if not tagged:
        return uuid, at
    size, at = data[at], at + 1
    tag = data[at : at + size // 2]
    if size & 1 or (tag and not TAG.match(tag.decode("latin-1"))) or len(tag) != size // 2:
        raise (
            IndexError(at)
            if len(tag) < size // 2
            else _bad("", f"binary form holds the tag {tag!r}")
        )
    return (f"{uuid}:{tag.decode()}" if tag else uuid), at + len(tag)


def _u64(data: bytes, at: int) -> int:
    if at + 8 > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + 8], "little")


def _bad(text: str, why: str) -> UserError:
    what = f"not a GTID set: {text[:80]!r}: {why}" if text else f"not a GTID set: {why}"
    return UserError(
        ErrorKind.SETTINGS,
        what,
        remedy="write it like 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,...",
    )
