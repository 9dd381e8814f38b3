"""Files of the target are deleted or damaged. Tables and consumers that need these files stop, with a reason that
contains the files' names. All other tables and consumers continue."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.values.entries import append_of
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

pytestmark = pytest.mark.rotate(1, of="lost files")

TABLES = (
    "CREATE TABLE kept (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE lost (id INT PRIMARY KEY, v INT)",
    "INSERT INTO kept VALUES (1, 1), (2, 2)",
    "INSERT INTO lost VALUES (1, 1), (2, 2)",
)


def damage(file: Path) -> None:
    """Overwrite a file, and delete the checksum file that Hadoop has written for it."""
    file.write_bytes(b"not a file of Parquet, nor JSON")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def log_files(target: Target) -> list[Path]:
    """Returns the files of the log, oldest first."""
    found = (target.path / "_binlog" / "log").rglob("part-*.parquet")
    return sorted(found, key=lambda file: file.stat().st_mtime_ns)


# -- a table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO lost VALUES (3, 3)",
        "UPDATE lost SET v = 7 WHERE id = 1",
        "ALTER TABLE lost ADD COLUMN w INT",
        "TRUNCATE TABLE lost",
    ],
)
def test_a_table_without_its_folder_stops_alone(
    mirror: Mirror, source: Source, target: Target, change: str
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    shutil.rmtree(folder := target.of(source, "lost"))
    source.execute(change, "INSERT INTO kept VALUES (4, 4)")
    assert mirror.run() == 1
    record = mirror.record("lost")
    assert record.word is TableState.STOPPED
    assert folder in record.reason
    assert f"resolve {record.label} --as recopy" in record.reason
    assert_equal(source, target, "kept")


def test_a_table_without_key_and_folder_is_not_made_anew(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE bare (id INT)", "INSERT INTO bare VALUES (1), (1)")
    assert mirror.run() == 0
    shutil.rmtree(target.of(source, "bare"))
    source.execute("DELETE FROM bare LIMIT 1")
    assert mirror.run() == 1
    assert mirror.record("bare").word is TableState.STOPPED


def test_a_folder_that_is_lost_is_not_made_anew_when_the_entry_was_applied_by_hand(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    shutil.rmtree(target.of(source, "lost"))
    source.execute("INSERT INTO lost VALUES (3, 3)")
    assert mirror.run() == 1
    mirror.ask("lost", Wish.APPLIED)
    source.execute("INSERT INTO lost VALUES (4, 4)")
    assert mirror.run() == 1
    assert mirror.record("lost").word is TableState.STOPPED
    assert not Path(target.of(source, "lost")).exists()


def test_a_dropped_table_whose_folder_was_deleted_is_made_anew(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    source.execute("DROP TABLE lost")
    assert mirror.run() == 0
    shutil.rmtree(target.of(source, "lost"))
    source.execute(
        "CREATE TABLE lost (id INT PRIMARY KEY)",
        "ALTER TABLE lost ADD COLUMN v INT",
        "INSERT INTO lost VALUES (1, 1)",
    )
    assert mirror.run() == 0
    assert_equal(source, target, "lost")


def test_a_table_with_a_damaged_file_stops_when_the_file_is_needed(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    (file,) = Path(target.of(source, "lost")).glob("*.parquet")
    damage(file)
    source.execute("UPDATE lost SET v = 7 WHERE id = 1", "INSERT INTO kept VALUES (4, 4)")
    assert mirror.run() == 1
    record = mirror.record("lost")
    assert record.word is TableState.STOPPED
    assert file.name in record.reason
    assert_equal(source, target, "kept")


def test_a_table_whose_own_log_is_damaged_stops_alone(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    for number in (3, 4):
        source.execute(f"INSERT INTO lost VALUES ({number}, {number})")
        assert mirror.run() == 0
    commits = sorted((Path(target.of(source, "lost")) / "_delta_log").glob("*.json"))
    commits[-2].unlink()
    source.execute("INSERT INTO lost VALUES (9, 9)", "INSERT INTO kept VALUES (9, 9)")
    assert mirror.run() == 1
    record = mirror.record("lost")
    assert record.word is TableState.STOPPED
    assert "DELTA_VERSIONS_NOT_CONTIGUOUS" in record.reason
    assert_equal(source, target, "kept")


# -- the log -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [damage, Path.unlink])
def test_tables_that_may_need_a_lost_file_of_the_log_stop_before_it(
    mirror: Mirror, source: Source, target: Target, lose: Callable[[Path], None]
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    source.execute("INSERT INTO lost VALUES (3, 3)")
    mirror.feed()
    lose(file := log_files(target)[-1])
    source.execute("INSERT INTO kept VALUES (4, 4)", "CREATE TABLE young (id INT PRIMARY KEY)")
    source.execute("INSERT INTO young VALUES (1)")
    assert mirror.run() == 1
    assert_equal(source, target, "young")
    for name in ("kept", "lost"):
        record = mirror.record(name)
        assert record.word is TableState.STOPPED
        assert file.name in record.reason
        assert f"resolve {record.label} --as recopy" in record.reason


def test_a_file_of_the_log_that_is_put_back_is_applied_in_full(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    source.execute("INSERT INTO lost VALUES (3, 3)", "UPDATE kept SET v = 9")
    mirror.feed()
    file = log_files(target)[-1]
    aside = file.rename(target.path / "aside")
    source.execute("INSERT INTO lost VALUES (4, 4)")
    assert mirror.run() == 1
    # As long as the file is missing, `retry` does not skip the entry.
    mirror.ask("lost", Wish.RETRY)
    assert mirror.apply() == 1
    assert mirror.record("lost").word is TableState.STOPPED
    aside.rename(file)
    for name in ("kept", "lost"):
        mirror.ask(name, Wish.RETRY)
    assert mirror.apply() == 0
    assert_equal(source, target, "kept", "lost")


def test_tables_that_stand_before_a_lost_file_go_on_at_a_gap(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    source.execute("INSERT INTO lost VALUES (3, 3)")
    mirror.feed()
    damage(log_files(target)[-1])
    assert mirror.apply() == 1
    mirror.feed(gap=True)
    assert mirror.apply() == 0
    assert {mirror.record(name).word for name in ("kept", "lost")} == {TableState.PARTIAL}


def test_another_consumer_goes_on(
    make_mirror: Callable[..., Mirror], source: Source, target: Target
) -> None:
    mirror = make_mirror("shop")
    source.execute(*TABLES)
    assert mirror.run() == 0
    source.execute("INSERT INTO lost VALUES (3, 3)")
    mirror.feed()
    damage(log_files(target)[-1])
    assert mirror.apply() == 1
    reader = BinlogLog(mirror.spark, str(target.path))
    claimed = LogAppender(mirror.spark, str(target.path)).claim("other")
    assert reader.last_append("other") == claimed.append


def test_a_claim_reads_the_newest_end_behind_a_lost_file(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    mirror.feed()
    damage(log_files(target)[-1])
    source.execute("INSERT INTO lost VALUES (3, 3)")
    mirror.feed()
    end = mirror.appender.claim("shop")
    assert end.position == source.daemon.head


def test_a_log_whose_end_is_lost_goes_on_behind_a_gap_only_if_that_is_wanted(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    mirror.feed()
    damage(log_files(target)[-1])
    with pytest.raises(
        BinlogError, match="the end of the log of consumer shop cannot be read"
    ) as caught:
        mirror.appender.claim("shop")
    assert caught.value.kind is ErrorKind.TARGET_FILES
    head = source.daemon.head
    end = mirror.appender.claim("shop", behind_loss=lambda: head)
    assert end.position == head
    (newest,) = [e for e in mirror.log.entries("shop", (end.append << 32) - 1) if e.gap]
    assert append_of(newest.lsn) == end.append
    assert mirror.appender.claim("shop").position == head


def test_a_log_that_was_deleted_is_not_begun_again_without_a_word(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    applied = mirror.control.applied("shop")
    shutil.rmtree(target.path / "_binlog" / "log")
    again = LogAppender(mirror.spark, str(target.path))
    with pytest.raises(BinlogError, match="the tables of consumer shop are ahead of the log"):
        again.claim("shop", applied=applied)
    assert not (target.path / "_binlog" / "log").exists()
    assert mirror.apply() == 1

    end = again.claim("shop", applied=applied, behind_loss=lambda: source.daemon.head)
    assert end.append > append_of(applied)
    assert mirror.apply() == 0  # the tables become partial, because this job cannot copy
    assert {mirror.record(name).word for name in ("kept", "lost")} == {TableState.PARTIAL}


@pytest.mark.parametrize("which", ["commit", "missing commit", "checkpoint"])
def test_a_log_whose_own_log_is_damaged_is_said_in_one_line(
    mirror: Mirror,
    source: Source,
    target: Target,
    which: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source.execute(*TABLES)
    assert mirror.run(appends=4) == 0
    log = target.path / "_binlog" / "log" / "_delta_log"
    commits = sorted(log.glob("*.json"))
    if which == "commit":
        damage(commits[-1])
        commits[-1].with_suffix(".crc").unlink(missing_ok=True)
    elif which == "missing commit":
        commits[-2].unlink()
    else:
        from spark_sink.mirror.lake.delta_commit import write_checkpoint  # noqa: PLC0415
        from spark_sink.mirror.lake.delta_log import forget_table  # noqa: PLC0415

        path = str(log.parent)
        write_checkpoint(mirror.spark, path)
        for commit in commits:
            commit.unlink()
        (checkpoint,) = log.glob("*.checkpoint.parquet")
        damage(checkpoint)
        for rest in log.glob("*.crc"):
            rest.unlink()
        forget_table(mirror.spark, path)
    caplog.set_level(logging.INFO)
    assert mirror.apply() == 1
    assert not any(record.exc_info and record.levelno > logging.DEBUG for record in caplog.records)
    (said,) = {r.getMessage() for r in caplog.records if r.levelno == logging.ERROR}
    assert str(log.parent) in said
    assert "--no-fail-on-data-loss" in said


def test_a_control_table_that_is_damaged_is_named(
    mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(*TABLES)
    assert mirror.run() == 0
    folder = target.path / "_binlog" / "tables"
    sorted((folder / "_delta_log").glob("*.json"))[-2].unlink()
    with pytest.raises(BinlogError, match="mirror into another target") as caught:
        mirror.apply()
    assert str(folder) in caught.value.what
