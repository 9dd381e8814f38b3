"""Mirrored tables in a Hive metastore with Derby: each SELECT by a table's name equals the server's, also after renames
and a drop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import Server
from tests.support.java import QUICK_JAVA

ROOT = Path(__file__).parents[3]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_select_by_name_equals_the_server_through_rename_swap_and_drop(
    mysql97: Server, new_database: Callable[[Server], str], tmp_path: Path
) -> None:
    # The kind of catalog can be chosen only when a JVM starts, so this test starts a separate process.
    database = new_database(mysql97)
    mysql97.execute("FLUSH BINARY LOGS")
    server = {"kind": mysql97.kind, "host": mysql97.host, "port": mysql97.port}
    server |= {"root_user": mysql97.root_user, "root_password": mysql97.root_password}
    server |= {"socket": str(mysql97.socket)}
    module = "tests.spark.mirror.hive_scenario"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            module,
            str(tmp_path / "home"),
            database,
            json.dumps(server),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,  # Derby writes its log there
        env=os.environ | {"PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK_JAVA},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal the server's") == 7, done.stdout
