"""Masked columns are equal in a table that was made from the log, in its copy, in its history, and for `verify`. No
file of a table has the unmasked values."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import Mask, MaskForm
from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.request_commands import request_copies, request_resolution
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.mirror.verify.verify import Verdict, verify
from tests.spark.mirror.copy.conftest import copy_settings
from tests.spark.mirror.copy.test_verify import RealMirror, real

__all__ = ["real"]

SECRET = b"a secret of the mirror"
TYPES = {
    "i": ("INT", "-5"), "u": ("BIGINT UNSIGNED", "18446744073709551615"), "y": ("YEAR", "2024"),
    "d": ("DECIMAL(12,3)", "-0.5"), "w": ("DECIMAL(60,2)", "5.25"), "f": ("FLOAT", "0.1"), "r": ("DOUBLE", "-1e300"),
    "c": ("CHAR(9)", "'ä b'"), "v": ("VARCHAR(40) CHARACTER SET latin1", "'é@example.com'"),
    "t": ("TEXT", "'secret-text'"),
    "b": ("BINARY(4)", "X'01'"), "z": ("BLOB", "X'00FF'"), "j": ("JSON", "'{\"a\": [1, null]}'"),
    "k": ("BIT(9)", "b'1'"),
    "e": ("ENUM('x','y')", "'y'"), "s": ("SET('x','y')", "'x,y'"), "da": ("DATE", "'2024-02-29'"),
    "dt": ("DATETIME(3)", "'2024-02-29 01:02:03.5'"), "ts": ("TIMESTAMP(6) NULL", "'2024-02-29 01:02:03.5'"),
    "ti": ("TIME(2)", "'-838:59:59'"),
}  # fmt: skip
FORMS = {"v": MaskForm.LAST4, "t": MaskForm.KEYED, "z": MaskForm.KEYED}
MASKS = (
    ("id", Mask(MaskForm.KEYED, SECRET)),
    ("g", Mask(MaskForm.NULL)),
    *((name, Mask(FORMS.get(name, MaskForm.SHA256), SECRET)) for name in TYPES),
)
POLICY = TablePolicy(masks=MASKS, history=True)


class MaskedMirror(RealMirror):
    def server(self) -> CopyServer:
        return CopyServer.of_settings(copy_settings(self.source.server), lambda _: POLICY)


def rows_of(mirror: RealMirror, table: str) -> list[dict[str, Any]]:
    return sorted(mirror.target.rows(mirror.source, table), key=str)


def test_a_copy_equals_the_table_of_the_log(real: RealMirror) -> None:
    mirror = MaskedMirror(real.spark, real.source, real.target, policy=POLICY)
    source = mirror.source
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    values = ", ".join(value for _, value in TYPES.values())
    source.execute(
        f"CREATE TABLE t (id VARCHAR(20) PRIMARY KEY, {columns}, g POINT, plain INT)",
        f"INSERT INTO t VALUES ('one', {values}, POINT(1, 2), 1)",
        "INSERT INTO t (id, plain) VALUES ('two', 2), ('three', 3)",
        "UPDATE t SET plain = 4, t = 'another-text' WHERE id = 'two'",
        "UPDATE t SET id = 'four' WHERE id = 'one'",
        "DELETE FROM t WHERE id = 'three'",
    )
    mirror.feed_real()
    assert mirror.apply() == 0
    logged = rows_of(mirror, "t")
    by_plain = {row["plain"]: row for row in logged}
    assert set(by_plain) == {1, 4}
    assert by_plain[1]["i"] == hashlib.sha256(b"-5").hexdigest()
    assert by_plain[1]["v"] == "****.com"
    assert by_plain[1]["g"] is None
    (equal,) = mirror.verify("t")
    assert equal.verdict is Verdict.EQUAL, str(equal)

    mirror.ask("t", Wish.RECOPY)
    copier = Copier(
        mirror.spark, copy_settings(source.server), str(mirror.target.path), policy=lambda _: POLICY
    )
    stop = threading.Event()
    assert Applier(mirror.spark, mirror.options(can_copy=True), copier).run(stop, drain=True) == 0
    assert mirror.record("t").word is TableState.COMPLETE
    assert rows_of(mirror, "t") == logged
    (equal,) = mirror.verify("t")
    assert equal.verdict is Verdict.EQUAL, str(equal)
    history = rows_of(mirror, "t__history")
    assert {row["t"] for row in history if row["t"]} >= {row["t"] for row in logged}
    assert not _files_with(mirror.target.path / source.database, b"secret-text", b"another-text")


def by_name(name: TableName) -> TablePolicy:
    """Masks the column of one table."""
    masks = (("mail", Mask(MaskForm.SHA256)),) if name[1] == "people" else ()
    return TablePolicy(masks=masks, history=True)


def test_the_printed_copy_lets_a_table_go_on_under_a_name_without_masks(real: RealMirror) -> None:
    source, path = real.source, str(real.target.path)
    server = CopyServer.of_settings(copy_settings(source.server), by_name)
    copier = Copier(real.spark, copy_settings(source.server), path, policy=by_name)
    options = replace(real.options(can_copy=True), policy=by_name)

    def applied(stopped: int = 0) -> None:
        real.feed_real()
        code = Applier(real.spark, options, copier).run(threading.Event(), drain=True)
        assert code == stopped

    def is_equal(table: str) -> bool:
        (found,) = verify(real.spark, server, path, [(source.database, table)])
        return found.verdict is Verdict.EQUAL

    source.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, mail VARCHAR(40))",
        "INSERT INTO people VALUES (1, 'clear-1@example.com')",
    )
    applied()
    source.execute("RENAME TABLE people TO former", "INSERT INTO former VALUES (2, 'clear-2')")
    applied(stopped=1)
    record = real.record("former")
    assert record.word is TableState.STOPPED
    assert "mask column mail in" in record.reason and "--as recopy" in record.reason
    assert not _files_with(real.target.path / source.database, b"clear-")
    (asked,) = request_resolution(real.control, [record.label], Wish.RECOPY)
    assert asked.label == record.label
    applied()
    assert real.record("former").word is TableState.COMPLETE and is_equal("former")
    assert [row["mail"] for row in rows_of(real, "former")] == ["clear-1@example.com", "clear-2"]
    # Under the name with a mask, no row of the table and no new version of its history shows the value.
    source.execute("RENAME TABLE former TO people")
    applied()
    assert real.record("people").word is TableState.COMPLETE and is_equal("people")
    history = [row["mail"] for row in rows_of(real, "people__history")]
    assert not any("clear-" in mail for mail in history)


def test_a_complete_table_is_copied_when_its_masks_change(
    real: RealMirror, caplog: pytest.LogCaptureFixture
) -> None:
    source, path = real.source, str(real.target.path)
    source.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, mail VARCHAR(40))",
        "INSERT INTO people VALUES (1, 'clear-1@example.com')",
    )
    real.feed_real()
    assert real.apply() == 0
    label = real.record("people").label
    copy = copy_settings(source.server)
    settings = MirrorSettings.model_validate(
        {
            "url": "http://127.0.0.1:1",
            "target": path,
            "consumers": [real.consumer],
            "copy": {"mysql": copy.mysql, "password": copy.secret},
            "tables": {label: {"mask": {"mail": "sha256"}}},
        }
    )
    copier = Copier(real.spark, copy, path, policy=settings.table_policy)
    options = replace(real.options(can_copy=True), policy=settings.table_policy)
    assert Applier(real.spark, options, copier).run(threading.Event(), drain=True) == 0
    assert f"{label} shows mail as the former settings" in caplog.text
    assert f"python -m spark_sink copy {label}" in caplog.text
    server = CopyServer.of_settings(copy, settings.table_policy)
    (found,) = verify(real.spark, server, path, [(source.database, "people")])
    assert found.verdict is Verdict.NOT_COMPARED
    assert "shows mail as the former settings of mask say" in found.reason
    asked = request_copies(real.control, settings, [f"{source.database}.*"])
    assert asked.chosen == [(source.database, "people")]
    real.feed_real()
    assert Applier(real.spark, options, copier).run(threading.Event(), drain=True) == 0
    wanted = hashlib.sha256(b"clear-1@example.com").hexdigest()
    assert [row["mail"] for row in rows_of(real, "people")] == [wanted]
    asked = request_copies(real.control, settings, [f"{source.database}.*"])
    assert asked.chosen == [] and asked.complete == [(source.database, "people")]


def _files_with(folder: Path, *texts: bytes) -> list[Path]:
    """Returns the files that have one of the texts, also in their statistics."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [file for file in files if any(text in file.read_bytes() for text in texts)]
