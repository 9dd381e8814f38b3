"""`python -m tests.statements record [PROFILE…]` runs the corpus on servers and writes `data`; `show [TEXT]` prints the
verdict of each recorded case whose name contains the text; `prune` removes lines of `known.txt` that hold no longer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.statements import known
from tests.statements.cases import corpus
from tests.statements.judge import Verdict, judge
from tests.statements.recorded import DATA, path_of, read, write
from tests.statements.recorder import PROFILES, record


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="run the corpus on servers, and write `data`")
    one.add_argument("profiles", nargs="*", metavar="PROFILE", help=", ".join(PROFILES))
    one.add_argument(
        "--missing", action="store_true", help="keep what is recorded, and run the other cases"
    )
    two = commands.add_parser("show", help="print the verdict of recorded cases")
    two.add_argument("text", nargs="?", default="", help="a part of the cases' names")
    two.add_argument("--verdict", choices=[*Verdict], help="cases with this verdict only")
    commands.add_parser("prune", help="remove known differences that are none any more")
    options = parser.parse_args(arguments)
    match options.command:
        case "record":
            _record(options.profiles or PROFILES, missing=options.missing)
        case "show":
            _show(options.text, options.verdict)
        case "prune":
            _prune()
    return 0


def _record(profiles: Sequence[str], *, missing: bool) -> None:
    cases = corpus()
    names = {case.name: n for n, case in enumerate(cases)}
    for profile in profiles:
        began, path = time.monotonic(), path_of(profile)
        kept = read(path).cases if missing and path.exists() else ()
        kept = [case for case in kept if case.name in names]
        done = {case.name for case in kept}
        recording = record(profile, [case for case in cases if case.name not in done])
        new, count = recording.cases, len(recording.cases)
        together = sorted([*kept, *new], key=lambda case: names[case.name])
        size = write(replace(recording, cases=together)) >> 10
        seconds = time.monotonic() - began
        print(
            f"{profile}: {count} of {len(together)} cases in {seconds:.0f} s, {size} KiB",
            flush=True,
        )


def _show(text: str, verdict: str | None) -> None:
    for path in sorted(DATA.glob("*.jsonl.zst")):
        recording = read(path)
        for case in recording.cases:
            if text in case.name:
                judged = judge(case, recording)
                if verdict in (None, judged.verdict):
                    why = f": {judged.why}" if judged.why else ""
                    print(f"{recording.server} {case.name}\n    {judged.verdict}{why}")


def _prune() -> None:
    differ = {
        known.entry(recording.server, case.name)
        for recording in map(read, DATA.glob("*.jsonl.zst"))
        for case in recording.cases
        if judge(case, recording).verdict is Verdict.DIFFERENT
    }
    print(f"removed {known.prune(differ.__contains__)} lines")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
