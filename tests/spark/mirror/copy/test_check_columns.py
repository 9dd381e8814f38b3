"""`binlog-mirror check` compares the columns that the settings mask or leave out with the tables of real servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_sink.mirror.check_command import Findings, check_mirror
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.source.http.client import ConsumerClient
from tests.servers import Server
from tests.spark.mirror.copy.conftest import PASSWORD, READER, add_reader

NewDatabase = Callable[[Server], str]


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has the consumer."""
    monkeypatch.setattr(ConsumerClient, "open_session", lambda *_, **__: None)


def checked(server: Server, target: Path, tables: dict[str, Any], name: str = READER) -> Findings:
    add_reader(server)
    values = {
        "url": "http://127.0.0.1:8085",
        "target": str(target),
        "consumers": ["shop"],
        "copy": {"mysql": f"{name}@{server.host}:{server.port}", "password": PASSWORD},
        "tables": tables,
    }
    return check_mirror(MirrorSettings.model_validate(values))


def made(server: Server, database: str) -> str:
    server.execute(
        f"CREATE TABLE {database}.customers (id INT PRIMARY KEY, Email TEXT, name TEXT)",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note TEXT)",
    )
    return database


def test_a_misspelt_column_is_an_error(
    any_server: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = made(any_server, new_database(any_server))
    tables = {
        f"{d}.customers": {"mask": {"emial": "sha256", "name": "last4"}, "omit_columns": ["total"]},
        f"{d}.*": {"mask": {"EMAIL": "sha256", "note": "null", "nte": "null"}},
    }
    assert checked(any_server, tmp_path, tables).errors == [
        f"tables.{d}.customers.mask: table {d}.customers has no column emial, so nothing is masked by this name; did"
        " you mean Email?",
        f"tables.{d}.customers.omit_columns: table {d}.customers has no column total, so nothing is left out by this"
        " name; correct it or remove it from omit_columns",
        # `customers` has masks of its own, so this pattern concerns `orders` alone.
        f"tables.{d}.*.mask: table {d}.orders has no column EMAIL, so nothing is masked by this name; correct it or"
        " remove it from mask",
        f"tables.{d}.*.mask: table {d}.orders has no column nte, so nothing is masked by this name; did you mean note?",
    ]


def test_a_column_of_any_table_that_fits_a_pattern_is_enough(
    any_server: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = made(any_server, new_database(any_server))
    found = checked(any_server, tmp_path, {f"{d}.*": {"mask": {"email": "null", "note": "null"}}})
    assert found.errors == []
    assert not any("mask:" in text for text in found.warnings)
    (error,) = checked(any_server, tmp_path, {f"{d}.*": {"mask": {"emial": "null"}}}).errors
    assert f"no table that fits {d}.* has a column emial" in error
    assert error.endswith("; did you mean Email?")


def test_what_the_account_does_not_see_is_a_warning(
    any_server: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = made(any_server, new_database(any_server))
    mask = {"mask": {"emial": "null"}}
    tables = {
        f"{d}.customer": mask,
        "other_*.*": mask,
        f"{d}.ord*": {"mask": {"note": "null"}},
        f"{d}.orders": mask,
    }
    found = checked(any_server, tmp_path, tables)
    assert found.errors == []
    table, pattern, without_effect, _ = found.warnings
    assert table == (
        f"tables.{d}.customer.mask: the account sees no table that fits {d}.customer, so its columns were not checked;"
        f" did you mean {d}.customers?"
    )
    assert "the account sees no table that fits other_*.*" in pattern
    assert "it has no effect, because an earlier pattern of tables sets mask" in without_effect


def test_a_column_that_the_account_may_not_see_is_a_warning(
    mysql97: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = made(mysql97, new_database(mysql97))
    mysql97.execute(
        f"CREATE USER sees_columns IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT (id, name) ON {d}.customers TO sees_columns",
    )
    mask = {"email": "null", "name": "null"}
    found = checked(mysql97, tmp_path, {f"{d}.customers": {"mask": mask}}, "sees_columns")
    assert found.errors == []
    assert "has no column email" in found.warnings[0]
    assert "the account sees only some columns; GRANT SELECT on the table" in found.warnings[0]


def test_a_generated_invisible_key_is_a_column(
    mysql97: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = new_database(mysql97)
    mysql97.execute(
        "SET SESSION sql_generate_invisible_primary_key = ON", f"CREATE TABLE {d}.t (a INT)"
    )
    assert checked(mysql97, tmp_path, {f"{d}.t": {"omit_columns": ["my_row_id"]}}).errors == []


def test_the_times_of_a_versioned_table_are_columns(
    mariadb118: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    d = new_database(mariadb118)
    mariadb118.execute(f"CREATE TABLE {d}.t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    assert checked(mariadb118, tmp_path, {f"{d}.t": {"omit_columns": ["row_start"]}}).errors == []
