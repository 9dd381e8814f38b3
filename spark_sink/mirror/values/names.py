"""Names of databases, tables and columns: as folders of the target, and as identifiers of Spark SQL. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from urllib.parse import quote

TableName = tuple[str, str]  # database, table

# The mirror's own files are in this folder of the target. No database's folder can have this name, because
# `folder_name` writes a leading underscore as %5F: Spark and Delta treat folders with a leading underscore as hidden.
OWN_FOLDER = "_binlog"

_SAFE_IN_PATH = " $-_"


def folder_name(name: str) -> str:
    """Returns the folder name for a database's or table's name.

    Letters of any script stay. Characters with a meaning to Hadoop, globs or file systems become %xx, and so does an
    underscore at the beginning.
    """
    text = "".join(c if c.isalnum() or c in _SAFE_IN_PATH else quote(c, safe="") for c in name)
    # `quote` keeps "." and "~", but "." and ".." cannot be names of folders.
    text = text.replace(".", "%2E").replace("~", "%7E")
    return f"%5F{text[1:]}" if text.startswith("_") else text


def own_path(target: str, *parts: str) -> str:
    """Returns a path in the mirror's own folder of the target."""
    return "/".join((target.rstrip("/"), OWN_FOLDER, *parts))


def quoted(name: str) -> str:
    """Returns the name as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def table_label(name: TableName) -> str:
    """Returns database.table, for messages."""
    return ".".join(name)


def fits_pattern(label: str, pattern: str) -> bool:
    """True if a table's name equals or fits a pattern. A name may contain the special characters of patterns."""
    return label == pattern or fnmatchcase(label, pattern)
