"""`python -m deploy.demo`: exit code 0 when every table is equal, 1 when not or when something failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from deploy.demo.delta import UnreadableDelta
from deploy.demo.parts import INTERRUPTS, DemoFailed
from deploy.demo.scene import Options, run
from tests.servers import ServerUnavailable


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    # SIGTERM and SIGHUP end the demo as Ctrl-C does, so that nothing is left behind.
    INTERRUPTS.install()
    try:
        return run(options, console)
    except (DemoFailed, ServerUnavailable, UnreadableDelta) as failure:
        print(f"the demo has failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is ended", file=sys.stderr)
        return 1


def _options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="how long to write (25)")
    parser.add_argument("--seed", type=int, default=1, help="of what is written (1)")
    parser.add_argument("--target", type=Path, help="an empty folder; keeps the Delta tables there")
    parser.add_argument("--keep", action="store_true", help="keep everything running until Ctrl-C")
    parser.add_argument("--picture", type=Path, help="write the view and the result as an SVG file")
    given = parser.parse_args(arguments)
    target: Path | None = given.target
    if target is not None:
        target = target.absolute()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            parser.error(f"--target {target} is not an empty folder")
    return Options(given.seconds, given.seed, given.keep, target, given.picture)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
