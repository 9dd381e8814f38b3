"""Programs of the Iceberg project: its REST catalog server, and its runtime for Spark. Maven fetches them into the
cache folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_sink.cache import cache_dir, cached_folder
from tests.servers.ports import free_port
from tests.spark.lines.installs import LINES, environment

_JETTY = "12.1.3"
# The newest version for which Maven Central has the server.
_ICEBERG = "1.11.0"
_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
# The project has its server among the tests of its core.
_SERVER = (
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{_ICEBERG}:tests",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
    "org.xerial:sqlite-jdbc:3.46.1.3",
)


def _jars(name: str, packages: tuple[str, ...], *, alone: bool = False) -> list[Path]:
    """Returns the jars of packages, "group:artifact:version" or with ":classifier", fetched if they are missing.
    `alone`: True to leave out what they depend on."""
    folder = cached_folder(cache_dir() / "jars" / name, partial(_fetch, packages, alone=alone))
    return sorted(folder.glob("*.jar"))


def _fetch(packages: tuple[str, ...], target: Path, *, alone: bool) -> None:
    mvn = shutil.which("mvn")
    assert mvn is not None, "install Maven: deploy/setup.sh maven"
    dependencies = ""
    for group, artifact, version, *classifier in (package.split(":") for package in packages):
        dependencies += f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        dependencies += f"<version>{version}</version>"
        dependencies += "".join(f"<classifier>{name}</classifier>" for name in classifier)
        if alone:
            every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
            dependencies += f"<exclusions>{every}</exclusions>"
        dependencies += "</dependency>"
    pom = target / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n",
        encoding="utf-8",
    )
    subprocess.run(
        [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        + ["-DincludeScope=runtime", f"-DoutputDirectory={target}"],
        check=True,
    )


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Start the REST catalog server of the Iceberg project on a port of loopback, with its data in a folder. Yields its
    address."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    hadoop = (Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar")
    jars = [*_jars(f"iceberg-rest-{_ICEBERG}", _SERVER), *hadoop]
    port = launch_gateway(classpath=":".join(map(str, jars)), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        server, address = _started(gateway.jvm, folder)
        yield address
        server.stop()
    finally:
        gateway.shutdown()


def _started(jvm: Any, folder: Path) -> tuple[Any, str]:
    iceberg, jetty = jvm.org.apache.iceberg, jvm.org.eclipse.jetty
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "jdbc.schema-version": "V1",
        "uri": f"jdbc:sqlite:{folder}/rest.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    conf = jvm.org.apache.hadoop.conf.Configuration()
    catalog = iceberg.CatalogUtil.buildIcebergCatalog("backend", properties, conf)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    context = jetty.ee10.servlet.ServletContextHandler()
    context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    port = free_port()
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(context)
    server.start()
    return server, f"http://127.0.0.1:{port}"


def spark_rows(uri: str, query: str) -> list[dict[str, Any]]:
    """Returns the rows of a query that Spark 4.1 runs with Iceberg's own runtime, with the REST catalog as `lake`."""
    jars = _jars("iceberg-spark-runtime-4.1", (_RUNTIME,), alone=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.iceberg_reader", uri, str(jars[0]), query],
        env=environment(LINES["4.1"].folder()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows
