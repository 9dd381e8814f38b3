"""Records whether a mirrored table is known to equal its server's table, and decides which table is compared next.
Pure.

A *proof* compares a table with its server's table range by range of its key, in rounds. A round compares all ranges
once, in the order of the key. If a whole round finds no difference, the table is proved as of the time at which the
round began: each row was equal at that time or later. A *followed change* of a table is a statement, a copy or a
person's request that gave the table's record another `from_lsn` (number of an entry of the log).

The next range belongs to a table that needs a round. A table goes first if none of its ranges was compared since its
last followed change, or since a crash. Otherwise the table is chosen whose last comparison is the longest time ago. So
a large table does not delay small ones. A followed change does not restart a round: otherwise a table that changes
often would never be compared to its end. Instead, another round follows at once.

A difference that two readings show is corrected if the table's policy or a person's request wants this (`remedy_for`):
the mirror rewrites the rows of the range that differ, and compares the range again. It copies the whole table if the
columns differ, if more rows differ than can be rewritten by key, or if more than a third of the table's ranges differ.
If a correction did not help, it is not repeated; the difference is then only reported.

Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from spark_sink.mirror.rules.states import Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.policies import OnDifference
from spark_sink.source.table_rows.chunks import Bound, Chunk

NO_TABLE = "the server has no such table"  # `columns` of a difference in this case
REPAIRS_MAX = 2  # how often a range is repaired in succession; docs/proof.md has this number, too
_FEW_RANGES = 3  # with fewer ranges, it does not matter how many of them differ


class Remedy(StrEnum):
    """What the mirror does about a difference that two readings have shown."""

    REPORT = "report"
    REPAIR = "repair"
    COPY = "copy"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that two readings have found. `at`: the time of the second reading; `keys`: of how many keys the
    rows differ, 0 if the columns differ; `columns`: how the columns differ; `evidence`: path of the file with the
    rows."""

    at: float
    keys: int
    columns: str = ""
    evidence: str = ""

    def __str__(self) -> str:
        if self.columns:
            return self.columns
        return (
            f"{self.keys} row{'' if self.keys == 1 else 's'} differ{'s' if self.keys == 1 else ''}"
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of one table.

    `begun`, `since`: the beginning of the newest round, and the record's `from_lsn` at that time; `running`: True until
    the round has ended; `key`: the key's columns as text; `cursor` is a value of this key; `cursor`: the key up to
    which the round has compared, None at its beginning; `rows`: number of rows that the round has compared; `found`:
    number of differences that the round has found; `checked`: the record's `from_lsn` at the last comparison of a
    range; `proved`, `proved_rows`: when the last round without a difference began, None if there was none, and how many
    rows it has compared; `last`: the time of the last comparison of a range; `difference`: the newest difference, None
    after a whole round without one; `skipped`: why the table cannot be proved; `doubted`: True if the next round has to
    begin at once, because a job ended between a commit of the table and the write of its record, or because a person
    has requested a repair; `asked`: True if a person has requested a repair, until the round has ended; `ranges`,
    `differing`: how many ranges the round has compared, and how many of them differed; `repaired`: how many keys were
    rewritten since the table exists; `copied`: True if the table was copied because it differed, False after a whole
    round without a difference.
    """

    table_id: str
    consumer: str
    begun: float = 0.0
    since: int = -1
    running: bool = False
    key: str = ""
    cursor: Bound | None = None
    rows: int = 0
    found: int = 0
    checked: int = -1
    proved: float | None = None
    proved_rows: int = 0
    last: float = 0.0
    difference: Difference | None = None
    skipped: str = ""
    doubted: bool = False
    asked: bool = False
    ranges: int = 0
    differing: int = 0
    repaired: int = 0
    copied: bool = False

    def needs_range(self, record: TableRecord, at: float, every_s: float) -> bool:
        """True if the next range of the table has to be compared now."""
        return (
            self.running
            or self.doubted
            or self.since != record.from_lsn
            or at >= self.begun + every_s
        )

    def in_round(self, record: TableRecord, at: float) -> Proof:
        """Returns the proof in a running round: in the present round if it has compared a range, otherwise in a new
        round."""
        if self.running and self.cursor is not None and not self.doubted:
            return self
        return replace(
            self,
            begun=at,
            since=record.from_lsn,
            running=True,
            cursor=None,
            rows=0,
            found=0,
            doubted=False,
            ranges=0,
            differing=0,
        )

    def after_range(
        self, record: TableRecord, key: str, upper: Bound | None, rows: int, at: float
    ) -> Proof:
        """Returns the proof after the range up to `upper` was compared. Without `upper`, the round ends."""
        after = replace(
            self,
            key=key,
            cursor=upper,
            rows=self.rows + rows,
            checked=record.from_lsn,
            last=at,
            running=upper is not None,
            skipped="",
            ranges=self.ranges + 1,
        )
        if after.running:
            return after
        after = replace(after, asked=False)
        if after.found:
            return after
        return replace(
            after, proved=self.begun, proved_rows=after.rows, difference=None, copied=False
        )

    def showing(self, difference: Difference) -> Proof:
        """Returns the proof after a difference was found in the range that is compared now."""
        return replace(self, difference=replace(difference, keys=self.found + difference.keys))

    def counting(self) -> Proof:
        """Returns the proof that counts the difference of the range. Called if the difference is not corrected now."""
        assert self.difference is not None
        return replace(self, found=self.difference.keys or 1, differing=self.differing + 1)

    def after_repair(self) -> Proof:
        """Returns the proof after the range that is compared now was repaired, and is equal."""
        after = replace(self, differing=self.differing + 1)
        shown = self.difference
        is_of_range = shown is not None and shown.at >= self.begun and not self.found
        return replace(after, difference=None) if is_of_range else after

    def asked_for_repair(self) -> Proof:
        """Returns the proof after a person has asked for a repair of the table."""
        return replace(self, asked=True, doubted=True)

    def leaving_round(self) -> Proof:
        """Returns the proof after a round that ended early, because the table is being copied or is stopped. Another
        round follows."""
        return replace(self, running=False, cursor=None, asked=False)

    def skipping(self, record: TableRecord, why: str, at: float) -> Proof:
        """Returns the proof of a table that cannot be proved now. `why`: the reason."""
        return replace(
            self,
            running=False,
            checked=record.from_lsn,
            last=at,
            proved=None,
            skipped=why,
            asked=False,
        )


def is_provable(record: TableRecord) -> bool:
    """True if the table's rows have to be equal to the server's rows, and its folder is in its place."""
    state = record.state
    return (
        isinstance(state, Live)
        and state.complete
        and state.new_column is None
        and state.failing is None
        and record.move is None
        and record.request is None
        and not record.history
    )


def is_same(before: TableRecord, now: TableRecord | None) -> bool:
    """True if only rows of the table can have changed since its record was `before`."""
    return now is not None and is_provable(now) and _identity(before) == _identity(now)


def _identity(record: TableRecord) -> tuple[object, ...]:
    return record.name, record.folder, record.from_lsn, record.signature, record.epoch


def next_to_prove(
    records: Iterable[TableRecord],
    proofs: Mapping[str, Proof],
    at: float,
    every_s: float,
    may: Callable[[TableRecord], bool],
) -> TableRecord | None:
    """Returns the table whose next range is compared now; None if no table needs it. `may`: returns False for tables
    that have to wait."""
    needing = []
    for record in records:
        if not is_provable(record) or not may(record):
            continue
        proof = proofs.get(record.table_id)
        if proof is None:
            needing.append((0, 0.0, record.name, record))
        elif proof.needs_range(record, at, every_s):
            is_checked = proof.checked == record.from_lsn and not proof.doubted
            needing.append((int(is_checked), proof.last, record.name, record))
    return min(needing, key=lambda each: each[:3])[3] if needing else None


def next_round(
    records: Iterable[TableRecord], proofs: Mapping[str, Proof], at: float, every_s: float
) -> float | None:
    """Returns the first time after `at` at which a round of a table becomes due, if no record changes; None if no round
    becomes due."""
    known = [proofs[r.table_id] for r in records if r.table_id in proofs and is_provable(r)]
    rounds = [proof.begun + every_s for proof in known]
    return min((due for due in rounds if due > at), default=None)


def confirmed(suspects: Suspects, columns: str, differing: Collection[int]) -> bool:
    """True if a reading shows a difference that the previous reading has shown, too."""
    return bool(columns and columns == suspects.columns) or not suspects.keys.isdisjoint(differing)


def remedy_for(
    proof: Proof, wanted: OnDifference, found: DifferenceSize, ranges: int, repairs: int
) -> Remedy:
    """Returns what the mirror does about the difference of a range. `wanted`: the table's policy; `ranges`: about how
    many ranges the table has; `repairs`: how often the range was already repaired in succession."""
    otherwise = Remedy.STOP if wanted is OnDifference.STOP else Remedy.REPORT
    may_repair = proof.asked or wanted is OnDifference.REPAIR
    if not may_repair or found.columns == NO_TABLE:
        return otherwise
    if found.columns or found.keys > found.listed or _is_wide(proof, ranges):
        return otherwise if proof.copied else Remedy.COPY
    return Remedy.REPAIR if repairs < REPAIRS_MAX else otherwise


def _is_wide(proof: Proof, ranges: int) -> bool:
    """True if, with the range that is compared now, more than a third of the table's ranges differ."""
    total = max(ranges, proof.ranges + 1)
    return total >= _FEW_RANGES and 3 * (proof.differing + 1) > total


@dataclass(frozen=True, slots=True)
class DifferenceSize:
    """The size of a difference of a range. `columns`: how the columns differ, "" if they do not; `keys`: of how many
    keys the rows differ; `listed`: the rows of how many of these keys can be rewritten."""

    columns: str
    keys: int
    listed: int


@dataclass(frozen=True, slots=True)
class Suspects:
    """What a first reading of a range has found. `columns`: how the columns differ; `keys`: hashes of keys whose rows
    differ."""

    columns: str = ""
    keys: frozenset[int] = frozenset()


NO_SUSPECTS = Suspects()


# -- the column `detail` of the control table ----------------------------------------------------------------------

_DETAIL = (
    "begun", "running", "key", "cursor", "rows", "found", "checked", "proved", "proved_rows", "last", "skipped",
    "doubted", "asked", "ranges", "differing", "repaired", "copied",
)  # fmt: skip
_DIFFERENCE = ("at", "keys", "columns", "evidence")


def proof_json(proof: Proof) -> dict[str, Any]:
    """Returns, as a JSON object, the fields that have no column in the control table."""
    values = {name: getattr(proof, name) for name in _DETAIL}
    if proof.difference is not None:
        values["difference"] = {name: getattr(proof.difference, name) for name in _DIFFERENCE}
    return values


def proof_from(table_id: str, consumer: str, since: int, detail: Mapping[str, Any]) -> Proof:
    """Returns the proof for a row of the control table. Ignores unknown fields, which newer versions of this program
    write."""
    values = {name: detail[name] for name in _DETAIL if name in detail}
    if values.get("cursor") is not None:
        values["cursor"] = tuple(values["cursor"])
    found = detail.get("difference")
    if found is not None:
        values["difference"] = Difference(**{n: found[n] for n in _DIFFERENCE if n in found})
    return Proof(table_id, consumer, since=since, **values)


def range_text(chunk: Chunk) -> str:
    """Returns a range in words, without the values of its bounds."""
    if chunk.lower is None:
        return "the whole table" if chunk.upper is None else "the first range"
    return "the last range" if chunk.upper is None else "a range"
