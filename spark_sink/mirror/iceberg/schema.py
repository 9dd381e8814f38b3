"""The Iceberg schema of a Delta table. The field ids are those that Delta has written into the data files.

Sources: Delta protocol, "Column Mapping" and "Iceberg Compatibility V2"; Iceberg's specification, "Schemas and Data
Types".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.values.iceberg_types import promotes

_TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)\Z")
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_MADE_BY_MAPPING = "col-"  # the beginning of the name that Delta gives to a new column in the files
_TYPE_CHANGES = "delta.typeChanges"


# Iceberg's readers reserve these names for columns of their own (Iceberg's specification, "Reserved Field IDs").
_RESERVED = {
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
}


def iceberg_name(column: str) -> str:
    """Returns the name that a column of the Delta table has in Iceberg: `_deleted` is `_deleted_`."""
    return f"{column}_" if column.rstrip("_").lower() in _RESERVED else column


def iceberg_schema(fields: Sequence[Mapping[str, Any]], schema_id: int = 0) -> Schema:
    """Returns the schema for a Delta table's fields in Spark's JSON form, with Delta's metadata.

    Raises `BinlogError` UNSUPPORTED_TYPE if Iceberg's readers could not read the table's files: the files have no ids
    for a column or for the elements of an array, or the column's type was changed in a way that Iceberg lacks.
    """
    return Schema(*map(_field, fields), schema_id=schema_id)


def _field(field: Mapping[str, Any]) -> NestedField:
    metadata = field["metadata"]
    field_id, stored_as = metadata.get(_ID), metadata.get(_PHYSICAL_NAME, "")
    # If column mapping was switched on for an existing table, the names in its files are the former names of the
    # columns, and its older files have no ids.
    if field_id is None or not stored_as.startswith(_MADE_BY_MAPPING):
        raise _unreadable(field, "its files have no field ids")
    for change in metadata.get(_TYPE_CHANGES, ()):
        if not promotes(f'"{change["fromType"]}"', f'"{change["toType"]}"'):
            raise _unreadable(
                field,
                f"its type was changed from {change['fromType']} to {change['toType']} without a rewrite of the files",
            )
    name = iceberg_name(field["name"])
    return NestedField(field_id, name, _type(field, field["type"]), required=False)


def _type(field: Mapping[str, Any], kind: Any) -> IcebergType:
    if isinstance(kind, str):
        if match := _DECIMAL.match(kind):
            return DecimalType(int(match[1]), int(match[2]))
        return _TYPES[kind]
    if kind["type"] == "struct":
        return StructType(*map(_field, kind["fields"]))
    metadata = field["metadata"]
    ids = metadata.get(_NESTED_IDS, {})
    element_id = ids.get(f"{metadata[_PHYSICAL_NAME]}.element")
    if kind["type"] != "array" or element_id is None:
        raise _unreadable(field, "its files have no field ids for the elements")
    return ListType(element_id, _type(field, kind["elementType"]), element_required=False)


def _unreadable(field: Mapping[str, Any], why: str) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_TYPE,
        f"Iceberg cannot read column {field['name']}: {why}",
    )


def same_fields(one: Schema, other: Schema) -> bool:
    """True if two schemas have the same fields, with the same ids, in the same order. The ids of the schemas may
    differ."""
    return one.as_struct() == other.as_struct()
