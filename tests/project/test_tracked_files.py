"""The repository holds text, pictures of the docs, and the small recorded files of the tests, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZE_MAX = 300_000  # bytes
KINDS = {
    *(".py", ".md", ".txt", ".yaml", ".yml", ".toml", ".json", ".jsonl", ".lock", ".xml", ".tpl"),
    *(".sh", ".js", ".mjs", ".java", ".ipynb", ".css", ".html", ".svg", ".png", ".typed"),
    *(".service", ".properties", ".binlog", ".zst", ".sql", ".LICENSE", ".jar"),
}
NAMES = {"Dockerfile", "LICENSE", "Makefile"}
HIDDEN = {".dockerignore", ".gitignore", ".hadolint.yaml", ".helmignore"}
CORPUS = "tests/fuzz/corpus/"  # inputs of parsers, named by their hashes


def tracked() -> list[str]:
    git = ["git", "ls-files", "-z"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a repository")
    return [file for file in done.stdout.split("\0") if file and (ROOT / file).exists()]


def is_known(file: str) -> bool:
    path = Path(file)
    if file.startswith((CORPUS, ".ci/")):
        return True
    return path.suffix in KINDS or path.name in NAMES or path.name in HIDDEN


def test_each_tracked_file_is_of_a_known_kind() -> None:
    assert [file for file in tracked() if not is_known(file)] == []


def test_a_notebook_is_kept_without_outputs() -> None:
    notebooks = [ROOT / file for file in tracked() if file.endswith(".ipynb")]
    cells = [cell for file in notebooks for cell in json.loads(file.read_text("utf-8"))["cells"]]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []


def test_no_tracked_file_is_large() -> None:
    sizes = {file: (ROOT / file).stat().st_size for file in tracked()}
    assert {file: size for file, size in sizes.items() if size > SIZE_MAX} == {}
