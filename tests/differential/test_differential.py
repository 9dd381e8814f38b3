"""With real servers: every cell decoded from the log equals the cell that SELECT returned.

The test generates tables with all types and character sets of a server, and fills, changes and empties them. It does so
with every setting of the server that changes the content of the log. All tables of one setting are in one log, which
the test reads once. `make test` generates other tables for each commit. `make test-deep` runs for DEEP_MINUTES with
random seeds, which it prints. If a table differs, the test reduces it and prints it as SQL.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.differential.catalogue import features
from tests.differential.proof import Proved, Setting, prove
from tests.differential.tables import Wanted, generate
from tests.servers import Server
from tests.support.commit_seed import VARIABLE, commit_seed

_DEEP_MINUTES = float(os.environ.get("DEEP_MINUTES", "0"))
_REFUSED_AT_MOST = (
    0.2  # if the server refuses a larger part of the statements, the generator must be corrected
)

NewDatabase = Callable[[Server], str]

_MINIMAL = Wanted(settings=("SET SESSION binlog_row_image = MINIMAL",), full=False)
_NOBLOB = Wanted(settings=("SET SESSION binlog_row_image = NOBLOB",), full=False)
_NODUP = Wanted(settings=("SET SESSION binlog_row_image = FULL_NODUP",), full=False)
_JSON_DIFFS = "SET SESSION binlog_row_value_options = PARTIAL_JSON"
_FEW_KINDS = ("json", "varchar", "int", "blob")
_PARTIAL = Wanted(only=_FEW_KINDS, settings=(_JSON_DIFFS,))
_PARTIAL_MINIMAL = replace(_MINIMAL, only=_FEW_KINDS, settings=(*_MINIMAL.settings, _JSON_DIFFS))
_COMPRESSED = Wanted(settings=("SET SESSION binlog_transaction_compression = ON",))


def _settings(kind: str) -> list[Setting]:
    """Returns all settings, each with the number of tables in one round."""
    usual = [(Wanted(), 16), (_MINIMAL, 6), (_NOBLOB, 6)]
    bare = {"binlog_checksum": "NONE"}
    if kind == "mysql97":
        usual += [(_PARTIAL, 6), (_PARTIAL_MINIMAL, 4), (_COMPRESSED, 5)]
        bare["binlog_row_metadata"] = "MINIMAL"
    elif kind == "mariadb118":
        usual.append((_NODUP, 6))
    settings = [Setting("as it is", {}, tuple(usual)), Setting("bare", bare, ((Wanted(), 6),))]
    if kind != "mysql56":  # its log names neither columns nor types
        settings.append(Setting("as logged", {}, ((Wanted(), 6),), as_logged=True))
    if kind.startswith("mariadb"):
        compressed = {"log_bin_compress": "ON", "log_bin_compress_min_len": "10"}
        sorts = ((Wanted(), 4), (_MINIMAL, 2))
        settings += [
            Setting("compressed", compressed, sorts),
            Setting("minimal metadata", {"binlog_row_metadata": "MINIMAL"}, ((Wanted(), 3),)),
            Setting("no metadata", {"binlog_row_metadata": "NO_LOG"}, ((Wanted(), 3),)),
            Setting(
                "old temporals",
                {"mysql56_temporal_format": "OFF"},
                ((Wanted(), 4),),
                old_temporals=True,
            ),
        ]  # fmt: skip
    return settings


def _prove(server: Server, database: str, setting: Setting, seed: int) -> Proved:
    able = replace(features(server), old_temporals=setting.old_temporals)
    tables = [
        table
        for i, (wanted, number) in enumerate(setting.wanted)
        for table in generate(able, wanted, number, seed + i, label=f"{i}")
    ]
    proved = prove(server, database, setting, tables)
    assert not proved.findings, "\n\n".join(
        [f"{server.kind} {server.version}, {setting.name!r}, {len(proved.findings)} tables differ"]
        + [f"to repeat it: {VARIABLE}={seed} pytest tests/differential -k {server.kind}"]
        + [f"-- {finding.why}\n{finding.sql}" for finding in proved.findings]
    )  # fmt: skip
    statements = sum(1 + len(table.transactions) for table in tables)
    refused = "\n".join(proved.refused)
    assert len(proved.refused) <= max(2, _REFUSED_AT_MOST * statements), refused
    assert proved.cells > 0
    return proved


@pytest.mark.timeout(400)  # kernels may have to be compiled
def test_the_log_decodes_to_what_select_returned(
    any_server: Server, new_database: NewDatabase
) -> None:
    database = new_database(any_server)
    for setting in _settings(any_server.kind):
        _prove(any_server, database, setting, seed=commit_seed())


@pytest.mark.skipif(not _DEEP_MINUTES, reason="make test-deep")
@pytest.mark.timeout(300 + 60 * _DEEP_MINUTES)
def test_for_many_minutes(any_server: Server, new_database: NewDatabase) -> None:
    database = new_database(any_server)
    until = time.monotonic() + 60 * _DEEP_MINUTES / 4  # four servers
    tables = rows = cells = 0
    while time.monotonic() < until:
        seed = random.randrange(10**9)
        print(f"{any_server.kind}: seed {seed}", flush=True)
        for setting in _settings(any_server.kind):
            proved = _prove(any_server, database, setting, seed)
            tables, rows, cells = (
                tables + proved.tables,
                rows + proved.rows,
                cells + proved.cells,
            )
    print(f"{any_server.kind}: {tables} tables, {rows} changes, {cells} cells", flush=True)
