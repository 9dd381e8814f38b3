"""Converts names of databases, tables and columns to folder names of the target and to identifiers of Spark SQL.
Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from urllib.parse import quote

TableName = tuple[str, str]  # database, table

# The mirror's own files are in this folder of the target. No database's folder can have this name, because
# `folder_name` writes a leading underscore as %5F. Spark and Delta treat folders with a leading underscore as hidden.
OWN_FOLDER = "_binlog"

_SAFE_IN_PATH = " $-_"


def folder_name(name: str) -> str:
    """Returns the folder name for a database's or table's name.

    Letters of any script stay unchanged. Characters that Hadoop, globs or file systems treat specially become %xx. An
    underscore at the beginning becomes %5F.
    """
    text = "".join(c if c.isalnum() or c in _SAFE_IN_PATH else quote(c, safe="") for c in name)
    # `quote` does not escape "." and "~", but a folder cannot have the name "." or "..".
    text = text.replace(".", "%2E").replace("~", "%7E")
    return f"%5F{text[1:]}" if text.startswith("_") else text


def own_path(target: str, *parts: str) -> str:
    """Returns a path in the mirror's own folder of the target."""
    return "/".join((target.rstrip("/"), OWN_FOLDER, *parts))


def copy_folder(table_id: str) -> str:
    """Returns the folder of a table's copy, below the target."""
    return f"{OWN_FOLDER}/copies/{table_id}"


def aside_folder(table_id: str) -> str:
    """Returns the folder, below the target, to which the mirror moves a table's folder until the table's place is
    free."""
    return f"{OWN_FOLDER}/moving/{table_id}"


def quoted(name: str) -> str:
    """Returns the name as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def table_label(name: TableName) -> str:
    """Returns the name as `database.table`, for messages."""
    return ".".join(name)


def fits_pattern(label: str, pattern: str) -> bool:
    """True if a table's name is equal to the pattern or fits the pattern. Equality is tested first, because a name may
    contain the special characters of patterns."""
    return label == pattern or fnmatchcase(label, pattern)
