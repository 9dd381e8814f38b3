"""Reads the metrics of a running mirror job, for `top`."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from dispatcher.model.errors import BinlogError, ErrorKind

MIRROR, STREAM = "binlog_mirror_", "binlog_stream_"
_TIMEOUT_S = 5.0
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - here such an address means this host
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class JobNumbers:
    """One reading of a job's metrics. `at`: the time of the reading by the monotonic clock."""

    at: float
    values: Mapping[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float | None:
        """Returns the value of a series; None if the reading has no such series."""
        return self.values.get((name, frozenset(labels.items())))

    def labels(self, name: str, label: str) -> list[str]:
        """Returns the sorted values that a label has in the series of a metric."""
        found = (dict(labels) for series, labels in self.values if series == name)
        return sorted({values[label] for values in found if label in values})

    def rate(self, before: JobNumbers | None, name: str, **labels: str) -> float | None:
        """Returns how much a counter has grown per second since the reading `before`; None if that cannot be
        computed."""
        now = self.value(name, **labels)
        then = None if before is None else before.value(name, **labels)
        if before is None or now is None or self.at <= before.at:
            return None
        # The counters of a job that was started again begin at 0.
        return (now if then is None or now < then else now - then) / (self.at - before.at)


def numbers_of(text: str, at: float) -> JobNumbers:
    """Parse a text in Prometheus format. Raises ValueError for a text in another format."""
    values = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return JobNumbers(at, values)


def read_numbers(host: str, port: int) -> JobNumbers:
    """Returns a reading of the job that serves metrics at this address. Raises `BinlogError` CONNECT_FAILED."""
    name = "127.0.0.1" if host in _ANY else host
    url = f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            return numbers_of(answer.read().decode(), time.monotonic())
    except (URLError, OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise BinlogError(
            ErrorKind.CONNECT_FAILED,
            f"the job's metrics cannot be read: {reason}",
            where=url,
            remedy="start the job: python -m spark_sink run; until then the tables are shown alone",
        ) from None


@dataclass(frozen=True, slots=True)
class ConsumerLine:
    """The state of a consumer, from the job's metrics. A value that is not known is None. `log_up`, `apply_up`: True if
    the stage works; `lag_...`: how far the consumer's stream is behind the server; `apply_lag_s`: how far the
    consumer's tables are behind the mirror's log; `step_s`: by phase, how many seconds the consumer's steps have spent
    in the phase, per second."""

    consumer: str
    log_up: bool | None
    apply_up: bool | None
    lag_transactions: float | None
    lag_bytes: float | None
    lag_s: float | None
    logged_rows_per_s: float | None
    applied_rows_per_s: float | None
    apply_lag_s: float | None
    waiting_entries: float | None
    step_s: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def consumer_lines(now: JobNumbers, before: JobNumbers | None) -> list[ConsumerLine]:
    """Returns a line for each consumer of a reading."""
    return [_line(name, now, before) for name in now.labels(f"{MIRROR}stage_up", "consumer")]


def _line(name: str, now: JobNumbers, before: JobNumbers | None) -> ConsumerLine:
    def up(stage: str) -> bool | None:
        value = now.value(f"{MIRROR}stage_up", consumer=name, stage=stage)
        return None if value is None else value > 0

    def stream(metric: str) -> float | None:
        return now.value(STREAM + metric, query=name, consumer=name)

    spent: dict[str, float] = {}
    for series, labels in now.values:
        own = dict(labels)
        if series == f"{MIRROR}table_phase_seconds_total" and own["consumer"] == name:
            spent[own["phase"]] = spent.get(own["phase"], 0.0) + (
                now.rate(before, series, **own) or 0.0
            )
    return ConsumerLine(
        name,
        up("log"),
        up("apply"),
        stream("lag_transactions"),
        stream("lag_bytes"),
        stream("lag_seconds"),
        now.rate(before, f"{STREAM}rows_total", query=name, consumer=name),
        now.rate(before, f"{MIRROR}applied_rows_total", consumer=name),
        now.value(f"{MIRROR}lag_seconds", consumer=name),
        now.value(f"{MIRROR}waiting_entries", consumer=name),
        spent,
    )
