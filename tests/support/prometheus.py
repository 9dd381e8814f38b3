"""A real Prometheus and promtool, from Debian's package, unpacked into the cache: `python -m tests.support.prometheus`.

The module installs nothing and starts no service. `running` runs Prometheus on a free port of the loopback.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spark_sink.cache import cache_dir, cached_folder
from tests.servers import debian
from tests.servers.installs import by_own_loader

# Debian 12 has 2.42, Debian 13 has 2.53; the tests pass with both.
_SUITES = ("bookworm", "trixie")


@dataclass(frozen=True, slots=True)
class Programs:
    """The commands that run Prometheus and promtool."""

    prometheus: tuple[str, ...]
    promtool: tuple[str, ...]


def programs() -> Programs:
    """Returns the programs. Raises ServerUnavailable if the packages are not available."""

    def unpack(staging: Path) -> None:
        packages = debian.unpack(staging / "prefix", _SUITES, ["prometheus"])
        (staging / "packages").write_text(packages, encoding="utf-8")

    prefix = cached_folder(cache_dir() / "programs/prometheus", unpack) / "prefix"
    program, tool = (
        by_own_loader(prefix, prefix / "usr/bin" / name) for name in ("prometheus", "promtool")
    )
    return Programs(program, tool)


def promtool(*arguments: str, text: str | None = None) -> str:
    """Run promtool with the input `text`, and assert that it succeeds. Returns its output."""
    command = [*programs().promtool, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, f"promtool {' '.join(arguments)}:\n{printed}"
    return printed


class Prometheus:
    """A running Prometheus. `url`: the URL of its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **arguments: str) -> Any:
        """Returns the `data` of an answer of the API. Raises OSError; for an invalid query, this is an HTTPError."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the samples of an instant query."""
        result = self.get("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def targets(self) -> dict[str, str]:
        """Returns the health of each job: `up`, `down` or `unknown`."""
        active = self.get("targets", state="active")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in active}


@contextmanager
def running(folder: Path, port: int, configuration: dict[str, Any]) -> Iterator[Prometheus]:
    """Run Prometheus with its data in `folder` until the block ends."""
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    command = [
        *programs().prometheus,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    print(f"prometheus: {programs().prometheus[-1]}")
