"""Runs the steps of the Dockerfile without a container engine: `python -m deploy.image.chroot [daemon|mirror]`.

The base image is replaced by the same Debian release from `debootstrap`; every other step is executed as it is written,
each stage in a folder that is its root. Then the image is run as a container would be: with its own user, a read-only
root, a fresh volume and a /tmp of its own. The program needs root, and Debian's package debootstrap.

It does not check that the base image is available and has its digest, nor that an engine understands the Dockerfile.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.image.dockerfile import Instruction, Stage, parse_dockerfile

ROOT = Path(__file__).parents[2]
# Debian 13 has Python 3.13, as the base image has.
SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
DEADLINE_S = 90.0
# Files and variables with which this machine reaches package registries; they are not part of the image.
_NETWORK_FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/java/cacerts",
)
_NETWORK_VARIABLES = ("PIP_", "SSL_CERT", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_SETTINGS = """\
consumers:
  shop: {mysql: "repl@127.0.0.1:1", password: "${REPL_PASSWORD}", databases: [shop]}
api:
  listen: "127.0.0.1:18085"
  tokens: [{token: "${API_TOKEN}", consumers: all}]
state: {path: /var/lib/binlog-dispatcher/state.db}
"""


@dataclass(slots=True)
class Tree:
    """A stage that was built: its root folder, and the settings that the next stage inherits."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


class Builder:
    """Builds stages below `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._stages = parse_dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
        self._built: dict[str, Tree] = {}

    def build(self, name: str) -> Tree:
        """Returns the tree of a stage, which the first call builds. Raises CalledProcessError if a step fails."""
        if name not in self._built:
            self._built[name] = self._build(self._stages[name])
        return self._built[name]

    def _build(self, stage: Stage) -> Tree:
        if stage.base in self._stages:
            base = self.build(stage.base)
            tree = Tree(self._work / stage.name, dict(base.environment), base.folder, base.user)
            _run(["cp", "-a", "--reflink=auto", base.root, tree.root])
        else:
            tree = Tree(self._work / stage.name, {"PATH": _PATH})
            self._bootstrap(tree.root)
        for instruction in stage.instructions:
            _say(f"{stage.name}: {instruction.name} {instruction.text[:90]}")
            self._step(tree, instruction)
        return tree

    @staticmethod
    def _bootstrap(root: Path) -> None:
        _say(f"debootstrap {SUITE}, in place of the base image")
        _run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root], quiet=True)
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")

    def _step(self, tree: Tree, step: Instruction) -> None:
        match step.name:
            case "ENV":
                for word in step.words:
                    name, _, value = word.partition("=")
                    tree.environment[name] = value.replace("$PATH", tree.environment["PATH"])
            case "WORKDIR":
                tree.folder = step.words[0]
                _inside(tree.root, tree.folder).mkdir(parents=True, exist_ok=True)
            case "RUN":
                with _network(tree.root) as environment:
                    _enter(tree, ["sh", "-c", step.text], environment)
            case "COPY":
                self._copy(tree, step)
            case "USER":
                tree.user = step.words[0]
            case "VOLUME":
                tree.volumes += step.words
            case "ENTRYPOINT":
                tree.entrypoint = step.words
            case "CMD":
                tree.command = step.words
            case "HEALTHCHECK":
                tree.healthcheck = () if step.words == ("NONE",) else step.words
            case "EXPOSE":
                pass
            case _:
                raise ValueError(f"not understood: {step.name} {step.text}")

    def _copy(self, tree: Tree, step: Instruction) -> None:
        *sources, target = step.words
        origin = self.build(step.options["from"]).root if "from" in step.options else ROOT
        place = _inside(tree.root, os.path.join(tree.folder, target))  # noqa: PTH118 - a path of the image
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__") if origin == ROOT else None
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True, ignore=ignored)
            else:
                file = place / path.name if target.endswith("/") else place
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, file)


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


@contextmanager
def _network(root: Path) -> Iterator[dict[str, str]]:
    """Give a step this machine's access to registries during the block. Yields environment variables for the step. The
    files are removed from the image at the end."""
    kept: dict[Path, bytes | None] = {}
    for name in _NETWORK_FILES:
        here, there = Path(name), _inside(root, name)
        if here.exists() and there.parent.is_dir():
            kept[there] = there.read_bytes() if there.exists() else None
            there.write_bytes(here.read_bytes())
    try:
        yield {k: v for k, v in os.environ.items() if k.startswith(_NETWORK_VARIABLES)}
    finally:
        for there, content in kept.items():
            if content is None:
                there.unlink(missing_ok=True)
            else:
                there.write_bytes(content)


def _enter(tree: Tree, command: Sequence[str], environment: dict[str, str]) -> None:
    """Run a step of the build, as root, with /proc and /dev."""
    mounts = f"mount -t proc proc {tree.root}/proc && mount --rbind /dev {tree.root}/dev"
    inner = shlex.join(
        ["chroot", str(tree.root), "sh", "-c", f'cd {tree.folder} && exec "$@"', "-", *command]
    )
    _run(
        ["unshare", "--mount", "--fork", "sh", "-ec", f"{mounts} && exec {inner}"],
        environment={**environment, **tree.environment, "HOME": "/root"},
        quiet=True,
    )


def container(tree: Tree, command: Sequence[str], mounts: dict[Path, str]) -> list[str]:
    """Returns a command that runs `command` as in a container: with a read-only root, and as the image's user.

    `mounts`: for each folder of this machine, its place in the image.
    """
    root = tree.root
    lines = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc"]
    lines += [f"mount --rbind /dev {root}/dev", f"mount -t tmpfs tmpfs {root / 'tmp'}"]
    for here, there in mounts.items():
        _inside(root, there).mkdir(parents=True, exist_ok=True)
        lines.append(f"mount --bind {here} {_inside(root, there)}")
    lines.append(f"mount -o remount,bind,ro {root}")
    go = shlex.join(["sh", "-c", f'cd {tree.folder} && exec "$@"', "-", *command])
    lines.append(f"exec chroot --userspec={tree.user} {root} {go}")
    return ["unshare", "--mount", "sh", "-ec", "\n".join(lines)]


def check_daemon(tree: Tree, work: Path) -> None:
    """Run the daemon until its health check succeeds, then end it. Raises RuntimeError."""
    settings, volume, log = work / "settings", work / "volume", work / "log"
    settings.mkdir()
    (settings / "dispatcher.yaml").write_text(_SETTINGS, encoding="utf-8")
    volume.mkdir()
    shutil.chown(volume, 8085, 8085)
    mounts = {volume: "/var/lib/binlog-dispatcher", settings: "/etc/binlog-dispatcher"}
    environment = {**tree.environment, "REPL_PASSWORD": "secret", "API_TOKEN": "0123456789abcdef"}
    command = container(tree, [*tree.entrypoint, *tree.command], mounts)
    # The health check asks the image's port; here the daemon listens on another port, which is free.
    probe = [word.replace(":8085/", ":18085/") for word in tree.healthcheck]
    began = time.monotonic()
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            while subprocess.run(
                container(tree, probe, mounts),
                env=environment,
                stderr=subprocess.DEVNULL,
                check=False,
            ).returncode:
                if daemon.poll() is not None or time.monotonic() - began > DEADLINE_S:
                    raise RuntimeError(f"the daemon is not healthy:\n{log.read_text()}")
                time.sleep(0.2)
            _say(f"healthy after {time.monotonic() - began:.1f} s")
        finally:
            daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(30)
    said = log.read_text()
    if code != 0 or "compiling kernels" in said or not (volume / "state.db").exists():
        raise RuntimeError(f"exit code {code}:\n{said}")
    _say("ended with 0; its kernels are those of the build, its state is in the volume")


# Spark finds the jars of Delta and of S3 without a setting, and writes to /tmp only.
_DELTA_PROGRAM = """
from pyspark.sql import SparkSession
from spark_sink.jars import delta_jars, delta_settings, s3_jars

