"""Prometheus text format: https://prometheus.io/docs/instrumenting/exposition_formats.

The module formats the lines directly, without the sample objects of the library prometheus_client. A thousand consumers
have about 30,000 samples: their objects would take half a second of the event loop's thread, and the lines take a tenth
of that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.utils import floatToGoString

from dispatcher.model.timings import Durations

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


def kind_of(name: str) -> str:
    """Returns the kind of a metric by its name: names of counters end in `_total`; every other metric except a
    histogram is a gauge."""
    return COUNTER if name.endswith("_total") else GAUGE


class Family:
    """The samples of one counter or gauge as lines of text."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        """`name`: the name with its prefix; `labels`: the names of the labels."""
        self.lines = [f"# HELP {name} {label_text(meaning)}\n# TYPE {name} {kind_of(name)}\n"]
        names = ",".join(f'{label}="%s"' for label in labels)
        self._template = f"{name}{{{names}}} %s\n" if labels else f"{name} %s\n"

    def add(self, values: tuple[str, ...], value: float) -> None:
        """`values`: the values of the labels, escaped by `label_text`."""
        self.lines.append(self._template % (*values, _text(value)))


class HistogramFamily:
    """The samples of one histogram as lines of text."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        self.lines = [f"# HELP {name} {label_text(meaning)}\n# TYPE {name} {HISTOGRAM}\n"]
        self._name = name
        self._labels = tuple(labels)

    def add(self, values: tuple[str, ...], durations: Durations) -> None:
        """`values`: the values of the labels, escaped by `label_text`."""
        pairs = [f'{n}="{v}"' for n, v in zip(self._labels, values, strict=True)]
        plain = f"{{{','.join(pairs)}}}" if pairs else ""
        counts = durations.cumulative()
        for bound, count in zip((*durations.bounds, float("inf")), counts, strict=True):
            labels = ",".join([*pairs, f'le="{_text(bound)}"'])
            self.lines.append(f"{self._name}_bucket{{{labels}}} {count}\n")
        self.lines.append(f"{self._name}_sum{plain} {_text(durations.sum_s)}\n")
        self.lines.append(f"{self._name}_count{plain} {counts[-1]}\n")


class ScrapeSamples:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self.families: list[Family | HistogramFamily] = []

    def family(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Family:
        family = Family(name, meaning, labels)
        self.families.append(family)
        return family

    def histogram(self, name: str, meaning: str, labels: Sequence[str] = ()) -> HistogramFamily:
        family = HistogramFamily(name, meaning, labels)
        self.families.append(family)
        return family

    def text(self) -> str:
        return "".join("".join(family.lines) for family in self.families)


def label_text(text: str) -> str:
    """Escapes the value of a label, or the text of a HELP line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _text(value: float) -> str:
    return floatToGoString(value)  # type: ignore[no-untyped-call,no-any-return]
