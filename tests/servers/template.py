"""The initialised data directory of each version. It is made once; instances are sparse copies of it.

A template has no server uuid (auto.cnf) and no binlogs. Its only account is root@localhost without a password; only the
owner of the socket's folder can connect as it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from spark_sink.cache import cache_dir, cached_folder
from tests.servers.installs import Installation, Kind, installation
from tests.servers.tools import ServerUnavailable, run

LOWER_CASE = "--lower-case-table-names="
_WHILE_MAKING = ("--innodb-buffer-pool-size=64M", "--default-time-zone=+00:00")


def redo_log_size(kind: Kind) -> str:
    """Returns the option for a small redo log. Each instance copies the redo log, which has 48 to 100 MB by default."""
    return "--innodb-redo-log-capacity=8M" if kind == "mysql97" else "--innodb-log-file-size=8M"


def provision(kind: Kind) -> Installation:
    """Put the programs and the template of `kind` into the cache, if they are not there."""
    installed = installation(kind)
    template(installed)
    return installed


def template(installed: Installation, options: Sequence[str] = ()) -> Path:
    """The template data directory for `installed`, made on the first call. `options`: those of the server. The data
    directory of MySQL 8.0 and later is made for one value of lower_case_table_names."""
    fixed = tuple(option for option in options if option.startswith(LOWER_CASE))
    fixed = fixed if installed.kind == "mysql97" else ()
    root = hashlib.blake2b(str(installed.root).encode(), digest_size=4).hexdigest()
    name = "".join(f"-{option.lstrip('-')}" for option in fixed)
    final = cache_dir() / f"templates/{installed.kind}-{installed.version}-{root}{name}"
    return cached_folder(final, lambda staging: _make(installed, staging / "data", fixed)) / "data"


def as_root() -> tuple[str, ...]:
    """Returns the option without which mysqld refuses to run as root."""
    return ("--user=root",) if os.geteuid() == 0 else ()


def _make(installed: Installation, data: Path, fixed: tuple[str, ...]) -> None:
    if installed.seed is not None:
        shutil.copytree(installed.seed, data)
        _bootstrap(installed, data, "DELETE FROM mysql.user WHERE user='' OR host<>'localhost';\n")
    elif installed.mariadb:
        data.mkdir()
        _bootstrap(installed, data, _mariadb_system_tables(installed.share))
    else:
        options = ("--initialize-insecure", "--secure-file-priv=", *fixed)
        _run_mysqld(installed, data, options, None)
    for left in [*data.glob("auto.cnf"), *data.glob("*.err"), *data.glob("*bin.*")]:
        left.unlink()


def _bootstrap(installed: Installation, data: Path, sql: str) -> None:
    _run_mysqld(installed, data, ("--bootstrap",), sql)


def _run_mysqld(
    installed: Installation, data: Path, options: tuple[str, ...], sql: str | None
) -> None:
    run(
        [*installed.mysqld, *as_root(), f"--datadir={data}"]
        + [*_WHILE_MAKING, redo_log_size(installed.kind), *options],
        what=f"initialise a data directory of {installed.kind}",
        env={**os.environ, **installed.environment, "LC_ALL": "C"},
        stdin=sql,
    )


def _mariadb_system_tables(share: Path) -> str:
    """Returns the statements that mariadb-install-db sends to the server. The script itself needs an installed
    system."""
    sql = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
    parts = ("system_tables", "performance_tables", "system_tables_data")
    for names in [*((f"mariadb_{part}.sql", f"mysql_{part}.sql") for part in parts)] + [
        ("maria_add_gis_sp_bootstrap.sql",),
        ("mariadb_sys_schema.sql", "mysql_sys_schema.sql"),
    ]:
        found = next((share / name for name in names if (share / name).exists()), None)
        if found is None:
            raise ServerUnavailable(f"{share} has none of {', '.join(names)}")
        sql += found.read_text(encoding="utf-8") + "\n"
    return sql
