"""`python -m tests.simulation.mutate [--seeds N] [--jobs N] [NAME…]`: checks that each mutant breaks a rule.

`main` checks the mutants of any simulation, which is a package with the modules `mutants` and `play`.

Each mutant plays in a process of its own, which imports the module with the change; no file is changed. A seed does not
count if it breaks a rule without the mutant, too. Some mutants need a log that plays hardly ever draw; for these, a
test must fail. The exit code is 1 if a mutant survives N histories or its tests, or if its change does not fit the
source.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import CodeType, ModuleType

import pytest

from tests.simulation.changes import StaleError
from tests.simulation.mutant import ROOT, Mutant

PACKAGE = "tests.simulation"


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module's source with the change, and ignores compiled files."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return compile(self.mutant.broken(), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = mutant.module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.mutant = self._mutant
        spec.loader = loader
        return spec


def main(arguments: Sequence[str], package: str = PACKAGE) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {package}.mutate", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--play", action="store_true", help="play one mutant in this process")
    options = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in _mutants(package)}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no mutant {unknown[0]!r}")
    mutants = [known[name] for name in options.names] or list(known.values())
    if options.play:
        return _play(mutants[0], options.seeds, package)
    good = True
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda mutant: _verdict(mutant, options.seeds, package), mutants)
        for mutant, (caught, verdict) in zip(mutants, verdicts, strict=True):
            good &= caught
            print(f"{mutant.name} ({mutant.rule}): {verdict}", flush=True)
    print("every mutant is caught" if good else "NOT every mutant is caught")
    return 0 if good else 1


def _mutants(package: str) -> Sequence[Mutant]:
    mutants: Sequence[Mutant] = importlib.import_module(f"{package}.mutants").MUTANTS
    return mutants


def _verdict(mutant: Mutant, seeds: int, package: str) -> tuple[bool, str]:
    try:
        mutant.broken()
    except StaleError as error:
        return False, f"the change does not fit {mutant.function}: {error}"
    module = f"{package}.mutate"
    command = [sys.executable, "-m", module, "--play", "--seeds", str(seeds), mutant.name]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return False, f"did not play: {done.stderr[-2000:]}"
    return done.returncode == 0, done.stdout.strip()


def _play(mutant: Mutant, seeds: int, package: str) -> int:
    sys.meta_path.insert(0, _Finder(mutant))
    if mutant.tests:
        return _test(mutant)
    play = importlib.import_module(f"{package}.play").play  # after the finder
    broken = ""
    for seed in range(seeds):
        try:
            play(seed)
        except Exception as error:  # noqa: BLE001 - any error means that it was caught
            if not _is_sound(seed, package):
                broken += f"; seed {seed} breaks a rule without it"
                continue
            why = f"{type(error).__name__}: {error}".replace("\n", " ")[:110]
            print(f"caught at seed {seed} by {why}{broken}")
            return 0
    print(f"SURVIVED {seeds} histories{broken}")
    return 1


def _test(mutant: Mutant) -> int:
    """Run the mutant's tests. `make test` shows that these tests pass without the mutant."""
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main([mutant.tests, "-q", "-x", "-n0", "-p", "no:cacheprovider"])
    if code == pytest.ExitCode.TESTS_FAILED:
        print(f"caught by {mutant.tests}")
        return 0
    if code == pytest.ExitCode.OK:
        print(f"SURVIVED {mutant.tests}")
        return 1
    return 2


def _is_sound(seed: int, package: str) -> bool:
    """True if the seed breaks no rule without the mutant."""
    command = [sys.executable, "-m", package, "--seeds", "1", "--first", str(seed)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
