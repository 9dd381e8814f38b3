"""What a table's Delta table and record must be before work is applied, each with its error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.damage import lost_files
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.plan import UnclearItem
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.entries import LogEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_same_history(record: TableRecord, entry: LogEntry) -> None:
    """Raises `BinlogError` HISTORY_DIFFERS if rows are of another epoch than the table."""
    # An epoch that is not known becomes that of the next rows, when their columns are compared.
    if record.epoch and entry.epoch != record.epoch:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"table {record.label} is of epoch {record.epoch}, and its rows are now of epoch {entry.epoch}: the"
            " consumer was moved, or the server's log is another one",
            where=f"lsn {entry.lsn}",
            remedy=remedies.of_other_history(record.label),
        )


def require_free(spark: SparkSession, table: MirroredTable, record: TableRecord) -> None:
    """Raises `BinlogError` if the folder at which the table is to be created has another Delta table."""
    if not table.exists(spark) or table.owner(spark) == record.table_id:
        return
    raise BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"a Delta table that is not the mirror's of {record.consumer} is where {record.label} has to be",
        where=table.path,
        remedy=remedies.of_other_folder(record.label, record.consumer),
    )


def require_table(spark: SparkSession, table: MirroredTable) -> None:
    """Raises `BinlogError` TARGET_FILES if a table that had rows has no Delta table any more."""
    if not table.exists(spark):
        raise missing_table(table)


def missing_table(table: MirroredTable) -> BinlogError:
    """Returns the error of a table whose folder was deleted or moved away."""
    return lost_files(table.path, "there is none: its folder was deleted or moved")


def require_schema(spark: SparkSession, table: MirroredTable, columns: StructType) -> None:
    """Gives an empty Delta table these columns. Raises `BinlogError` UNSUPPORTED_CHANGE if it has rows and others."""
    existing = {column.name: column.dataType for column in table.columns(spark)}
    wanted = {column.name: column.dataType for column in columns}
    if existing == wanted:
        return
    if table.is_empty(spark):
        table.replace_schema(spark, columns)
        return
    differing = [
        f"{name} is {existing.get(name, 'missing')}, in the log {wanted.get(name, 'missing')}"
        for name in {**existing, **wanted}
        if existing.get(name) != wanted.get(name)
    ]
    raise BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"the Delta table of {table.label} has other columns than the log: {'; '.join(differing)}",
        where=table.path,
        remedy=remedies.of_copy_again(table.label),
    )


def unclear_statement(record: TableRecord, work: UnclearItem) -> BinlogError:
    """Returns the error of a statement that may have changed the table, with the commands by which it goes on."""
    return BinlogError(
        work.error.kind,
        work.error.what,
        where=f"lsn {work.lsn}, {work.entry.file}:{work.entry.pos}",
        remedy=remedies.of_statement(record.label),
    )
