"""`make bench`: measures what has a target, and other programs for comparison, in one run.

The quick form takes a few minutes, with smaller logs and fewer rounds. `FULL=1 make bench` measures all parts in five
rounds, on logs of the size for which the targets are defined. Both forms write a report. If a part fails, the report
lists it, and the run continues. `python -m benchmarks.report` makes tables and plots of a report.
"""

from __future__ import annotations

import argparse
import compileall
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import dispatcher
from benchmarks import (
    catch_up,
    decode,
    fan_out,
    freshness,
    front,
    front_questions,
    logs,
    many_sources,
    many_tables,
    memory,
    mirror,
    reader_cost,
    readers_cycle,
    scaling,
    source,
    source_sinks,
    transport,
    two_daemons,
)
from benchmarks.explanations import missed
from benchmarks.figures import Report, Run
from benchmarks.logs import GeneratedLog
from benchmarks.machine import machine, versions
from tests.servers import Instance

HERE = Path(__file__).parent
COMMITTED = HERE / "report.json"
QUIET_LOAD = 0.3
QUIET_WAIT_S = 300.0
QUICK = HERE.parent / ".cache" / "bench" / "report.json"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run. `log_part` is called for each generated log, or only for the logs of `shapes`, while the log's
    server runs; `measure` is called once."""

    name: str
    measure: Callable[[Run], None] | None = None
    log_part: Callable[[Run, Instance, GeneratedLog], None] | None = None
    shapes: tuple[logs.Shape, ...] = logs.SHAPES
    full_only: bool = False


# The parts run in this order.
PARTS = (
    Part("transport", log_part=transport.measure),
    Part("decoding", log_part=decode.measure),
    Part("fan-out", log_part=fan_out.measure, shapes=(logs.MIXED64,)),
    Part(front.PART, log_part=front.measure, shapes=(logs.BULK, logs.OLTP)),
    Part(front_questions.PART, measure=front_questions.measure),
    Part("a reader's cycle", measure=readers_cycle.measure),
    Part(reader_cost.PART, measure=reader_cost.measure),
    Part(two_daemons.PART, measure=two_daemons.measure),
    Part(source_sinks.PART, measure=source_sinks.measure_part),
    Part(many_tables.PART, measure=many_tables.measure),
    Part("memory", measure=memory.measure, full_only=True),
    Part("catching up", measure=catch_up.measure, full_only=True),
    Part("many sources", measure=many_sources.measure, full_only=True),
    Part(mirror.PART, measure=mirror.measure_part, full_only=True),
    Part(freshness.PART, measure=freshness.measure, full_only=True),
    Part(source.PART, measure=source.measure_part, full_only=True),
    # This part is the last one, because it computes its slopes from what the other parts have measured.
    Part("scaling", measure=scaling.measure, full_only=True),
)

# Programs that should be measured too, and the reason why they are not.
ABSENT = (("go-mysql", "its module could not be downloaded"),)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the logs of the targets, all parts")
    parser.add_argument(
        "--only", nargs="*", choices=[part.name for part in PARTS], help="these parts"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the logs, to try the suite")
    parser.add_argument("--report", type=Path, help="where the report is written")
    options = parser.parse_args()
    complete = options.full and not options.only and options.scale >= 1
    path = options.report or (COMMITTED if complete else QUICK)
    if path == COMMITTED and not _becomes_quiet():
        parser.error(
            f"the load of this machine is {os.getloadavg()[0]:.1f}, and the figures of {COMMITTED.name} are for a load"
            f" below {QUIET_LOAD}: end other programs, or write the figures elsewhere by --report FILE"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    # Compile the modules, as pip does when it installs them. Otherwise, if Python may not write compiled files, each
    # start of a daemon would compile them again.
    compileall.compile_dir(Path(dispatcher.__file__).parent, quiet=1)
    console = Console()
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:6.0f} s  {text}", highlight=False)

    run = Run(Report("full" if options.full else "quick", machine(), versions()), say, path)
    if options.scale != 1.0:
        run.scale = options.scale
        run.report.machine["scale"] = f"{options.scale:g}"
    parts = [
        part
        for part in PARTS
        if (part.name in options.only if options.only else run.full or not part.full_only)
    ]
    for subject, reason in ABSENT:
        run.not_run(subject, reason)
    _measure_logs(run, [part for part in parts if part.log_part is not None])
    for part in parts:
        if part.measure is not None:
            _guarded(run, part.name, partial(part.measure, run))
    run.report.machine["load after"] = f"{os.getloadavg()[0]:.1f}"
    run.save()
    console.print(_targets(run.report))
    _print_missed(console, run.report)
    console.print(f"report: {path}; compare ratios, not times")
    return 0


def _measure_logs(run: Run, parts: list[Part]) -> None:
    for shape in logs.SHAPES:
        if wanted := [part for part in parts if shape in part.shapes]:
            _guarded(run, f"the log {shape.name}", partial(_measure_shape, run, shape, wanted))


def _measure_shape(run: Run, shape: logs.Shape, parts: list[Part]) -> None:
    rows = max(1, round(shape.rows(full=run.full) * run.scale))
    run.say(f"writing {rows:,} rows: {shape.name}")
    with logs.server_with(shape, rows) as (server, log):
        run.log(logs.facts(shape, log))
        for part in parts:
            _measure_log(run, part, server, log)


def _measure_log(run: Run, part: Part, server: Instance, log: GeneratedLog) -> None:
    assert part.log_part is not None
    _guarded(run, f"{part.name} on {log.name}", partial(part.log_part, run, server, log))


def _becomes_quiet() -> bool:
    """Wait until the load of the machine is low enough. For a minute, the load still contains the preparation of the
    run, such as compiling the kernels. Returns False if the load does not fall."""
    deadline = time.monotonic() + QUIET_WAIT_S
    while os.getloadavg()[0] >= QUIET_LOAD:
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def _guarded(run: Run, name: str, measure: Callable[[], None]) -> None:
    """Measure a part. If this fails, list the part with its error, and continue the run."""
    began = time.monotonic()
    try:
        measure()
    except Exception as error:  # noqa: BLE001 - after any error the other parts are still measured
        run.say(traceback.format_exc())
        run.not_run(name, f"{type(error).__name__}: {error}")
    run.say(f"{name}: took {time.monotonic() - began:.0f} s")
    run.save()


def _targets(report: Report) -> Table:
    table = Table(title=f"binlog-dispatcher, {report.form} run")
    for column in ("", "what", "value", "target", "met"):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for target in report.targets:
        value = "not measured" if target.value is None else f"{target.value:g}"
        table.add_row(target.id, target.what, value, target.target, "yes" if target.met else "no")
    return table


def _print_missed(console: Console, report: Report) -> None:
    for found in missed(report):
        target, explanation = found.target, found.explanation
        console.print(
            f"\n{target.id}: {target.value:g} {target.unit}, target {target.target}\n  why: {explanation.reason}",
            highlight=False,
        )
        for what, value, unit in found.evidence:
            console.print(f"  shown by: {what}: {value:,.4g} {unit}", highlight=False)
        console.print(f"  next: {explanation.improvement}", highlight=False)


if __name__ == "__main__":
    raise SystemExit(main())
