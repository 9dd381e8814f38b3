"""The tutorial: docs/tutorial.md contains the parts of examples/tutorial.py and their output."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pymysql
import pytest

from tests.daemon.harness import PASSWORD
from tests.mirror.harness import end_group
from tests.servers import Server
from tests.support.java import QUICK_JAVA, QUICK_SPARK

pytestmark = pytest.mark.rotate(2, of="jobs of Spark")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/tutorial.py"
PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
# Settings for tables of a few rows; Spark's defaults are 200 and 50 tasks.
SMALL_TABLES = ("spark.sql.shuffle.partitions=2", "spark.databricks.delta.snapshotPartitions=2")
GRANTS = ("REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.*", "ALL ON tutorial.*")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_shows_the_whole_script() -> None:
    source = SCRIPT.read_text(encoding="utf-8")
    lines = source.splitlines()
    imports = [
        line
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    ]
    script = [line for line in lines[max(imports) :] if line]
    shown = [line for block in blocks("python") for line in block.splitlines() if line]
    assert shown == script


def test_the_page_names_the_rights_that_the_account_needs() -> None:
    (statements,) = blocks("sql")
    for grant in GRANTS:
        assert f"GRANT {grant} TO 'tutor'@'%';" in statements


@pytest.fixture
def account(mysql97: Server) -> Iterator[str]:
    """An account with the privileges that the page names."""
    name = f"tutor{os.getpid() % 10**6}"
    mysql97.add_user(name, PASSWORD, *GRANTS)
    yield f"{name}@{mysql97.host}:{mysql97.port}"
    mysql97.execute(f"DROP USER '{name}'@'%'")


@pytest.mark.spark
@pytest.mark.timeout(290)
def test_it_prints_what_the_page_shows(mysql97: Server, account: str, tmp_path: Path) -> None:
    conf = (*QUICK_SPARK, *SMALL_TABLES, "spark.python.authenticate.socketTimeout=120s")
    options = " ".join(f"--conf {setting}" for setting in conf)
    environment = {
        "MYSQL_PASSWORD": PASSWORD,
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "TMPDIR": str(tmp_path),
    }
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), account],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=tmp_path,
            env=os.environ | environment,
            start_new_session=True,
        )
    try:
        shown, _ = process.communicate(timeout=280)
    finally:
        end_group(process)  # also ends the tutorial's daemon and mirror, if they still run
    said = (tmp_path / "stderr").read_text(encoding="utf-8", errors="replace")
    assert process.returncode == 0, said[-6000:]
    tables = [table.strip("\n") for table in shown.split("\n\n") if table.strip()]
    assert tables == [block.strip("\n") for block in blocks("text")], said[-6000:]
    assert mysql97.execute("SHOW DATABASES LIKE 'tutorial'") == (), "it has dropped its database"
    assert list(tmp_path.glob("tutorial-*")) == [], "it has removed its files"


def tutorial() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_starts_a_server_if_none_is_given(
    mysql97: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PASSWORD", PASSWORD)
    module = tutorial()
    with module.mysql_server() as account, module.tutorial_database(account) as mysql:
        mysql.execute("SELECT @@port")
        (port,) = mysql.fetchone()
        assert port != mysql97.port
        mysql.execute("SHOW GRANTS")
        assert any("REPLICATION SLAVE" in grant for (grant,) in mysql.fetchall())


def test_it_leaves_a_database_alone_that_exists(
    mysql97: Server, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PASSWORD", PASSWORD)
    mysql97.execute("CREATE DATABASE tutorial", "CREATE TABLE tutorial.mine (id INT PRIMARY KEY)")
    try:
        with pytest.raises(pymysql.MySQLError, match="database exists"):
            tutorial().main(account)
        assert mysql97.execute("SHOW TABLES IN tutorial") == (("mine",),)
    finally:
        mysql97.execute("DROP DATABASE tutorial")
