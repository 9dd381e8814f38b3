"""Finds the settings with which the server of the state's database may lose committed writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dispatcher.state.statements import Statements

_VARIABLES = ("innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog")


def variables_of(db: Statements, names: tuple[str, ...]) -> dict[str, str]:
    """Returns the values, by name, of the given global variables that the server has."""
    wanted = ", ".join(f"'{name}'" for name in names)
    rows = db.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})")
    return {str(name).lower(): str(value) for name, value in rows}


def durability_warnings(db: Statements) -> tuple[str, ...]:
    """Returns a line for each setting with which a crash of the server may lose acknowledged positions."""
    return tuple(_warnings(variables_of(db, _VARIABLES)))


def _warnings(variables: Mapping[str, str]) -> Iterator[str]:
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush != "1":
        yield _warning("innodb_flush_log_at_trx_commit", flush)
    sync = variables.get("sync_binlog", "1")
    if variables.get("log_bin", "OFF").upper() in ("ON", "1") and sync != "1":
        yield _warning("sync_binlog", sync)


def _warning(name: str, value: str) -> str:
    return (
        f"{name}={value}: a crash of the state's server may lose positions that were acknowledged; SET GLOBAL {name} ="
        " 1, and the same in the server's option file"
    )
