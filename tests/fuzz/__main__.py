"""`python -m tests.fuzz [TARGET…]`: fuzz each target in turn, for FUZZ_SECONDS (20) each.

A target runs in a process of its own, with kernels as Python (NUMBA_DISABLE_JIT=1), so that the fuzzer sees which
branches an input takes in them, and so that a read outside of an array is an error. Inputs that take new branches are
stored in `.cache/fuzz/TARGET`. An input that breaks the target's promise is stored there, too, and is named at the end,
with the command that repeats it: `--replay FILE`. `--keep` adds stored inputs of all sizes to tests/fuzz/corpus, as
long as there is room. Each added input takes a branch that no input before it took.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from tests.fuzz.names import TARGETS

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
FOUND = ROOT / ".cache" / "fuzz"
_INPUT_BYTES_MAX = 4096
_CORPUS_BYTES_MAX = 12_000  # per target
_CORPUS_FILES_MAX = 24
_SECONDS_PER_INPUT = 10
_MEGABYTES = 3000
_ENVIRONMENT = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--keep", action="store_true", help="keep what was found in the corpus")
    parser.add_argument("--replay", type=Path, help="run one target with this input alone")
    options = parser.parse_args(arguments)
    wanted = options.targets or list(TARGETS)
    if unknown := [name for name in wanted if name not in TARGETS]:
        parser.error(f"no target {unknown[0]!r}")
    if options.replay:
        return _child(wanted[0], str(options.replay))
    if options.keep:
        for name in wanted:
            _keep(name)
        return 0
    seconds = int(os.environ.get("FUZZ_SECONDS", "20"))
    findings = [found for name in wanted for found in _fuzz(name, seconds)]
    for name, path in findings:
        again = f"{sys.executable} -m tests.fuzz {name} --replay {path}"
        print(f"FOUND by {name}: {path}\n  again: {again}")
    return 1 if findings else 0


def _child(name: str, *arguments: str) -> int:
    command = [sys.executable, "-m", "tests.fuzz.target", name, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, env=_ENVIRONMENT).returncode


def _fuzz(name: str, seconds: int) -> list[tuple[str, Path]]:
    print(f"== {name}, {seconds} s", flush=True)
    folder = FOUND / name
    inputs = folder / "inputs"
    for made in (inputs, CORPUS / name):
        made.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    with tempfile.TemporaryDirectory() as seeds:
        command = [sys.executable, "-m", "tests.fuzz.seeds", name, seeds]
        subprocess.run(command, cwd=ROOT, check=True, env=_ENVIRONMENT)
        code = _child(
            name,
            str(inputs),
            str(CORPUS / name),
            seeds,
            f"-max_total_time={seconds}",
            f"-artifact_prefix={folder}/",
            f"-max_len={_INPUT_BYTES_MAX}",
            f"-timeout={_SECONDS_PER_INPUT}",
            f"-rss_limit_mb={_MEGABYTES}",
            "-print_final_stats=1",
        )
    found = sorted(set(folder.iterdir()) - before)
    if code and not found:
        raise SystemExit(f"{name} ended with {code} and names no input")
    return [(name, path) for path in found]


def _keep(name: str) -> None:
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    files = _CORPUS_FILES_MAX - len(list(folder.iterdir()))
    room = _CORPUS_BYTES_MAX - sum(path.stat().st_size for path in folder.iterdir())
    found = [path.read_bytes() for path in (FOUND / name / "inputs").glob("*")]
    found.sort(key=lambda data: (len(data), data))
    step = max(1, -(-len(found) // max(1, files)))
    for data in found[::step] if files > 0 else ():
        path = folder / blake2b(data, digest_size=8).hexdigest()
        if not path.exists() and len(data) <= room:
            path.write_bytes(data)
            room -= len(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
