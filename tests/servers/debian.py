"""Unpacks packages of any Debian suite into a folder. The module needs no root, installs nothing, and does not change
the machine's apt.

apt resolves dependencies with a private state folder in which nothing is installed. So the result contains all
libraries including libc, and a program runs with the loader of that libc, independent of the machine's libc. Maintainer
scripts never run. Packages are from the Debian mirror that the machine's apt uses. On a derivative such as Ubuntu, apt
uses no Debian mirror; there, the mirror is the one in python-apt's distribution templates. apt checks packages against
the suite's signature, and refuses a package that is not signed or was changed.

Rejected alternatives: apt-get install changes the system and starts services; chroot and containers need root or are
not available; changing the binaries' interpreter needs a tool that a new machine does not have.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers.tools import ServerUnavailable, run

MIRROR_VARIABLE = "BINLOG_DISPATCHER_DEBIAN_MIRROR"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DISTRIBUTION_TEMPLATE = Path("/usr/share/python-apt/templates/Debian.info")
# Dependencies that packages need only for their maintainer scripts and configuration. These scripts never run here.
_NOT_NEEDED = re.compile(
    r"(lib)?perl.*|.*-perl|libgdbm.*|libdb5.*|debconf.*|passwd|adduser|dpkg|tar|debianutils"
    r"|mysql-common|mariadb-common|gcc-.*-base|libc-gconv-modules-extra"
)


def unpack(prefix: Path, suites: Sequence[str], packages: Sequence[str]) -> str:
    """Unpack `packages` with all dependencies into `prefix`, from the first of `suites` that has the packages.

    Returns the unpacked packages as lines of "name version". Raises ServerUnavailable.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ServerUnavailable(
                f"this machine has no {tool}, so Debian packages cannot be unpacked on it"
            )
    mirror = _mirror()
    failures: list[str] = []
    for suite in suites:
        state = prefix.with_name(f"{prefix.name}.apt")
        shutil.rmtree(state, ignore_errors=True)
        try:
            debs = _download(state, mirror, suite, packages)
        except ServerUnavailable as failure:
            failures.append(f"{suite}: {failure}")
            continue
        for deb in debs:
            run(["dpkg-deb", "-x", deb, prefix], what=f"unpack {deb.name}")
        shutil.rmtree(state)
        return "".join(f"{' '.join(_name_and_version(deb.name))}\n" for deb in debs)
    raise ServerUnavailable("\n".join(failures))


def _mirror() -> str:
    named = os.environ.get(MIRROR_VARIABLE)
    if named:
        return named
    release = _os_release()
    if release.get("ID") == "debian":
        return _mirror_of_apt(release.get("VERSION_CODENAME", ""))
    if _DISTRIBUTION_TEMPLATE.exists():
        found = re.search(r"^BaseURI: (\S+)", _DISTRIBUTION_TEMPLATE.read_text(), re.MULTILINE)
        if found and _KEYRING.exists():
            return found[1]
    raise ServerUnavailable(
        "no Debian mirror is known: run `apt-get install python-apt-common debian-archive-keyring`"
        f" as root, or set {MIRROR_VARIABLE} to the address of one"
    )


def _mirror_of_apt(codename: str) -> str:
    listing = run(
        ["apt-get", "indextargets", "--no-release-info", "--format"]
        + ["$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        what="ask apt for its mirror",
    )
    rows = [line.split() for line in listing.splitlines() if line.strip()]
    names = {codename, "stable", "oldstable", "testing", "sid", "unstable"}
    for row in rows:
        if len(row) == 3 and row[1] in names and row[2] == "main":
            return row[0]
    raise ServerUnavailable(
        f"apt's sources name no Debian mirror; set {MIRROR_VARIABLE} to the address of one"
    )


def _os_release() -> dict[str, str]:
    path = Path("/etc/os-release")
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


def _download(state: Path, mirror: str, suite: str, packages: Sequence[str]) -> list[Path]:
    debs = state / "debs"
    for folder in (state / "lists/partial", state / "cache/archives/partial", debs):
        folder.mkdir(parents=True)
    status = state / "status"
    status.write_text("")
    sources = state / "sources.list"
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    sources.write_text(f"deb {signed}{mirror} {suite} main\n")
    settings = {
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": status,
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        # Accept a Debian mirror that is some weeks old: its packages are also signed, and the tests need no newer
        # packages.
        "Acquire::Check-Valid-Until": "false",
    }
    if os.geteuid() == 0:
        settings["APT::Sandbox::User"] = "root"  # apt's own user may not read a private folder
    apt = ["apt-get", "-qq"]
    for key, value in settings.items():
        apt += ["-o", f"{key}={value}"]
    run([*apt, "update"], what=f"read the index of {suite}")
    plan = run([*apt, "--print-uris", "-y", "install", *packages], what=f"resolve {packages[0]}")
    wanted = []
    for file_name in re.findall(r"^'[^']+' (\S+\.deb) ", plan, re.MULTILINE):
        name, version = _name_and_version(file_name)
        if not _NOT_NEEDED.fullmatch(name):
            wanted.append(f"{name}={version}")
    run([*apt, "download", *wanted], what=f"download {packages[0]}", cwd=debs)
    return sorted(debs.glob("*.deb"))


def _name_and_version(file_name: str) -> tuple[str, str]:
    name, version, _ = file_name.split("_", 2)
    return name, version.replace("%3a", ":")
