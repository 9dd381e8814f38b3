"""Renders the plain manifests in deploy/kubernetes from the Helm chart: `make manifests`, after a change of the chart.

It also copies the alert rules and the dashboard into the chart, because a chart cannot read files outside its folder.
Each manifest begins with a digest of the files that it was rendered from, so that a test without Helm can tell whether
the manifest is up to date.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm/binlog-dispatcher"
RENDERED = DEPLOY / "kubernetes"
KUBE_VERSION = "1.34"
# Files of which the chart holds copies.
COPIES = {
    DEPLOY / "prometheus/alerts.yaml": CHART / "files/alerts.yaml",
    DEPLOY / "grafana/binlog-dispatcher.json": CHART / "files/binlog-dispatcher.json",
}
_EXAMPLE = DEPLOY / "helm/example-values.yaml"
_MIRROR = DEPLOY / "helm/example-mirror-values.yaml"
_TWO_DAEMONS = DEPLOY / "helm/example-two-daemons-values.yaml"
# Names of the rendered files, with the arguments of helm.
MANIFESTS: dict[str, tuple[str, ...]] = {
    "binlog-dispatcher.yaml": ("-f", str(_EXAMPLE)),
    "two-daemons.yaml": ("-f", str(_TWO_DAEMONS)),
    "mirror-job.yaml": (
        "-f", str(_MIRROR), "-s", "templates/mirror-settings.yaml", "-s", "templates/mirror-job.yaml",
    ),
    "mirror-job-with-executors.yaml": (
        "-f", str(_MIRROR), "--set", "mirror.kind=JobWithExecutors", "-s", "templates/mirror-settings.yaml",
        "-s", "templates/mirror-executors.yaml", "-s", "templates/mirror-job.yaml",
    ),
    "mirror-sparkapplication.yaml": (
        "-f", str(_MIRROR), "--set", "mirror.kind=SparkApplication",
        "-s", "templates/mirror-settings.yaml", "-s", "templates/mirror-sparkapplication.yaml",
    ),
}  # fmt: skip
# Beginnings of the lines that Helm adds to a manifest. The plain manifests leave these lines out.
_OF_HELM = ("app.kubernetes.io/managed-by:", "helm.sh/chart:", "# Source:")


def helm() -> str:
    """Returns the program: $HELM, or the one on PATH, or the one that `deploy/setup.sh helm` builds."""
    if named := os.environ.get("HELM") or shutil.which("helm"):
        return named
    return str(DEPLOY.parent / ".cache/bin/helm")


def template(*arguments: str) -> str:
    """Returns the chart rendered with Helm. Raises CalledProcessError; its `stderr` says why."""
    command = [
        helm(),
        "template",
        "binlog-dispatcher",
        str(CHART),
        "--namespace",
        "binlog-dispatcher",
    ]
    done = subprocess.run(
        [*command, "--kube-version", KUBE_VERSION, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def digest() -> str:
    """Returns a digest of all files that the manifests are rendered from, and of the arguments."""
    whole = hashlib.sha256()
    files = [path for path in CHART.rglob("*") if path.is_file()]
    for path in sorted([*files, _EXAMPLE, _MIRROR, _TWO_DAEMONS]):
        whole.update(f"{path.relative_to(DEPLOY)}\n".encode() + path.read_bytes())
    for name, arguments in MANIFESTS.items():
        relative = [argument.removeprefix(str(DEPLOY)) for argument in arguments]
        whole.update(f"{name} {relative}\n".encode())
    return whole.hexdigest()


def rendered(name: str, arguments: Sequence[str]) -> str:
    """The content of a manifest."""
    lines = [
        line for line in template(*arguments).splitlines() if not line.strip().startswith(_OF_HELM)
    ]
    first = f"# Rendered from deploy/helm by `make manifests`; change the chart, not this file. {digest()}\n"
    what = f"# docs/kubernetes.md describes it: kubectl apply -f deploy/kubernetes/{name}\n"
    return first + what + "\n".join(lines) + "\n"


def copy_files() -> None:
    for source, copy in COPIES.items():
        copy.write_bytes(source.read_bytes())


def main() -> None:
    copy_files()
    RENDERED.mkdir(exist_ok=True)
    for name, arguments in MANIFESTS.items():
        (RENDERED / name).write_text(rendered(name, arguments), encoding="utf-8")


if __name__ == "__main__":
    main()
