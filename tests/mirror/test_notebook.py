"""examples/explore.ipynb, executed as a user executes it, with a daemon and a mirror's target."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mirror.harness import TIMEOUT_S, MirrorJob

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".cache/notebook/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
# Executes a notebook, and writes it with its outputs. `python -m nbclient` would ignore the environment's kernel.
EXECUTE = """
import nbclient, nbformat, sys
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def outputs(cells: dict[str, Any], name: str) -> str:
    """Returns the plain text that a cell has shown."""
    data = [output["data"] for output in cells[name]["outputs"] if "data" in output]
    return "".join("".join(shown["text/plain"]) for shown in data)


def test_every_cell_runs_and_shows_the_table(job: MirrorJob) -> None:
    execute = job.server.execute
    execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'bread'), (2, 'butter')",
        "UPDATE orders SET item = 'salt' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        database="shop",
    )
    job.settings = "tables: {shop.orders: {history: true}}\n"
    assert job.run("shop") == 0, job.log
    execute("INSERT INTO orders VALUES (3, 'milk')", database="shop")
    written = job.home / "explore.ipynb"
    environment = job.job_environment() | {
        "PYTHONPATH": f"{PACKAGES}:{ROOT}",
        "DAEMON_URL": job.daemon.url,
        "CONSUMER": "shop",
        "TARGET": str(job.target),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(ROOT / "examples/explore.ipynb"), str(written)],
        env=environment, cwd=job.home, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, re.findall(
        r"^\S*(?:Error|Exception|Warning):.*", done.stderr, re.MULTILINE
    )
    cells = {cell["id"]: cell for cell in json.loads(written.read_text("utf-8"))["cells"]}
    assert "salt" in outputs(cells, "rows") and "bread" not in outputs(cells, "rows")
    assert "milk" in outputs(cells, "changes") and "insert" in outputs(cells, "changes")
    assert "bread" in outputs(cells, "history") and "butter" in outputs(cells, "history")
    assert "salt" in outputs(cells, "latest") and "butter" not in outputs(cells, "latest")
    assert any("image/png" in output.get("data", {}) for output in cells["chart"]["outputs"])
