"""The recipes of docs/recipes whose programs are here, as a person copies them from the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment
from tests.daemon.harness import PASSWORD
from tests.servers import Server
from tests.servers.ports import free_port

pytestmark = pytest.mark.deep

PAGES = Path(__file__).parents[2] / "docs" / "recipes"
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if os.name == "posix" else []
ROWS = ["it''s \\\\ \\n ü", "tab\\t", '"quoted"']


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def source(mysql97: Server) -> Iterator[str]:
    """The address of a server whose log has three inserted rows, an update and a delete of the database recipes."""
    mysql97.add_user("recipe", PASSWORD)
    file, offset = mysql97.binlog_position()
    mysql97.execute(
        "CREATE DATABASE recipes",
        "CREATE TABLE recipes.orders (id INT PRIMARY KEY, name VARCHAR(40))",
    )
    mysql97.execute(
        *(f"INSERT INTO recipes.orders VALUES ({n}, '{text}')" for n, text in enumerate(ROWS))
    )
    mysql97.execute(
        "UPDATE recipes.orders SET name = 'new' WHERE id = 0",
        "DELETE FROM recipes.orders WHERE id = 1",
    )
    yield f"mysql://recipe@127.0.0.1:{mysql97.port}/recipes --from {file}:{offset} --once --password-env PASSWORD"
    mysql97.execute("DROP DATABASE recipes", "DROP USER 'recipe'@'%'")


def run(recipe: str, source: str, folder: Path, **variables: str) -> None:
    """Run a recipe's command with this source in place of the consumer."""
    consumer = "shop --url http://127.0.0.1:8085"
    assert recipe.startswith(f"binlog-dispatcher read {consumer} --run ")
    script = recipe.replace(consumer, source).replace("binlog-dispatcher", str(PROGRAM), 1)
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env=environment({"PASSWORD": PASSWORD, **variables}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_webhook_gets_the_lines_again_until_it_has_stored_them(
    source: str, tmp_path: Path
) -> None:
    (recipe,) = blocks("webhook", "sh")
    bodies: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(400 if len(bodies) == 1 else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run(recipe, source, tmp_path, HOOK=f"http://127.0.0.1:{server.server_port}/changes")
        server.shutdown()
    assert bodies[0] == bodies[1]
    lines = [json.loads(line) for body in bodies[1:] for line in body.splitlines()]
    changes = [line["op"] for line in lines if line.get("table") == "orders"]
    assert changes == ["insert", "insert", "insert", "update", "delete"]


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server of PostgreSQL of its own; its programs refuse to run as root."""
    binaries, data, port = POSTGRES[-1], folder / "data", free_port()
    as_user: list[str | Path] = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    data.mkdir()
    if as_user:
        for each in (folder, *folder.parents[:2]):
            each.chmod(each.stat().st_mode | 0o011)
        shutil.chown(data, "postgres")
    subprocess.run(
        [*as_user, binaries / "initdb", "-D", data, "-U", "recipe", "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True, capture_output=True,
    )  # fmt: skip
    options = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*as_user, binaries / "pg_ctl", "-D", data, "-w"]
    subprocess.run([*control, "-l", data / "log", "-o", options, "start"], check=True)
    try:
        yield f"postgresql://recipe@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True)


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed")
def test_postgresql_has_each_change_once(source: str, tmp_path: Path) -> None:
    create, newest = blocks("postgresql", "sql")
    (script,) = blocks("postgresql", "psql")
    (recipe,) = blocks("postgresql", "sh")
    (tmp_path / "change.sql").write_text(script)
    with postgres(tmp_path) as address:

        def psql(query: str) -> list[str]:
            done = subprocess.run(
                ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", query, address],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            return done.stdout.splitlines()

        psql(create)
        # The command stores the first range, but seems to fail: it gets the range again.
        fails_once = "&& { [ -e again ] || { touch again; false; }; }"
        run(recipe.rstrip()[:-1] + f" {fails_once}'", source, tmp_path, POSTGRES=address)
        assert (tmp_path / "again").exists()
        query = """SELECT op FROM change WHERE "table" = 'recipes.orders' ORDER BY seq, ordinal"""
        assert psql(query) == ["insert", "insert", "insert", "update", "delete"]
        rows = [json.loads(line) for line in psql(newest.replace("shop.", "recipes."))]
        names = {row["id"]: row["name"] for row in rows}
        assert names[0] == "new" and names[2] == '"quoted"'
        first = psql(
            "SELECT doc->'after'->>'name' FROM change WHERE op = 'insert' ORDER BY seq LIMIT 1"
        )
        assert "\n".join(first) == "it's \\ \n ü"
