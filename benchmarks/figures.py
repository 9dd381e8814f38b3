"""The results of a run of the benchmarks, as values, and as the JSON of `benchmarks/report.json`.

A `Series` holds the values of all rounds for one quantity of one subject on one log. A `Target` is a limit for a value,
the value that this run measured, and whether the value keeps the limit. A `NotRun` names something that could not be
measured.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
Relation = Literal[">=", "<=", "<"]


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A generated log: its name, what the log consists of, and its size."""

    name: str
    what: str
    bytes: int
    rows: int
    transactions: int


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one quantity. `rounds`: in the order of measurement; `log`: empty if no generated log was read."""

    part: str
    log: str
    subject: str
    quantity: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


@dataclass(frozen=True, slots=True)
class Target:
    """A target. `id`: such as "P1 bulk". If it was not measured, `value` is None and `met` is False."""

    id: str
    what: str
    target: str
    value: float | None
    unit: str
    met: bool


@dataclass(frozen=True, slots=True)
class NotRun:
    subject: str
    reason: str


@dataclass(slots=True)
class Report:
    """One run. `form`: "quick" or "full". `machine`, `versions`: facts by name. `elsewhere`: by part, the machine on
    which the part was measured, if another run has measured it."""

    form: str
    machine: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    logs: list[LogFacts] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)
    elsewhere: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Report:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            found["form"],
            found["machine"],
            found["versions"],
            [LogFacts(**entry) for entry in found["logs"]],
            [Series(**{**entry, "rounds": tuple(entry["rounds"])}) for entry in found["series"]],
            [Target(**entry) for entry in found["targets"]],
            [NotRun(**entry) for entry in found["not_run"]],
            found.get("elsewhere", {}),
        )

    def add(self, other: Report) -> None:
        """Add the series and targets of another run. They replace this report's series of the same parts, and its
        targets with the same ids."""
        parts = {series.part for series in other.series}
        targets = {target.id for target in other.targets}
        self.series = [series for series in self.series if series.part not in parts] + other.series
        self.targets = [known for known in self.targets if known.id not in targets] + other.targets
        self.elsewhere |= dict.fromkeys(sorted(parts), other.machine)
        self.not_run = [each for each in self.not_run if each.subject not in parts]

    def series_of(self, part: str, log: str, subject: str, quantity: str) -> Series | None:
        """Returns a series, or None if it was not measured."""
        wanted = (part, log, subject, quantity)
        for series in self.series:
            if (series.part, series.log, series.subject, series.quantity) == wanted:
                return series
        return None

    def median(self, part: str, log: str, subject: str, quantity: str) -> float | None:
        """Returns the median of a series, or None if it was not measured."""
        found = self.series_of(part, log, subject, quantity)
        return None if found is None else found.median


class Run:
    """One run, which its parts share: its form, its report, and a function that prints the progress.

    `rounds`: how often each quantity is measured. `path`: the file to which the report is written after each part, so
    that a run that is ended early leaves its results.
    """

    def __init__(self, report: Report, say: Callable[[str], None], path: Path | None) -> None:
        self.report = report
        self.say = say
        self.full = report.form == "full"
        self.rounds = 5 if self.full else 3
        self.scale = 1.0  # factor for the size of generated logs; smaller to try the suite
        self._path = path

    def log(self, facts: LogFacts) -> None:
        if all(known.name != facts.name for known in self.report.logs):
            self.report.logs.append(facts)

    def series(
        self, part: str, log: str, subject: str, quantity: str, unit: str, rounds: Iterable[float]
    ) -> float:
        """Record the values of all rounds. Returns their median."""
        found = Series(
            part, log, subject, quantity, unit, tuple(_significant(value) for value in rounds)
        )
        self.report.series.append(found)
        self.say(f"{part} {log} {subject}: {found.median:,.4g} {unit} {quantity}")
        return found.median

    def target(
        self,
        name: str,
        what: str,
        value: float | None,
        relation: Relation,
        limit: float,
        unit: str = "",
    ) -> None:
        """Record a target and its value. They replace an earlier value of the same target."""
        met = value is not None and _holds(value, relation, limit)
        text = f"{relation} {limit:g}{f' {unit}' if unit else ''}"
        rounded = None if value is None else _significant(value)
        self.report.targets = [known for known in self.report.targets if known.id != name]
        self.report.targets.append(Target(name, what, text, rounded, unit, met))
        shown = "not measured" if value is None else f"{value:.4g} {unit}".rstrip()
        self.say(f"{name}: {what}: {shown} (target {text}) {'met' if met else 'NOT MET'}")

    def not_run(self, subject: str, reason: str) -> None:
        """Record what could not be measured. `reason`: may be the text of an error; names and paths of this machine are
        removed from it."""
        self.report.not_run.append(NotRun(subject, _without_names(reason)))
        self.say(f"not run: {subject}: {reason}")

    def save(self) -> None:
        if self._path is not None:
            self._path.write_text(self.report.to_json(), encoding="utf-8")


def _holds(value: float, relation: Relation, limit: float) -> bool:
    if relation == ">=":
        return value >= limit
    return value <= limit if relation == "<=" else value < limit


def _significant(value: float) -> float:
    """Returns the value with five significant digits, because further digits are noise and make the report hard to
    read."""
    return float(f"{value:.5g}")


def _without_names(text: str) -> str:
    """Returns the line without addresses, paths and names of this machine, because the report is published."""
    hidden = ("://", os.uname().nodename)
    words = [
        "…"
        if any(part in word for part in hidden) or word.count("/") > 1 or _ADDRESS.search(word)
        else word
        for word in text.split()
    ]
    return " ".join(words)[:300]