assert delta_jars(), "no jars"
assert not s3_jars(), "the jars of S3 are not beside Spark's"
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
for name, value in delta_settings().items():
    if name != "spark.jars":
        builder = builder.config(name, value)
spark = builder.getOrCreate()
spark._jvm.java.lang.Class.forName("org.apache.hadoop.fs.s3a.S3AFileSystem")
spark.range(3).write.format("delta").save("/tmp/table")
assert spark.read.format("delta").load("/tmp/table").count() == 3
"""


def check_mirror(tree: Tree, work: Path) -> None:
    """Run commands of the mirror's image. Raises CalledProcessError."""
    volume = work / "mirror-volume"
    volume.mkdir()
    shutil.chown(volume, 8085, 8085)
    # A container engine would let the container resolve the name of its host.
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    environment = {**tree.environment, **local}
    mounts = {volume: "/var/lib/binlog-mirror"}
    for command in (["--help"], ["run", "--help"]):
        _run(
            container(tree, [*tree.entrypoint, *command], mounts),
            environment=environment,
            quiet=True,
        )
    java = "java -version 2>&1 && ls $SPARK_HOME/jars/delta-* && test ! -w /opt && test -w /tmp"
    python = ["/opt/binlog-dispatcher/bin/python", "-c", _DELTA_PROGRAM]
    for command in (python, ["sh", "-c", java]):
        _run(container(tree, command, mounts), environment=environment, quiet=True)
    _say("the mirror's commands run; Spark has written a Delta table")


def _run(
    command: Sequence[str | Path], *, environment: dict[str, str] | None = None, quiet: bool = False
) -> None:
    done = subprocess.run(
        command,
        env=environment,
        check=False,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode:
        print((done.stdout or b"").decode(errors="replace")[-4000:], file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, [str(word) for word in command])


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.image.chroot", description=__doc__)
    parser.add_argument("target", nargs="?", default="daemon", choices=["daemon", "mirror"])
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="build there, and keep it")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("run this as root, after `apt-get install debootstrap`", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="image-") as temporary:
        work = options.keep or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        work.chmod(0o755)  # the image's user must be able to enter it
        tree = Builder(work).build(options.target)
        check = check_daemon if options.target == "daemon" else check_mirror
        check(tree, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
