"""Runs the demo. Exit code 0 if all tables are equal, 1 if one differs or the demo fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from deploy.demo.delta import UnreadableDelta
from deploy.demo.processes import INTERRUPTS, DemoFailed
from deploy.demo.runner import Options, run
from tests.servers import ServerUnavailable


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    # SIGTERM and SIGHUP end the demo like Ctrl-C, so that no process is left behind.
    INTERRUPTS.install()
    try:
        return run(options, console)
    except (DemoFailed, ServerUnavailable, UnreadableDelta) as failure:
        print(f"the demo failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all processes have ended", file=sys.stderr)
        return 1


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="duration of the writing (25)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random transactions (1)")
    parser.add_argument(
        "--parts", type=int, default=1_000_000, help="existing rows that are copied (1000000)"
    )
    parser.add_argument(
        "--target", type=Path, help="an empty folder for the Delta tables, which are kept"
    )
    parser.add_argument("--keep", action="store_true", help="keep everything running until Ctrl-C")
    parser.add_argument(
        "--standby", action="store_true", help="run two daemons, and kill the leader under load"
    )
    parser.add_argument("--picture", type=Path, help="write the view and the result as an SVG file")
    parsed = parser.parse_args(arguments)
    target: Path | None = parsed.target
    if target is not None:
        target = target.absolute()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            parser.error(f"--target {target} is not an empty folder")
    return Options(
        parsed.seconds,
        parsed.seed,
        parsed.keep,
        target,
        parsed.parts,
        parsed.picture,
        parsed.standby,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
