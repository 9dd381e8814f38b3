"""Compares the columns of a table on the server and in the mirror by name, type and order. Pure."""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_sink.mirror.schema.signature import Signature, is_kept_column
from spark_sink.mirror.values.policies import MetadataColumn


def column_differences(server: StructType, mirror: StructType) -> str:
    """Returns a text that lists all differences of the columns; "" if the columns are equal.

    The comparison ignores the case of names. It also ignores the columns that the mirror adds by policy: metadata
    columns, and the old columns that `on_alter: new_column` keeps.
    """
    ours = {field.name.lower(): field for field in server}
    theirs = {
        field.name.lower(): field
        for field in mirror
        if field.name.lower() in ours or not _is_added(field.name)
    }
    lacking = [field.name for name, field in ours.items() if name not in theirs]
    more = [field.name for name, field in theirs.items() if name not in ours]
    differences = [f"column {name!r} is missing in the mirror" for name in lacking]
    differences += [f"the server has no column {name!r}" for name in more]
    for name, field in ours.items():
        if name in theirs and theirs[name].dataType != field.dataType:
            kinds = field.dataType.simpleString(), theirs[name].dataType.simpleString()
            differences.append(
                f"column {field.name!r} is {kinds[1]} in the mirror, and has to be {kinds[0]}"
            )
    if not lacking and not more and list(ours) != list(theirs):
        orders = ", ".join(f.name for f in theirs.values()), ", ".join(f.name for f in server)
        differences.append(
            f"the mirror has the columns in the order {orders[0]}, the server {orders[1]}"
        )
    return "; ".join(differences)


def signature_differences(server: Signature, mirror: Signature) -> str:
    """Returns a text that lists all differences between the columns that the server shows for the table and the columns
    that the mirror's record has: names, order, the types of mirrored values, NULL, and the key; "" if nothing differs.

    The columns of a Delta table do not suffice for this comparison: in Delta, each column may be NULL.
    """
    ours = {column.name.lower(): column for column in server.columns}
    theirs = {column.name.lower(): column for column in mirror.columns}
    if list(ours) != list(theirs):
        orders = (", ".join(c.name for c in each.columns) for each in (mirror, server))
        mirrored, actual = orders
        return f"the mirror knows the columns {mirrored}, the server has {actual}"
    differences = []
    for name, column in ours.items():
        known = theirs[name]
        if known.spark_type != column.spark_type:
            types = f"{known.mysql_type} in the mirror, and {column.mysql_type} on the server"
            differences.append(f"column {column.name!r} is {types}")
        elif known.nullable != column.nullable:
            may = "NULL in the mirror, and NOT NULL on the server"
            may = may if known.nullable else "NOT NULL in the mirror, and NULL on the server"
            differences.append(f"column {column.name!r} is {may}")
    keys = [[name.lower() for name in each.key] for each in (mirror, server)]
    if keys[0] != keys[1]:
        mirrored, actual = (", ".join(each.key) or "none" for each in (mirror, server))
        differences.append(f"the key is {mirrored} in the mirror, and {actual} on the server")
    return "; ".join(differences)


def _is_added(name: str) -> bool:
    return name in list(MetadataColumn) or is_kept_column(name)
