"""`make bench`: prints the ratios that the project promises, and the times behind them.

`--quick` reads smaller logs, whose ratios vary more.
"""

from __future__ import annotations

import argparse
import os

from rich.console import Console
from rich.table import Table

from benchmarks import decode, mirror, routing
from benchmarks.logs import generate_bulk, generate_small, prepare
from tests.servers import start_server

ROUTING_TARGET, DECODING_TARGET = 0.5, 30.0


def main() -> int:
    """Returns exit code 1 if a ratio is below its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller logs")
    scale = 1 if parser.parse_args().quick else 4
    console = Console()
    table = Table(title="binlog-dispatcher, ratios of medians")
    for column in ("what", "log", "ours", "theirs", "ratio", "target"):
        table.add_column(column, justify="left" if column in ("what", "log") else "right")
    passed = True

    shapes = (
        lambda server: generate_bulk(server, 250_000 * scale),
        lambda server: generate_small(server, 50_000 * scale),
    )
    for generate in shapes:
        result = routing.measure(generate)
        log = result.log
        passed &= result.ratio >= ROUTING_TARGET
        table.add_row(
            "routing ÷ wire",
            f"{log.name}: {log.rows:,} rows, {log.bytes / 1e6:.0f} MB",
            f"{result.daemon_s:.3f} s, {log.bytes / result.daemon_s / 1e6:.0f} MB/s",
            f"{result.wire_s:.3f} s, {log.bytes / result.wire_s / 1e6:.0f} MB/s",
            f"{result.ratio:.2f}",
            f">= {ROUTING_TARGET}",
        )
    with start_server("mysql97") as server:
        prepare(server)
        log = generate_bulk(server, 50_000 * scale)
        decoded = decode.run(server, log)
    passed &= decoded.ratio >= DECODING_TARGET
    table.add_row(
        "decoding ÷ python-mysql-replication",
        f"{log.name}: {log.rows:,} rows",
        f"{decoded.ours:,.0f} rows/s",
        f"{decoded.theirs:,.0f} rows/s",
        f"{decoded.ratio:.0f} x",
        f">= {DECODING_TARGET:.0f} x",
    )
    measured = Table(title="the mirror")
    for column in ("what", "measured", "target"):
        measured.add_column(column)
    for row in mirror.printed(mirror.measure(scale, console.print)):
        measured.add_row(*row)
    console.print(table)
    console.print(measured)
    console.print(f"decoded values equal SELECT's, checksum {decoded.checksum}")
    console.print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end; compare ratios, not times"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
