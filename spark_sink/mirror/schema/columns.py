"""A column of a mirrored table: its MySQL type, and the type of the Delta column that holds its values. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from dispatcher.binlog.charset.collations import collation_named
from dispatcher.binlog.decode.arrow.arrow_types import arrow_type
from dispatcher.binlog.sql.data_types import TEXT_WORDS
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Mask

# Spark's names of the Arrow types that `arrow_type` returns.
_SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def spark_type_text(kind: pa.DataType) -> str:
    """Returns, as text of Spark SQL, an Arrow type that `arrow_type` has returned."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = (f"{field.name}:{spark_type_text(field.type)}" for field in kind)
        return f"struct<{','.join(fields)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_type_text(kind.value_type)}>"
    return _SPARK_NAMES[kind]


@dataclass(frozen=True, slots=True)
class ColumnSignature:
    """A column. `mysql_type`: as in information_schema, such as `int unsigned` or `enum('a','b')`; `charset`: the
    character set of text and labels, "" if it is unknown or there is none; `spark_type`: the type's text in Spark SQL,
    such as `decimal(20,0)`; `mask`: the text of the column's mask, "" without one."""

    name: str
    mysql_type: str
    charset: str
    nullable: bool
    spark_type: str
    mask: str = ""

    @classmethod
    def of_definition(
        cls, name: str, mysql_type: str, charset: str, nullable: bool, invalid_dates: InvalidDates
    ) -> ColumnSignature:
        """Raises `BinlogError` UNSUPPORTED_TYPE."""
        column = column_of(name, mysql_type, charset, nullable)
        return cls(name, mysql_type, charset, nullable, spark_type_of(column, invalid_dates))

    def with_mask(self, mask: Mask | None, invalid_dates: InvalidDates) -> ColumnSignature:
        """Returns the column with this mask in place of its own. Raises `BinlogError` UNSUPPORTED_TYPE."""
        if mask is None and not self.mask:
            return self
        spark_type = spark_type_of(replace(self.column, mask=mask), invalid_dates)
        return replace(self, spark_type=spark_type, mask="" if mask is None else str(mask))

    @property
    def column(self) -> Column:
        """The column in the form that rules about types need. Sizes of CHAR and VARCHAR are in characters; `charset` 0
        means unknown."""
        return column_of(self.name, self.mysql_type, self.charset, self.nullable)


def column_of(name: str, mysql_type: str, charset: str, nullable: bool) -> Column:
    """Returns the column that a definition describes. Raises `BinlogError` UNSUPPORTED_TYPE."""
    word = mysql_type.partition("(")[0]
    (column,) = defined_columns(
        {
            "database": "",
            "table": "",
            "columns": [
                {
                    "name": name,
                    "mysql_type": mysql_type,
                    "nullable": nullable,
                    "charset": charset if charset or word in TEXT_WORDS else None,
                }
            ],
        }
    )
    return column


def spark_type_of(column: Column, invalid_dates: InvalidDates, label: str = "") -> str:
    if not column.charset:  # in Spark, text of any character set is a string
        column = replace(column, charset=collation_named("utf8mb4"))
    return spark_type_text(arrow_type(column, label, invalid_dates))
