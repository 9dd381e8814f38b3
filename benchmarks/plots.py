"""Draws the plots of a report as SVG, with matplotlib. One report always gives the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.figures import Report

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "benchmarks",  # otherwise the ids in a file differ each time
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_TRANSPORT = ("recv", "relay", "daemon", "mysqlbinlog --raw")
_COLOURS = ("#9aa5b1", "#5b7c99", "#d1495b", "#edae49")


def draw(report: Report, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        for name, figure in (("transport", _transport(report)), ("decoding", _decoding(report))):
            if figure is not None:
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def _transport(report: Report) -> Figure | None:
    """Draw MB/s by log, with a bar for each way to receive the log."""
    logs = [log for log in report.logs if report.median("transport", log.name, "daemon", "wall")]
    if not logs:
        return None
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(_TRANSPORT)
    for number, (subject, colour) in enumerate(zip(_TRANSPORT, _COLOURS, strict=True)):
        times = [report.median("transport", log.name, subject, "wall") for log in logs]
        rates = [
            log.bytes / 1e6 / time if time else 0.0 for log, time in zip(logs, times, strict=True)
        ]
        places = [place + (number - 1.5) * width for place in range(len(logs))]
        axes.bar(places, rates, width, color=colour, label=subject)
    axes.set_xticks(range(len(logs)), [log.name for log in logs])
    axes.set_ylabel("MB/s to the reader")
    axes.legend(frameon=False)
    return figure


def _decoding(report: Report) -> Figure | None:
    """Draw the rows per CPU second of the log `bulk`, fastest reader first, on a logarithmic scale."""
    rates = {
        series.subject: series.median
        for series in report.series
        if (series.part, series.log, series.quantity) == ("decoding", "bulk", "rows per CPU second")
    }
    if not rates:
        return None
    subjects = sorted(rates, key=rates.__getitem__)
    figure = Figure(figsize=(7, 0.6 + 0.35 * len(subjects)), layout="constrained")
    axes = figure.add_subplot()
    colours = [_COLOURS[2] if subject == "to Arrow" else _COLOURS[1] for subject in subjects]
    bars = axes.barh(subjects, [rates[subject] for subject in subjects], color=colours)
    axes.bar_label(bars, labels=[f"{rates[subject]:,.0f}" for subject in subjects], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(right=max(rates.values()) * 8)
    axes.set_xlabel("rows per CPU second (logarithmic)")
    return figure
