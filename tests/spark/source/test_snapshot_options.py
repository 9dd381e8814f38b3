"""The options of a stream that begins with a snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.model.errors import UserError
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.options import SourceOptions
from spark_sink.source.snapshot_options import SnapshotSettings

OPTIONS = {
    "url": "http://daemon:8085",
    "consumer": "shop",
    "tables": "shop.*",
    "startingOffsets": "snapshot",
    "mysql": "reader@db1:3307",
    "mysqlPasswordFile": "/run/secrets/reader",
}


def parse(*left_out: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({k: v for k, v in OPTIONS.items() if k not in left_out} | more)


def test_all_options_are_read() -> None:
    given = {"mysqlTls": "VERIFY_CA", "mysqlCaFile": "/ca.pem", "snapshotRowsPerSecond": "500"}
    parsed = parse(**given)
    assert parsed.start is None
    assert parsed.snapshot == SnapshotSettings(
        "reader", "db1", 3307, "/run/secrets/reader", "", "verify_ca", "/ca.pem", 500
    )
    assert parse("startingOffsets", "mysql", "mysqlPasswordFile").snapshot is None


@pytest.mark.parametrize(
    ("left_out", "more", "finding"),
    [
        ("tables", {}, "startingOffsets=snapshot needs 'table' or 'tables'"),
        ("tables", {"raw": "true", "table": "a.b"}, "startingOffsets=snapshot and 'raw' exclude"),
        ("mysql", {}, "needs 'mysql': the server that rows are read from"),
        ("", {"mysql": "a:b@db"}, "option 'mysql': must not contain a password"),
        ("", {"mysql": "a@db1,db2"}, "option 'mysql' names 2 hosts, but a snapshot reads one server"),
        ("mysqlPasswordFile", {}, "needs either 'mysqlPasswordFile' or 'mysqlPasswordVariable'"),
        ("", {"mysqlPasswordVariable": "P"}, "needs either 'mysqlPasswordFile' or"),
        ("", {"mysqlTls": "on"}, "option 'mysqlTls' must be one of disabled,"),
        ("", {"mysqlCaFile": "/ca.pem"}, "option 'mysqlCaFile' needs mysqlTls=verify_ca or verify_identity"),
        ("", {"mysqlCaFile": "/ca.pem", "mysqlTls": "required"}, "because mysqlTls=required accepts any"),
        ("", {"snapshotRowsPerSecond": "fast"}, "option 'snapshotRowsPerSecond' must be a number"),
        ("startingOffsets", {}, "option 'mysql' needs startingOffsets=snapshot"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused(left_out: str, more: dict[str, str], finding: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(left_out, **more)
    assert finding in caught.value.what


def test_the_password_is_in_no_text_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of-a-file\n", encoding="utf-8")
    of_file = parse(mysqlPasswordFile=str(tmp_path / "secret"))
    monkeypatch.setenv("SNAPSHOT_VARIABLE", "of-a-variable")
    of_variable = parse("mysqlPasswordFile", mysqlPasswordVariable="SNAPSHOT_VARIABLE")
    for options, password in ((of_file, "of-a-file"), (of_variable, "of-a-variable")):
        assert options.snapshot is not None
        assert options.snapshot.password() == password
        assert password not in repr(options)


def test_a_password_that_cannot_be_read_says_where_it_was_sought(tmp_path: Path) -> None:
    missing = parse(mysqlPasswordFile=str(tmp_path / "none")).snapshot
    unset = parse("mysqlPasswordFile", mysqlPasswordVariable="SNAPSHOT_UNSET").snapshot
    assert missing is not None and unset is not None
    with pytest.raises(UserError, match=r"cannot read the password file .*none: No such file"):
        missing.password()
    with pytest.raises(UserError, match="the environment variable SNAPSHOT_UNSET is not set"):
        unset.password()


def test_a_batch_has_no_snapshot() -> None:
    source = BinlogDataSource(OPTIONS)
    with pytest.raises(UserError, match="startingOffsets=snapshot is for a stream") as caught:
        source.reader(None)  # type: ignore[arg-type]
    assert "spark.readStream" in str(caught.value)
