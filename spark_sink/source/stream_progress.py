"""Makes the report of the source to Spark about each batch, and parses Spark's progress reports. Pure.

For each batch, Spark reports how many rows it has read and how long the batch's phases took (`StreamingQueryProgress`).
The field `latestOffset` of such a report contains any JSON that the source returns. The JSON of this source has the
keys of the server's newest position, and four more keys: `consumer`, `batch` (transactions and bytes), `lag` (how far
the batch's end is behind the server) and `paused`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dispatcher.model.position import KEYS, Position

_WHOLE_BATCH = "triggerExecution"  # a key of durationMs; the other keys are the phases
Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far a position is behind the end of the server's log. None stands for a value that is not known.

    `transactions`, `bytes`: how much of the whole log follows the position; `seconds`: the age of the first transaction
    after the position.
    """

    transactions: int | None = None
    bytes: int | None = None
    seconds: float | None = None

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> SourceLag:
        """Returns the lag in an answer of the daemon's call `poll`."""
        return cls(*(answer.get(f"lag_{name}") for name in cls.__slots__))


NOT_KNOWN = SourceLag()


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The part of a query's batch that was read from one consumer.

    `query`: the query's name, or its id if it has no name; `consumer` is "", and `transactions`, `bytes` and `lag` are
    None, if the batch was planned before a restart, because the source did not report these values; `rows`: how many
    rows Spark has read; `seconds`: how long the batch took; `phases`: the times of the batch's phases, by Spark's
    names; `end`: the position at which the batch ends.
    """

    query: str
    consumer: str
    batch: int
    end: Position
    rows: int
    transactions: int | None = None
    bytes: int | None = None
    lag: SourceLag = NOT_KNOWN
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Returns the known values, for a line of the log."""
        lag = {f"lag_{name}": value for name, value in asdict(self.lag).items()}
        values = {
            "consumer": self.consumer or None,
            "query": self.query if self.query != self.consumer else None,
            "batch": self.batch,
            "transactions": self.transactions,
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": self.seconds,
            **lag,
            **{f"{name}_s": value for name, value in self.phases.items()},
        }
        return {name: value for name, value in values.items() if value is not None}


def latest_offset(
    head: Position,
    consumer: str,
    batch: tuple[int, int] | None,
    lag: SourceLag,
    *,
    paused: bool = False,
) -> dict[str, Any]:
    """Returns the latest offset that the source reports. `batch`: transactions and bytes of the batch that is being
    planned, None if they are not known; `paused`: True if the delivery to the consumer is paused."""
    reported: dict[str, Any] = {"consumer": consumer}
    if batch is not None:
        reported["batch"] = dict(zip(("transactions", "bytes"), batch, strict=True))
    return head.as_dict() | reported | {"lag": asdict(lag), "paused": paused}


def batch_reports(progress: Report) -> Iterator[BatchReport]:
    """Yields a report for each source "binlog" of a query. `progress`: the JSON of Spark's StreamingQueryProgress.

    Spark also reports on a query that waits. Such a report has no batch, and yields nothing.
    """
    durations = {name: ms / 1000 for name, ms in (progress.get("durationMs") or {}).items()}
    if "addBatch" not in durations:
        return
    seconds = durations.pop(_WHOLE_BATCH, 0.0)
    for source in progress.get("sources") or ():
        end, latest = _object(source.get("endOffset")), _object(source.get("latestOffset"))
        end.pop("consumer", None)  # a key in the offsets of a declared consumer
        end.pop("snapshot", None)  # a key in the offsets of a stream with a snapshot
        if set(KEYS) != end.keys():
            continue  # an offset of another source
        batch, lag = latest.get("batch") or {}, latest.get("lag") or {}
        yield BatchReport(
            query=progress.get("name") or str(progress.get("id") or ""),
            consumer=latest.get("consumer") or "",
            batch=int(progress["batchId"]),
            end=Position.from_dict(end),
            rows=int(source.get("numInputRows") or 0),
            transactions=batch.get("transactions"),
            bytes=batch.get("bytes"),
            lag=SourceLag(**lag),
            seconds=seconds,
            phases=durations,
        )


def _object(offset: Any) -> dict[str, Any]:
    """Returns an offset as a dictionary. In the JSON of a whole report the offset is an object, in Spark's classes a
    text."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:  # an offset of a source whose offsets are no JSON
            return {}
    return offset if isinstance(offset, dict) else {}
