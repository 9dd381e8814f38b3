"""Which files of a folder form a log, and the messages for files that do not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dispatcher.binlog.event.types import EventType
from dispatcher.cli import app
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.source.files.folder import Folder, next_name
from tests.support import event_encoder
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    event,
    format_description,
)
from tests.support.folder_reading import (
    Dispatched,
    end_of,
    fill,
    insert,
    put,
    refused,
    source_of,
    written,
)
from tests.support.rows_encoder import Spec, table_map

# -- what is no log --------------------------------------------------------------------------------------------


def test_no_such_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "the folder cannot be read: No such file or directory"
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file") == "the folder cannot be read: Not a directory"
    assert refused(tmp_path) == "it holds no binlog files, named like binlog.000001"


async def test_a_folder_that_is_filled_later(tmp_path: Path) -> None:
    source = source_of(tmp_path / "later")
    with pytest.raises(BinlogError):
        source.open(1)
    put(tmp_path / "later", fill(LogWriter()))
    assert end_of(source).seq == 12


def test_a_gap_between_the_files(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=4)
    put(tmp_path, log)
    (tmp_path / "binlog.000003").unlink()
    assert refused(tmp_path) == "binlog.000003 is missing between binlog.000001 and binlog.000004"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            b"hello, world, this is a text",
            "is not a binlog: its first bytes are of another kind of file",
        ),
        (b"\xfdbin" + bytes(600), "is encrypted"),
        (b"\xfebin" + bytes(600), "does not begin with a FORMAT_DESCRIPTION_EVENT"),
        (b"\xfebin" + b"\xff" * 6000, "does not begin with a FORMAT_DESCRIPTION_EVENT"),
        (b"\xfebin" + event(2, bytes(80)), "does not begin with a FORMAT_DESCRIPTION_EVENT"),
    ],
)
def test_files_that_are_not_binlogs(tmp_path: Path, data: bytes, what: str) -> None:
    put(tmp_path, fill(LogWriter(), files=2))
    (tmp_path / "binlog.000003").write_bytes(data)
    assert refused(tmp_path) == f"binlog.000003 {what}"


def test_a_message_about_another_kind_of_file_shows_none_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").write_bytes(b"root:x:0:0")
    assert "root" not in refused(tmp_path)


def test_a_symbolic_link_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    put(folder, fill(LogWriter(), files=2))
    said = "binlog.000003 is a symbolic link, and links are not followed"
    for target in (tmp_path / "outside", folder / "binlog.000001", tmp_path / "missing"):
        (folder / "binlog.000003").symlink_to(target)
        assert refused(folder) == said
        (folder / "binlog.000003").unlink()


def test_a_link_among_other_numbered_files_does_not_hide_the_log(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    (tmp_path / "other.000001").symlink_to("/etc/hostname")
    assert end_of(source_of(tmp_path)).seq == len(written(log))


def test_a_file_that_is_replaced_by_a_link_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter(), files=2))
    found = Folder(tmp_path, None)
    listed = found.files()
    path = tmp_path / listed[-1].name
    path.rename(tmp_path / "kept")
    path.symlink_to(tmp_path / "kept")
    with pytest.raises(BinlogError, match="is a symbolic link"):
        found.head(listed[-1].name)


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    put(tmp_path / "logs", fill(LogWriter(), files=2))
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    assert end_of(source_of(tmp_path / "link")).seq > 0


def test_a_damaged_format_description(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter(), files=1))
    path = tmp_path / "binlog.000001"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    what = "binlog.000001 is damaged at 4: checksum mismatch: FORMAT_DESCRIPTION_EVENT"
    assert refused(tmp_path) == what
    put(tmp_path, fill(LogWriter(), files=2))
    path = tmp_path / "binlog.000002"
    raw = bytearray(path.read_bytes())
    start = raw.index(SERVER.bytes)
    raw[start + 16] = 77
    path.write_bytes(raw)
    assert refused(tmp_path).startswith(
        f"binlog.000002 is damaged at {start - 27}: malformed event: PREVIOUS_GTIDS_EVENT is damaged"
    )


def test_mariadb_s_encryption(tmp_path: Path) -> None:
    log = LogWriter(gtid="mariadb")
    log.add(EventType.MARIADB_START_ENCRYPTION, bytes(17))
    put(tmp_path, log)
    assert refused(tmp_path) == "binlog.000001 is encrypted"


async def test_damage_in_the_middle_is_reported_when_it_is_reached(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    path = tmp_path / log.files[1].name
    raw = bytearray(path.read_bytes())
    raw[log.transactions[6].end + 30] ^= 1
    path.write_bytes(raw)
    reading = Dispatched(tmp_path)
    with pytest.raises(BinlogError) as caught:
        await reading.read()
    reading.close()
    assert caught.value.kind is ErrorKind.CHECKSUM_MISMATCH
    assert f"binlog.000002:{log.transactions[6].end}" in caught.value.where
    assert reading.transactions == written(log)[:7]
    assert end_of(source_of(tmp_path)).seq == 7


def test_several_logs_in_one_folder(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    for name in (
        "aria_log.00000001",
        ".binlog.000003",
        "binlog.index",
        "binlog.000001.idx",
        "events.123456",
    ):
        (tmp_path / name).write_bytes(b"something else")
    relay = format_description()
    relay = relay[:17] + b"\x40\0" + relay[19:]
    (tmp_path / "db1-relay-bin.000007").write_bytes(b"\xfebin" + relay)
    (tmp_path / "binlog.000009").mkdir()
    assert end_of(source_of(tmp_path)).file == "binlog.000002"
    assert refused(tmp_path, prefix="db1-relay-bin") == "db1-relay-bin.000007 is a relay log"
    assert (
        refused(tmp_path, prefix="mysql-bin")
        == "it holds no binlog files, named like mysql-bin.000001"
    )
    shutil.copy(tmp_path / "binlog.000001", tmp_path / "mysql-bin.000001")
    assert refused(tmp_path) == "it holds several logs: binlog, mysql-bin"
    source = source_of(tmp_path, prefix="mysql-bin")
    assert source.label == f"files:{tmp_path}/mysql-bin"
    assert end_of(source).file == "binlog.000002"  # the last file's ROTATE names it


def test_a_log_without_transactions(tmp_path: Path) -> None:
    put(tmp_path, LogWriter())
    assert "no transaction in the files yet" in refused(tmp_path)
    put(tmp_path, LogWriter(gtid="mariadb"))
    assert source_of(tmp_path).open(1).mode is Mode.MARIADB


async def test_a_log_in_which_gtids_were_turned_on(tmp_path: Path) -> None:
    """The daemon reads all files, with and without GTIDs, by file and offset."""
    log = fill(LogWriter(gtid="anonymous"), files=2)
    log.rotate()
    log.gtid = "mysql"
    log.begin_file()
    del log.files[2]
    log.file.name = "binlog.000003"
    insert(log)
    log.transactions[-1].file = "binlog.000003"
    put(tmp_path, log)
    assert source_of(tmp_path).open(1).mode is Mode.FILE
    reading = await Dispatched(tmp_path).read()
    assert reading.transactions == written(log)
    assert reading.position.gtid == f"{SERVER}:1"
    for name in ("binlog.000001", "binlog.000002"):
        (tmp_path / name).unlink()
    assert source_of(tmp_path).open(1).mode is Mode.GTID


def test_the_tip_is_found_again_without_reading_all_of_the_file(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=1)
    put(tmp_path, log)
    source = source_of(tmp_path)
    assert end_of(source).seq == 4
    scanned: list[int] = []
    scan = source.folder.scan

    def count(name: str, head: object, offset: int, gtids: object) -> object:
        scanned.append(offset)
        return scan(name, head, offset, gtids)  # type: ignore[arg-type]

    source.folder.scan = count  # type: ignore[assignment, method-assign]
    end = log.file.size
    insert(log)
    put(tmp_path, log)
    tip = end_of(source)
    assert (tip.seq, tip.offset, scanned) == (5, log.file.size, [end])


def test_files_do_not_tell_the_columns_of_a_table(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter()))
    with pytest.raises(BinlogError) as caught:
        source_of(tmp_path).server()
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert "binlog_row_metadata=FULL" in caught.value.remedy


async def test_tables_that_the_log_does_not_describe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bare(database: str, table: str, table_id: int) -> bytes:
        columns = [Spec("id", 3)]
        return table_map(columns, database=database, table=table, table_id=table_id, full=False)

    monkeypatch.setattr(event_encoder, "table_map_body", bare)
    put(tmp_path, fill(LogWriter()))
    reading = Dispatched(tmp_path)
    await reading.read(lambda: reading.client.consumers["all"].failed is not None)
    reading.close()
    failed = reading.client.consumers["all"].failed
    assert failed is not None and failed.kind is ErrorKind.METADATA_MISSING
    assert "table shop.orders at binlog.000001:" in failed.what
    assert "mysql: instead of files:" in failed.remedy


def test_check_reports_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "good", fill(LogWriter()))
    put(tmp_path / "gap", fill(LogWriter()))
    (tmp_path / "gap" / "binlog.000002").unlink()
    text = """\
consumers:
  a: {files: {path: good}, databases: [shop]}
  b: {files: {path: gap, follow: false}, databases: [shop]}
  c: {files: {path: gap, follow: false}, databases: [depot]}
"""
    config = tmp_path / "dispatcher.yaml"
    config.write_text(text)
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert done.exit_code == 2
    assert done.stderr == (
        f"files:{tmp_path}/gap: binlog files: binlog.000002 is missing between binlog.000001 and binlog.000003;"
        " copy the missing files too, or remove the files before the gap (for consumers.b, consumers.c)\n"
    )
    config.write_text(text.replace("path: gap", "path: good"))
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "consumers.b.files.follow: differs from consumers.a (False and True)" in done.stderr
    config.write_text(text.replace("path: gap, follow: false", "path: good"))
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (0, "OK: 3 consumers checked, no errors\n")


def test_names() -> None:
    assert next_name("binlog.000009") == "binlog.000010"
    assert next_name("a.b.999999") == "a.b.1000000"
    assert Folder(Path("/x"), None).label == "files:/x"
