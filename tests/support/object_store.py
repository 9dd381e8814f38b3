"""An S3 server on the loopback: moto's, which `deploy/setup.sh moto` installs into .cache/moto."""

from __future__ import annotations

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from tests.daemon.harness import until
from tests.servers.ports import free_port

_PYTHON = Path(__file__).parents[2] / ".cache/moto/bin/python"
_KEY, _SECRET = "tests", "of-the-loopback"
# The server requires a signature, but does not verify it.
_HEADERS = {
    "Authorization": f"AWS4-HMAC-SHA256 Credential={_KEY}/20260101/us-east-1/s3/aws4_request,"
    " SignedHeaders=host, Signature=0",
    "Content-Type": "application/octet-stream",
}
_XML = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}


@dataclass
class Bucket:
    """A bucket. `fetched`: by key, the tags of the objects that `fetch` has copied into a local folder."""

    port: int
    name: str
    fetched: dict[str, str] = field(default_factory=dict)

    def spark_settings(self) -> dict[str, str]:
        """Returns the settings with which Spark connects to the server."""
        settings = {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": _KEY,
            "secret.key": _SECRET,
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    def request(self, method: str, key: str = "", **query: str) -> bytes:
        path = f"/{self.name}/{quote(key)}" if key else f"/{self.name}"
        url = f"http://127.0.0.1:{self.port}{path}?{urlencode(query)}"
        request = urllib.request.Request(url, method=method, headers=_HEADERS)
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def objects(self, prefix: str) -> dict[str, str]:
        """Returns the tags of all objects whose keys begin with the prefix, by key."""
        found: dict[str, str] = {}
        more: dict[str, str] = {}
        while True:
            query = {"list-type": "2", "prefix": prefix} | more
            page = ET.fromstring(self.request("GET", **query))
            for content in page.iterfind("s3:Contents", _XML):
                key, tag = (content.findtext(f"s3:{name}", "", _XML) for name in ("Key", "ETag"))
                found[key] = tag
            token = page.findtext("s3:NextContinuationToken", "", _XML)
            if not token:
                return found
            more = {"continuation-token": token}

    def fetch(self, prefix: str, folder: Path) -> None:
        """Make a local folder equal to the objects below the prefix. An object that is deleted meanwhile is skipped. An
        object that is already in the folder is not fetched again."""
        now = {key: tag for key, tag in self.objects(f"{prefix}/").items() if not key.endswith("/")}
        for key in self.fetched.keys() - now.keys():
            file = _local(folder, prefix, key)
            file.unlink()
            for parent in file.parents:  # remove empty folders, which an object store does not have
                if parent == folder or any(parent.iterdir()):
                    break
                parent.rmdir()
            del self.fetched[key]
        for key, tag in now.items():
            if self.fetched.get(key) == tag:
                continue
            try:
                data = self.request("GET", key)
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                continue
            file = _local(folder, prefix, key)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            self.fetched[key] = tag


def _local(folder: Path, prefix: str, key: str) -> Path:
    return folder / key.removeprefix(f"{prefix}/")


@contextmanager
def bucket(log: Path, name: str = "lake") -> Iterator[Bucket]:
    """An empty bucket on a separate server, which logs its requests to a file."""
    assert _PYTHON.exists(), "run deploy/setup.sh moto"
    port = free_port()
    command = [str(_PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent)
    try:
        made = Bucket(port, name)

        def answers() -> bool:
            assert process.poll() is None, log.read_text("utf-8")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(answers, "the S3 server answers")
        made.request("PUT")
        yield made
    finally:
        process.kill()
        process.wait()
