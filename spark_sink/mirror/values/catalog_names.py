"""Makes the names that mirrored tables have in a Spark catalog, from a template such as `main.{database}.{table}`.
Pure.

Catalogs convert names to lower case, and accept ASCII letters, digits and underscores. This module escapes every other
character as in SQL/XML (ISO/IEC 9075-14, 9.1), in lower case: `order-lines` becomes `order_x002d_lines`. Two different
names become equal only if they differ in nothing but case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_sink.mirror.values.names import TableName, quoted

SESSION_CATALOG = "spark_catalog"  # Spark's name for its default catalog

_PLACEHOLDERS = ("{database}", "{table}")
_PART = re.compile(r"(?:[A-Za-z0-9_]|\{database\}|\{table\})+\Z")
# An underscore is escaped, too, if the characters after the underscore look like an escape.
_ESCAPED = re.compile(r"[^a-z0-9_]|_(?=x[0-9a-f]{4,6}[^a-z0-9])")


def catalog_identifier(name: str) -> str:
    """Returns the name that a database or table of the server has in a catalog."""
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04x}_", name.lower())


@dataclass(frozen=True, slots=True)
class CatalogTemplate:
    """`parts`: the two or three names of the template, in which `{database}` and `{table}` stand for the names of the
    mirrored table. If there are three parts, the first one is a catalog."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> CatalogTemplate:
        """Raises `ValueError` for a text that is no template."""
        parts = tuple(text.split("."))
        form = "write it like {database}.{table} or main.{database}.{table}"
        if len(parts) not in (2, 3):
            raise ValueError(f"{form}: two or three names with dots between, not {text!r}")
        if wrong := [part for part in parts if not _PART.match(part)]:
            raise ValueError(
                f"{form}: letters, digits, underscores and {' and '.join(_PLACEHOLDERS)}, not {wrong[0]!r}"
            )
        if "{table}" not in parts[-1]:
            raise ValueError(f"{form}: the last name has to contain {{table}}")
        if len(parts) == 3 and "{" in parts[0]:
            raise ValueError(f"{form}: the catalog is one that Spark's settings name")
        if any("{table}" in part for part in parts[:-1]):
            raise ValueError(f"{form}: only the last name can contain {{table}}")
        return cls(parts)

    @property
    def catalog(self) -> str:
        """The catalog's name in the settings of Spark."""
        return self.parts[0] if len(self.parts) == 3 else SESSION_CATALOG

    def name(self, table: TableName) -> str:
        """Returns the table's name in the catalog. The only dots in the name are those between its parts."""
        database, own = map(catalog_identifier, table)
        catalog = self.parts[:-2]
        names = [
            part.lower().replace("{database}", database).replace("{table}", own)
            for part in self.parts[-2:]
        ]
        return ".".join((*catalog, *names))


def sql_name(name: str) -> str:
    """Quotes each part of a name, such as `shop.orders`, for Spark SQL."""
    return ".".join(map(quoted, name.split(".")))


def schema_name(name: str) -> str:
    """Returns a table's name without its last part: the name of the schema (database) that contains the table."""
    return name.rpartition(".")[0]
