"""Every text that a command prints passes the functions that make it printable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_WRITERS = ("typer.echo", "typer.secho", "print", "sys.stdout.write", "sys.stderr.write")
# Modules that print paths of folders and jars for scripts, or their usage.
_EXEMPT = ("spark_sink/kernels.py", "spark_sink/jars.py")


def _calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize("folder", ["dispatcher/cli", "spark_sink"])
def test_only_the_module_for_output_prints(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if path.name != "output.py"]
    printing = {
        str(path.relative_to(ROOT))
        for path in files
        if any(call in _WRITERS for call in _calls(path))
    }
    assert len(files) > 8 and printing - {*_EXEMPT} == set()
